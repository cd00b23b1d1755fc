"""Sessions with subagents, written by hand as a server shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.inspect import Export, Thread

from .histories import Json, answer, creation, session, subagent, turn, user


def child(number: int = 1, **changes: Any) -> Json:
    """A subagent `sub_N` called `agent-N`."""
    return subagent(
        id=f"sub_{number}",
        name=f"agent-{number}",
        instructions=[{"type": "output_text", "text": f"Do part {number}."}],
        **changes,
    )


def created(number: int = 1, **changes: Any) -> Json:
    content = [{"type": "output_text", "text": f"Do part {number}."}]
    return creation(**{"id": f"cs_{number}", "content": content, **changes})


def work(number: int = 1, *, at: int = 10, status: str = "completed", **changes: Any) -> Json:
    """A turn of subagent `number` that began at second `at` and took five seconds."""
    name = f"sub_{number}"
    return {
        **turn(at, id=f"turn_{number}_{at}", agent_id=name, subagent_id=name, status=status),
        "usage": usage(100 * number),
        **({"completed_at": None, "usage": None} if status == "in_progress" else {}),
        **changes,
    }


def usage(tokens: int) -> Json:
    return {
        "input_tokens": tokens - 1,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens,
    }


def said(text: str, turn_id: str, **changes: Any) -> Json:
    return answer(text, id=f"msg_{turn_id}", turn_id=turn_id, **changes)


def thread(
    number: int, turns: tuple[Json, ...], items: Sequence[Mapping[str, Any]], **changes: Any
) -> Thread:
    return Thread(turns, tuple(items), child(number, **changes))


def message(sender: str, text: str, recipient: str = "agt_main", **changes: Any) -> Json:
    return {
        "id": f"am_{sender}",
        "turn_id": "turn_1",
        "type": "agent_message",
        "sender_agent_id": sender,
        "recipient_agent_id": recipient,
        "content": [{"type": "output_text", "text": text}],
        **changes,
    }


def coordination(kind: str, *recipients: str, **changes: Any) -> Json:
    """A call about subagents: wait, interrupt, close, resume or send."""
    item: Json = {
        "id": f"co_{kind}",
        "turn_id": "turn_1",
        "type": {"wait": "wait_for_subagents_call", "send": "send_subagent_input_call"}.get(
            kind, f"{kind}_subagent_call"
        ),
        "sender_agent_id": "agt_main",
        "status": "completed",
    }
    if kind == "wait":
        item["recipient_agent_ids"] = list(recipients)
    else:
        item["recipient_agent_id"] = recipients[0]
    if kind == "send":
        item["content"] = [{"type": "output_text", "text": "Go on."}]
    return {**item, **changes}


def crew(*items: Json, subagents: tuple[Thread, ...], turns: tuple[Json, ...] = (), **members: Any) -> Export:
    """A session whose main agent did `items` in turn 1, which lasted a minute."""
    long = turn(1, completed_at=1_760_000_061, usage=usage(7))
    return Export(
        members.pop("session", None) or session(usage=usage(1007)),
        turns=turns or (long,),
        items=(user("Hello.", id="msg_0"), *items),
        subagents=subagents,
        **members,
    )
