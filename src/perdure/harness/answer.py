"""Reading a finished answer: which calls reach the application, which text is the final answer.

A call that the application cannot use (unknown name, broken JSON, arguments that break the schema)
is answered by the server with what is wrong, so that the model can repair it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.harness.conversation import Conversation
from perdure.harness.coordination import read_coordination
from perdure.harness.excerpts import READ_RESULT
from perdure.harness.leaks import read_leak
from perdure.models.messages import CallDone, MessageDone, Native, ReasoningDone
from perdure.schema.arguments import describe_fault, describe_problems, validator_for
from perdure.schema.outputs import output_problems
from perdure.schema.texts import ArgumentFault, parse_arguments
from perdure.store.rows import ItemRow
from perdure.store.steps import Call, Output, Text
from perdure.wire.tools import FunctionTool

Finished = MessageDone | ReasoningDone | CallDone


@dataclass(frozen=True, slots=True)
class Rules:
    """What an answer is held against. `show_reasoning`: summaries become items.

    `answers` are the results of calls that the server has made itself, by output number; `coordination` names
    the calls that concern subagents, which it makes with the step's commit.
    """

    show_reasoning: bool
    functions: Mapping[str, FunctionTool]
    output_schema: Mapping[str, Any] | None
    validate_arguments: bool
    repaired_calls: int
    output_repairs: int
    answers: Mapping[int, str] = field(default_factory=dict)
    coordination: frozenset[str] = frozenset()
    is_subagent: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The outputs to commit. `ends_turn`: the last text is the turn's answer. `fault`: the turn fails."""

    outputs: tuple[Output, ...]
    ends_turn: bool
    fault: str | None = None


def read_answer(
    finished: Sequence[Finished],
    opened: Mapping[int, ItemRow],
    rules: Rules,
    history: Conversation,
    turn_id: str,
) -> Answer:
    """Turn a model's outputs into items and calls.

    Args:
        finished: the outputs in the model's order.
        opened: rows of outputs that were listed while they streamed, by output number.
        history: the agent's items, to count earlier repairs of this turn.
    """
    has_calls = any(isinstance(output, CallDone) for output in finished)
    if not has_calls and (leak := read_leak(finished, opened, rules.functions)) is not None:
        return _repair_leak(leak, rules, history, turn_id)
    note, fault = (None, None) if has_calls else _judge_output(finished, rules, history, turn_id)
    written = [o for o in finished if isinstance(o, MessageDone) and (o.text or o.output in opened)]
    last_text = written[-1].output if written else -1
    outputs: list[Output] = []
    # Provider data of reasoning is kept with the output that followed it: it is replayed only together.
    thought: list[ReasoningDone] = []
    for output in finished:
        row = opened.get(output.output)
        match output:
            case MessageDone():
                if not output.text and row is None:
                    continue
                working = has_calls or note is not None
                phase = "commentary" if working else (output.phase or "final_answer")
                private = _private(output.native, thought, note if output.output == last_text else None)
                outputs.append(Text("message", message_data(output.text, phase), row, private))
                thought = []
            case ReasoningDone():
                if row is not None or (rules.show_reasoning and any(output.summary)):
                    outputs.append(Text("reasoning", reasoning_data(output.summary), row))
                thought.append(output)
            case CallDone() if output.name in rules.coordination:
                outputs.append(read_coordination(output, _private(output.native, thought)))
                thought = []
            case CallDone():
                outputs.append(_read_call(output, thought, rules, history, turn_id))
                thought = []
    return Answer(tuple(outputs), ends_turn=not has_calls and note is None, fault=fault)


def _repair_leak(leak: Sequence[Text | Call], rules: Rules, history: Conversation, turn_id: str) -> Answer:
    """An answer that was a call written as text: it is asked for again, so many times."""
    calls = (item for item in history.of_turn(turn_id) if item.type == "function_call")
    repaired = sum(1 for call in calls if (call.private or {}).get("leaked"))
    if repaired < rules.repaired_calls:
        return Answer(tuple(leak), ends_turn=False)
    return Answer(
        tuple(leak),
        ends_turn=False,
        fault="The model keeps writing calls as plain text, in the markup of a chat template.",
    )


