"""Metadata: up to 16 string pairs on a resource, and the query filter over them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator

from perdure.wire.errors import InvalidRequest
from perdure.wire.limits import limit_fault
from perdure.wire.pins import pin_fault
from perdure.wire.shapes import refusal

MAX_PAIRS = 16
MAX_KEY = 64
MAX_VALUE = 512


def _check(pairs: dict[str, str]) -> dict[str, str]:
    if len(pairs) > MAX_PAIRS:
        raise refusal(
            "Invalid '{param}': too many properties. Expected an object with at most "
            f"{MAX_PAIRS} properties, but got {len(pairs)} instead."
        )
    for key, value in pairs.items():
        if not 1 <= len(key) <= MAX_KEY:
            raise refusal(
                f"Invalid '{{param}}': every key must have 1 to {MAX_KEY} characters, but one has {len(key)}."
            )
        if len(value) > MAX_VALUE:
            raise refusal(
                f"Invalid '{{param}}': string too long. Expected at most {MAX_VALUE} characters, "
                f"but got {len(value)} instead.",
                key,
            )
        fault = limit_fault(key, value) or pin_fault(key, value)
        if fault is not None:
            raise refusal(fault, key)
    return pairs


Metadata = Annotated[dict[str, str], AfterValidator(_check)]


def metadata_filter(query: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The pairs of a list query's `metadata[key]=value` parameters; every one has to match.

    Raises:
        InvalidRequest: a repeated or empty key, or more or longer pairs than metadata can have.
    """
    pairs: dict[str, str] = {}
    for name, value in query:
        if name != "metadata" and not name.startswith("metadata["):
            continue
        key = name[len("metadata[") : -1]
        if not name.endswith("]") or not 1 <= len(key) <= MAX_KEY:
            raise InvalidRequest(
                f"Write a metadata filter as metadata[key]=value, with a key of 1 to {MAX_KEY} characters.",
                param="metadata",
            )
        if key in pairs:
            raise InvalidRequest(f"Duplicate parameter: 'metadata[{key}]'.", param=f"metadata[{key}]")
        if len(value) > MAX_VALUE:
            raise InvalidRequest(
                f"Invalid 'metadata[{key}]': string too long. Expected at most {MAX_VALUE} characters, "
                f"but got {len(value)} instead.",
                param=f"metadata[{key}]",
            )
        pairs[key] = value
    if len(pairs) > MAX_PAIRS:
        raise InvalidRequest(f"Filter by at most {MAX_PAIRS} metadata pairs.", param="metadata")
    return pairs
