"""Schemas of three forms: Python types and functions, `StandardSchema`, and JSON Schema.

`schema_of` takes any of them and returns a `Schema`: the JSON Schema to ask a model with, in strict form, and
the validation of what the model answers, typed.
"""

from perdure.schema.conformance import AdapterFault, check_adapter
from perdure.schema.dumping import jsonable
from perdure.schema.forms import from_marshmallow, schema_of
from perdure.schema.refusals import FormRefused, SchemaRefused
from perdure.schema.results import (
    AsynchronousValidator,
    BrokenValidator,
    Failure,
    Issue,
    Success,
    ValidatorFault,
)
from perdure.schema.signatures import Arguments
from perdure.schema.standard import SchemaContract, StandardSchema
from perdure.schema.typed import Schema

__all__ = [
    "AdapterFault",
    "Arguments",
    "AsynchronousValidator",
    "BrokenValidator",
    "Failure",
    "FormRefused",
    "Issue",
    "Schema",
    "SchemaContract",
    "SchemaRefused",
    "StandardSchema",
    "Success",
    "ValidatorFault",
    "check_adapter",
    "from_marshmallow",
    "jsonable",
    "schema_of",
]
