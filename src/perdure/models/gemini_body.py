"""The body of a Gemini request."""

from __future__ import annotations

from typing import Any

from perdure.models.gemini_family import TIERS, Rules, thinking_config
from perdure.models.gemini_schema import reduced_schema
from perdure.models.jsontext import Encoded
from perdure.models.messages import FunctionSpec, ModelRequest
from perdure.models.offered import Offered
from perdure.models.outgoing import with_schema
from perdure.models.schema_sent import sendable

# The protocol has no setting for it.
_VERBOSITY = {
    "low": "Keep your answers short: say what is needed and no more.",
    "high": "Give detailed answers: explain and leave nothing out.",
}
ONE_CALL = "Call at most one function at a time, and wait for its result before the next call."


def build_body(
    request: ModelRequest,
    contents: Encoded,
    rules: Rules,
    offered: Offered,
    *,
    max_output_tokens: int | None = None,
    enforce_schema: bool = True,
    parallel_calls: bool = True,
) -> dict[str, Any]:
    """Everything one model call needs; the model itself is part of the address.

    Args:
        contents: the entries of the request, written.
        rules: what the model accepts.
        offered: the functions as the provider takes them.
        max_output_tokens: limit of the answer, if one is configured.
        enforce_schema: False asks for `output_schema` in words instead.
        parallel_calls: False asks, in words, for one call at a time.
    """
    instructions = request.instructions
    schema = request.output_schema
    if schema is not None and not (enforce_schema and (rules.schema_with_tools or not request.tools)):
        instructions, schema = with_schema(instructions, schema), None
    one_call = ONE_CALL if request.tools and not parallel_calls else None
    told = (instructions, _VERBOSITY.get(request.verbosity), one_call)
    instructions = "\n\n".join(text for text in told if text)
    body: dict[str, Any] = {"contents": contents}
    if instructions:
        body["systemInstruction"] = {"parts": [{"text": instructions}]}
    if request.tools:
        body["tools"] = [{"functionDeclarations": [_declared(spec, rules) for spec in offered.tools]}]
        body["toolConfig"] = {"functionCallingConfig": {"mode": "AUTO"}}
    config: dict[str, Any] = {}
    if max_output_tokens is not None:
        config["maxOutputTokens"] = max_output_tokens
    if thinking := thinking_config(rules, request.effort, summary=request.summary is not None):
        config["thinkingConfig"] = thinking
    if schema is not None:
        config["responseMimeType"] = "application/json"
        if rules.json_schema:
            config["responseJsonSchema"] = sendable(schema, str)
        else:
            config["responseSchema"] = reduced_schema(schema)
    if config:
        body["generationConfig"] = config
    if request.service_tier in TIERS:
        body["serviceTier"] = request.service_tier
    return body


def _declared(spec: FunctionSpec, rules: Rules) -> dict[str, Any]:
    declared: dict[str, Any] = {"name": spec.name}
    if spec.description:
        declared["description"] = spec.description
    if rules.json_schema:
        declared["parametersJsonSchema"] = spec.parameters
        return declared
    parameters = reduced_schema(spec.parameters)
    if parameters.get("properties"):
        declared["parameters"] = parameters
    elif said := parameters.get("description"):
        # A function without parameters has no schema to say it in.
        declared["description"] = "\n".join(filter(None, (spec.description, f"Its arguments: {said}")))
    return declared
