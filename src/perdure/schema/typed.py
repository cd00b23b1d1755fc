"""`Schema`: what every form becomes; the JSON Schema for the model, and the way from its JSON to a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

from perdure.schema.arguments import ArgumentValidator, validator_for
from perdure.schema.bounds import check_schema, checked, schema_text
from perdure.schema.dumping import jsonable
from perdure.schema.masking import masked
from perdure.schema.meaning import Meaning, stated_kinds
from perdure.schema.outputs import OUTPUT_BYTES
from perdure.schema.refusals import SchemaRefused
from perdure.schema.restoring import Restorer
from perdure.schema.results import Failure, Issue, Success
from perdure.schema.standard import SchemaContract, judged
from perdure.schema.strict import strict_form
from perdure.schema.texts import TextFault, parse_arguments, read_json
from perdure.schema.violations import FINDINGS

T_co = TypeVar("T_co", covariant=True)

Form = Literal["type", "standard", "json"]


class Schema(Generic[T_co]):
    """A schema ready for use. Get one from `schema_of`; safe to share between threads.

    Attributes:
        name: what the form is called, for messages.
        form: `type` for a Python type or function, `standard` for a StandardSchema, `json` for JSON Schema.
        strict: whether `json_schema` is in strict form.
        json_schema: what to send to a model. Not to be changed.
        author_schema: the JSON Schema as the form gives it, before strict form. Not to be changed.
        validates: whether values are checked here; False for JSON Schema that is only parsed.
    """

    __slots__ = (
        "_contract", "_restorer", "_validator", "author_schema", "form", "json_schema", "name", "strict",
        "validates",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        form: Form,
        author_schema: Mapping[str, object],
        contract: SchemaContract[Any, T_co] | None,
        *,
        strict: bool,
        validates: bool,
    ) -> None:
        what = f"schema of {name}" if form != "json" else "schema"
        self.name = name
        self.form = form
        self.strict = strict
        self.validates = validates
        self.author_schema: dict[str, object] = dict(author_schema)
        self._contract = contract
        self._restorer: Restorer | None = None
        if strict:
            strict_schema = strict_form(self.author_schema, what=what)
            self.json_schema: dict[str, object] = strict_schema.schema
            self._restorer = Restorer(strict_schema)
        else:
            check_schema(self.author_schema, what=what)
            _refuse_other_roots(self.author_schema, what)
            self.json_schema = self.author_schema
        self._validator: ArgumentValidator = validator_for(self.author_schema)

    def __repr__(self) -> str:
        return f"<Schema {self.name} form={self.form} strict={self.strict}>"

    def with_strict(self, strict: bool) -> Schema[T_co]:
        """The same schema with another choice of strict form. Raises SchemaRefused where there is none."""
        return Schema(
            self.name, self.form, self.author_schema, self._contract, strict=strict, validates=self.validates
        )

    def parse_arguments(self, text: str) -> Success[T_co] | Failure:
        """Read and validate the arguments of a call, as a model wrote them: one JSON object.

        Raises ValidatorFault if the validator breaks its contract.
        """
        return self._parsed(parse_arguments(text))

    def parse_output(self, text: str) -> Success[T_co] | Failure:
        """Read and validate a final answer: one JSON document and nothing beside it.

        Raises ValidatorFault if the validator breaks its contract.
        """
        return self._parsed(read_json(text, OUTPUT_BYTES))

    def _parsed(self, value: object | TextFault) -> Success[T_co] | Failure:
        if isinstance(value, TextFault):
            return Failure((Issue(f"the text {value.reason}"),))
        return self.validate(value)

    def validate(self, value: object) -> Success[T_co] | Failure:
        """Validate and convert a JSON value, after taking out what only strict form put in.

        Issues have at most `FINDINGS` entries, with the path and the rule, and no piece of the value. Raises
        AsynchronousValidator or BrokenValidator if the validator breaks its contract: then nothing is known
        about the value, and no handling of invalid values may follow.
        """
        if self._restorer is not None:
            value = self._restorer.restore(value)
        if self._contract is not None:
            outcome = judged(self._contract, value)
            return Failure(self._explained(value, outcome)) if isinstance(outcome, Failure) else outcome
        if self.validates and (issues := self._broken_rules(value)):
            return Failure(issues)
        untyped: Any = value
        return Success(untyped)

    def dump(self, value: Any) -> Any:
        """A validated value as JSON again: dicts, lists, strings, numbers, booleans and None.

        Raises TypeError for a value that has no JSON.
        """
        dump = getattr(self._contract, "dump", None)
        return jsonable(value) if dump is None else dump(value)

    def output_schema(self) -> dict[str, object]:
        """The JSON Schema of what `dump` returns."""
        return self.author_schema if self._contract is None else self._contract.json_schema_output()

    def _broken_rules(self, value: object) -> list[Issue]:
        return [Issue(problem.rule, problem.parts) for problem in self._validator.problems(value)]

    def _explained(self, value: object, failure: Failure) -> tuple[Issue, ...]:
        """The rules of the JSON Schema that are broken, then what only the library knows to be wrong.

        So the words are the same whatever the library, and complete where it stops at its first error.
        """
        issues = self._broken_rules(value)
        known = {issue.path for issue in issues}
        for issue in failure.issues[:FINDINGS]:
            told = masked(issue, value)
            if not any(
                told.path[: len(path)] == path or path[: len(told.path)] == told.path for path in known
            ):
                issues.append(told)
        return tuple(dict.fromkeys(issues))[:FINDINGS]


def _refuse_other_roots(schema: Mapping[str, object], what: str) -> None:
    author = checked(schema_text(schema))
    root = Meaning(author.graph).target(author.root)
    if not isinstance(root, dict) or stated_kinds(root) != ["object"]:
        raise SchemaRefused(
            (), 'must have type "object" at the root; wrap other values in a property', what=what
        )
