"""Calls that a model wrote as text: they become refused calls, so that the model makes them properly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.models.call_markup import call_meant, is_call_markup
from perdure.models.messages import CallDone, MessageDone, ReasoningDone
from perdure.store.rows import ItemRow
from perdure.store.steps import Call, Text
from perdure.wire.tools import FunctionTool

UNNAMED = "unknown_function"
REFUSAL = (
    "This call was not made: you wrote it as plain text, in the markup of a chat template. Make it again as "
    "a real function call. If you only meant to write about such markup, put it in a code block. {available}"
)


def read_leak(
    finished: Sequence[MessageDone | ReasoningDone | CallDone],
    opened: Mapping[int, ItemRow],
    functions: Mapping[str, FunctionTool],
) -> tuple[Text | Call, ...] | None:
    """What is recorded of an answer in which a call stands as text; None when there is none in it.

    Texts and summaries that were shown while they streamed are closed as incomplete, others are not
    listed. A model that was offered no functions cannot have meant to call one.
    """
    texts = [output for output in finished if isinstance(output, MessageDone)]
    leaked = next((output for output in texts if functions and is_call_markup(output.text)), None)
    if leaked is None:
        return None
    outputs: list[Text | Call] = []
    for output in finished:
        row = opened.get(output.output)
        match output:
            case MessageDone() if row is not None:
                content = [{"type": "output_text", "text": output.text}]
                data: dict[str, Any] = {"role": "assistant", "content": content, "phase": "commentary"}
                outputs.append(Text("message", data, row, {"leaked": True}, "incomplete"))
            case ReasoningDone() if row is not None:
                summary = [{"type": "summary_text", "text": text} for text in output.summary]
                outputs.append(Text("reasoning", {"summary": summary}, row, None, "incomplete"))
    name, arguments = call_meant(leaked.text)
    known = ", ".join(sorted(functions)[:20])
    refusal = REFUSAL.format(available=f"Available functions: {known}.")
    private = {"refused": True, "leaked": True}
    outputs.append(Call((name or UNNAMED)[:256], arguments, False, refusal, private))
    return tuple(outputs)
