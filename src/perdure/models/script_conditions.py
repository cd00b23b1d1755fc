"""Whether the conditions of a rule hold for a request."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase

from perdure.models.messages import FunctionResult, Reasoning, ServerNote
from perdure.models.script import When
from perdure.models.script_situation import Situation, entry_text, text_of


def match_conditions(when: When, situation: Situation) -> dict[str, str] | None:
    """The texts captured by `user_matches` if every condition holds, else None.

    `times` and `times_per_conversation` are not asked here: they depend on the past of the process.
    """
    if not (
        _request_holds(when, situation) and _counts_hold(when, situation) and _result_holds(when, situation)
    ):
        return None
    if when.user_matches is None:
        return {}
    found = when.user_matches.search(situation.user)
    return None if found is None else {name: text or "" for name, text in found.groupdict().items()}


def _request_holds(when: When, situation: Situation) -> bool:
    request = situation.request
    entries = request.entries
    if when.user_contains is not None and when.user_contains not in situation.user:
        return False
    if when.instructions_contains is not None and when.instructions_contains not in request.instructions:
        return False
    if when.context_contains is not None and not any(when.context_contains in entry_text(e) for e in entries):
        return False
    if when.note_contains is not None and not any(
        isinstance(e, ServerNote) and when.note_contains in text_of(e.content) for e in entries
    ):
        return False
    if when.reasoning_contains is not None and not any(
        isinstance(e, Reasoning) and when.reasoning_contains in _reasoning_text(e) for e in entries
    ):
        return False
    if when.has_tool is not None and not set(when.has_tool) <= {tool.name for tool in request.tools}:
        return False
    if when.has_output_schema is not None and when.has_output_schema != (request.output_schema is not None):
        return False
    if when.model is not None and not fnmatchcase(request.model, when.model):
        return False
    if when.effort is not None and when.effort != request.effort:
        return False
    if when.agent is not None and not fnmatchcase(request.agent or "", when.agent):
        return False
    return when.newest is None or when.newest == situation.newest


def _counts_hold(when: When, situation: Situation) -> bool:
    return (
        (when.turn is None or when.turn.holds(situation.turn))
        and (when.step is None or when.step.holds(situation.step))
        and (when.call_count is None or when.call_count.holds(situation.call_count))
    )


def _result_holds(when: When, situation: Situation) -> bool:
    if when.after_result_of is None and when.result_contains is None and when.result_failed is None:
        return True
    result: FunctionResult | None = situation.new_result
    if result is None:
        return False
    if when.after_result_of is not None and not fnmatchcase(
        situation.function_of(result) or "", when.after_result_of
    ):
        return False
    if when.result_contains is not None and when.result_contains not in text_of(result.content):
        return False
    return when.result_failed is None or when.result_failed == result.failed


def _reasoning_text(entry: Reasoning) -> str:
    return "\n".join([*entry.summary, json.dumps(dict(entry.native.data), ensure_ascii=False)])