def message_data(text: str, phase: str | None) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "output_text", "text": text}], "phase": phase}


def reasoning_data(summary: Sequence[str]) -> dict[str, Any]:
    return {"summary": [{"type": "summary_text", "text": text} for text in summary]}


def _private(
    native: Native | None, thought: Sequence[ReasoningDone], note: str | None = None
) -> dict[str, Any] | None:
    private: dict[str, Any] = {}
    if native is not None:
        private["native"] = _stored(native)
    reasoning = [
        {"summary": list(each.summary), "native": _stored(each.native)}
        for each in thought
        if each.native is not None
    ]
    if reasoning:
        private["reasoning"] = reasoning
    if note is not None:
        private["note"] = note
    return private or None


def _stored(native: Native) -> dict[str, Any]:
    return {"provider": native.provider, "model": native.model, "data": dict(native.data)}


def _read_call(
    call: CallDone, thought: Sequence[ReasoningDone], rules: Rules, history: Conversation, turn_id: str
) -> Call:
    arguments: Any
    refusal: str | None = None
    parsed = parse_arguments(call.arguments)
    if isinstance(parsed, ArgumentFault):
        arguments = call.arguments[:65536]
        refusal = describe_fault(call.name, parsed)
    else:
        arguments = parsed
    function = rules.functions.get(call.name)
    answer = rules.answers.get(call.output) if function is None else None
    if answer is not None or (function is None and call.name == READ_RESULT and refusal is not None):
        return Call(call.name, arguments, False, refusal, _private(call.native, thought), answer)
    if function is None:
        refusal = _unknown_function(call.name, rules)
    elif refusal is None and rules.validate_arguments:
        problems = validator_for(function.parameters).problems(arguments)
        if problems and _repairs(call.name, history, turn_id) < rules.repaired_calls:
            refusal = describe_problems(call.name, problems)
    is_async = function is not None and function.async_ and refusal is None
    private = _private(call.native, thought) or {}
    if is_async:
        private["async"] = True
    if refusal is not None:
        private["refused"] = True
    return Call(call.name[:256] or "(none)", arguments, is_async, refusal, private or None)


def _unknown_function(name: str, rules: Rules) -> str:
    if rules.is_subagent:
        return f"There is no function named '{name[:64]}': subagents have no functions of the application."
    known = sorted(rules.functions)
    listed = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    return f"There is no function named '{name[:64]}'. " + (
        f"Available functions: {listed}." if known else "No functions are available."
    )


def _repairs(name: str, history: Conversation, turn_id: str) -> int:
    """How many calls of a function in a row the server has answered itself in this turn."""
    count = 0
    for item in reversed(history.of_turn(turn_id)):
        if item.type == "function_call" and item.data["name"] == name:
            if not (item.private or {}).get("refused"):
                break
            count += 1
    return count


def _judge_output(
    finished: Sequence[Finished], rules: Rules, history: Conversation, turn_id: str
) -> tuple[str | None, str | None]:
    """A note that asks for another answer, or why the turn fails; both None for a good answer."""
    if rules.output_schema is None:
        return None, None
    texts = [output for output in finished if isinstance(output, MessageDone) and output.text]
    if any(output.refusal for output in texts):
        return None, None
    final = [output for output in texts if output.phase != "commentary"]
    if not final:
        return None, "The model's final answer is empty where a JSON document was requested."
    problem: str | None = None
    for output in final:
        problem = problem or output_problems(rules.output_schema, output.text)
    if problem is None:
        return None, None
    asked = sum(1 for item in history.of_turn(turn_id) if (item.private or {}).get("note"))
    if asked >= rules.output_repairs:
        return None, f"The model's final answer does not match the requested format. {problem}"
    return (
        f"Your answer does not match the required JSON format. {problem} Answer again with exactly one JSON "
        "document that matches the schema, and nothing else.",
        None,
    )


def functions_of(tools: Sequence[Any]) -> dict[str, FunctionTool]:
    """The function tools of a configuration, by name."""
    return {tool.name: tool for tool in tools if isinstance(tool, FunctionTool)}
