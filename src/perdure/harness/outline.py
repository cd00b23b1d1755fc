"""A history cut down by rule: what is shown where no model wrote a summary."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.harness.cuts import is_request
from perdure.harness.entries import arguments_text
from perdure.harness.excerpts import clip
from perdure.harness.tokens import text_of_size, text_tokens
from perdure.store.coordination import COORDINATION_ITEMS
from perdure.store.rows import ItemRow

LINE = 240
"""Characters of one message, call or result."""


def outline(rows: Sequence[ItemRow], before: str, tokens: int) -> str:
    """One line for each item, the newest ones within so many tokens.

    Args:
        before: an older summary; it keeps at most half of the room.
    """
    head = before
    if text_tokens(before) > tokens // 2:
        head = before.encode("utf-8", "replace")[: text_of_size(tokens // 2)].decode("utf-8", "ignore") + " …"
    left = tokens - (text_tokens(head) if head else 0)
    lines: list[str] = []
    skipped = 0
    for row in reversed(rows):
        line = _line(row)
        if line is None:
            continue
        left -= text_tokens(line)
        if left < 0 or skipped:
            skipped += 1
        else:
            lines.append(line)
    if skipped:
        lines.append(f"(… {skipped} older messages, calls and results are left out …)")
    return "\n".join([*([head] if head else []), *reversed(lines)])


def _line(row: ItemRow) -> str | None:
    match row.type:
        case "message":
            text = clip(" ".join(part["text"] for part in row.data["content"] if "text" in part), LINE)
            if not text:
                return None
            return f'The user said: "{text}"' if is_request(row) else f'You said: "{text}"'
        case "function_call":
            return f"You called {row.data['name']}({clip(arguments_text(row.data['arguments']), LINE)})"
        case "function_call_output":
            failed = row.status == "failed"
            content = row.data["error"] if failed else row.data["output"]
            if isinstance(content, list):
                content = " ".join(part.get("text", "[image]") for part in content)
            text = clip(content or "", LINE)
            return f'The function {"failed" if failed else "returned"}: "{text}"'
        case "agent_message":
            text = clip(" ".join(part["text"] for part in row.data["content"]), LINE)
            return f'{"You were told" if is_request(row) else "A subagent reported"}: "{text}"'
        case kind if kind in COORDINATION_ITEMS:
            call = (row.private or {})["call"]
            return f"You called {call['name']}({clip(arguments_text(call['arguments']), LINE)})"
    return None
