"""A final answer against the schema that the agent's `text.format` asks for."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.schema.arguments import DESCRIPTION_BYTES, problem_list, validator_for
from perdure.schema.texts import TextFault, read_json

OUTPUT_BYTES = 4 << 20


def output_problems(schema: Mapping[str, object], text: str) -> str | None:
    """What keeps `text` from being one JSON document that matches `schema`; None when it is one.

    Nothing is stripped: a code fence or prose around the document is a violation. The description is meant
    for the model, has at most `DESCRIPTION_BYTES` and repeats nothing of the text but property names.
    Raises SchemaRefused when the schema itself is not acceptable.
    """
    validator = validator_for(schema)
    value = read_json(text, OUTPUT_BYTES)
    if isinstance(value, TextFault):
        return f"The answer {_surroundings(text) or value.reason}."
    if problems := validator.problems(value):
        return problem_list(
            "The answer does not match the required JSON Schema:", problems, DESCRIPTION_BYTES
        )
    return None


def _surroundings(text: str) -> str | None:
    start = text.lstrip()[:3]
    if not start:
        return "is empty, must be one JSON document"
    if start == "```":
        return "is wrapped in a code fence, must be the JSON document alone"
    if start[0] not in '{["-0123456789tfn':
        return "does not begin with JSON, must be the JSON document alone"
    return None
