"""What an agent does with subagents: each call is made whole, in the transaction of its step.

    create ──▶ active ──close──▶ closed
                 ▲                  │
                 ╰─────resume───────╯        running while it has an unfinished turn, idle otherwise

Nothing here waits for a subagent: its turn is rows, and rows are ended here. A crash before the commit leaves
nothing of the call, and one behind it finds it made. What cannot be done is a failed call that says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from perdure.store.accept import add_user_item
from perdure.store.endings import add_agent_input, interrupt
from perdure.store.locked import LockedSession
from perdure.store.policy import Policy
from perdure.store.reports import outcome_of
from perdure.store.rows import ItemRow, SubagentRow, TurnRow
from perdure.store.waits import begin_wait, states
from perdure.wire import events as wire
from perdure.wire.ids import new_id
from perdure.wire.jsontext import dumps

Tool = Literal[
    "create_subagent",
    "send_subagent_input",
    "wait_for_subagents",
    "interrupt_subagent",
    "resume_subagent",
    "close_subagent",
]
ITEM_OF: Mapping[Tool, str] = {
    "create_subagent": "create_subagent_call",
    "send_subagent_input": "send_subagent_input_call",
    "wait_for_subagents": "wait_for_subagents_call",
    "interrupt_subagent": "interrupt_subagent_call",
    "resume_subagent": "resume_subagent_call",
    "close_subagent": "close_subagent_call",
}
COORDINATION_ITEMS = frozenset(ITEM_OF.values())
NAME_LENGTH = 64
MOST_NAMED = 100


@dataclass(frozen=True, slots=True)
class Coordination:
    """A call that concerns subagents, as the model made it.

    `refusal` is why it is not made; `counts` is False of one that a ceiling refused.
    """

    tool: Tool
    arguments: Mapping[str, Any]
    private: Mapping[str, Any] | None = None
    refusal: str | None = None
    counts: bool = True


class _Refused(Exception):
    """The call cannot be made; the text is for the model."""


def write_coordination(
    session: LockedSession, turn: TurnRow, step: int, call: Coordination, policy: Policy
) -> TurnRow:
    """Make a call and record it with its result; a wait is over at one of the next boundaries."""
    made = _Made(session, turn, call, policy)
    private: dict[str, Any] = {
        **(call.private or {}),
        "call": {"id": new_id("call"), "name": call.tool, "arguments": dict(call.arguments)},
    }
    item = session.insert_item(
        turn,
        ITEM_OF[call.tool],
        made.data(),
        status="in_progress",
        output_index=turn.outputs,
        step=step,
        private=private,
    )
    session.say_item_added(item)
    try:
        if call.refusal is not None:
            raise _Refused(call.refusal)
        result = made.perform(item)
    except _Refused as refused:
        item = session.update_item(item, status="failed", private={**private, "result": str(refused)})
    else:
        if result is None:
            return session.update_turn(turn, outputs=turn.outputs + 1)
        text = dumps(result).decode()
        item = session.update_item(
            item, status="completed", data=made.data(), private={**private, "result": text}
        )
    session.say_item_done(item)
    return session.update_turn(turn, outputs=turn.outputs + 1)


class _Made:
    """One call under way."""

    def __init__(self, session: LockedSession, turn: TurnRow, call: Coordination, policy: Policy) -> None:
        self._session = session
        self._turn = turn
        self._call = call
        self._policy = policy
        self._children = session.children(turn.agent_id)

    def data(self) -> dict[str, Any]:
        """The item as the protocol shows it; recipients by id where they are known."""
        call, sender = self._call, self._turn.agent_id
        match call.tool:
            case "create_subagent":
                settings = self._session.config(self._turn.config_version).settings
                return {
                    "agent_id": sender,
                    "content": self._content("task"),
                    "model": settings.model,
                    "reasoning_effort": settings.reasoning.effort,
                }
            case "wait_for_subagents":
                recipients = [self._shown(each) for each in self._waited_for()]
                return {"sender_agent_id": sender, "recipient_agent_ids": recipients}
            case "send_subagent_input":
                recipient = self._shown(call.arguments.get("agent_id"))
                content = self._content("input")
                return {"sender_agent_id": sender, "recipient_agent_id": recipient, "content": content}
            case _:
                recipient = self._shown(call.arguments.get("agent_id"))
                return {"sender_agent_id": sender, "recipient_agent_id": recipient}

    def perform(self, item: ItemRow) -> dict[str, Any] | None:
        """What came of the call; None of a wait, which is not over yet."""
        match self._call.tool:
            case "create_subagent":
                return self._create()
            case "send_subagent_input":
                return self._send(self._target())
            case "wait_for_subagents":
                self._wait(item)
                return None
            case "interrupt_subagent":
                return self._interrupt(self._target())
            case "resume_subagent":
                return self._resume(self._target())
            case "close_subagent":
                return self._close(self._target())

    # ---- the six calls

    def _create(self) -> dict[str, Any]:
        session, policy = self._session, self._policy
        above = session.subagent(self._turn.agent_id)
        depth = 1 if above is None else above.depth + 1
        if depth > policy.depth:
            raise _Refused(
                "You are a subagent and cannot create subagents of your own. Do the work yourself."
            )
        if session.row["subagents"] >= policy.most:
            raise _Refused(
                f"This session has had {policy.most} subagents, which is the most there may be. Give the "
                "work to one of them (send_subagent_input), or do it yourself."
            )
        self._check_room()
        name = self._name()
        subagent = session.insert_subagent(self._turn.agent_id, depth, name, self._content("task"))
        turn = session.insert_turn(subagent)
        task = [{"type": "input_text", "text": str(self._call.arguments["task"])}]
        add_user_item(session, turn, {"content": task})
        session.say_subagent(wire.SubagentCreated, subagent)
        return {"agent_id": subagent.id, "name": name, "status": "running"}

    def _send(self, target: SubagentRow) -> dict[str, Any]:
        if target.status == "closed":
            raise _Refused(f"{_called(target)} is closed. Resume it first (resume_subagent).")
        payload = {"sender": self._turn.agent_id, "content": self._content("input")}
        if target.turn_id is not None:
            self._session.queue_input("message", payload, target.id)
            return {"agent_id": target.id, "status": "running", "delivery": "with its next step"}
        self._check_room()
        add_agent_input(self._session, self._session.insert_turn(target), payload)
        return {"agent_id": target.id, "status": "running", "delivery": "now, as a new turn"}

    def _wait(self, item: ItemRow) -> None:
        arguments, policy = self._call.arguments, self._policy
        named = self._waited_for()
        if not named:
            raise _Refused("None of your subagents is running: there is nothing to wait for.")
        targets = list(dict.fromkeys(self._find(each).id for each in named))
        seconds, longest = arguments.get("timeout_s"), policy.longest_wait_us
        # A number of JSON may be too large for anything but a comparison.
        wait_us = min(policy.wait_us, longest) if seconds is None else int(min(seconds, longest / 1e6) * 1e6)
        for_any = arguments.get("until") == "any"
        begin_wait(self._session, self._turn, item, targets, for_any, wait_us)

    def _interrupt(self, target: SubagentRow) -> dict[str, Any]:
        ended = self._stop(target)
        state = states(self._session, [target.id])[0]
        if ended is None:
            return {**state, "note": "It was not running: nothing was interrupted."}
        return {**state, **ended}

    def _resume(self, target: SubagentRow) -> dict[str, Any]:
        if target.status == "active":
            return {**states(self._session, [target.id])[0], "note": "It was not closed."}
        target = self._session.update_subagent(target, status="active", closed_us=None)
        self._session.say_subagent(wire.SubagentActive, target)
        note = "It remembers its work; give it something to do with send_subagent_input."
        return {**states(self._session, [target.id])[0], "note": note}

    def _close(self, target: SubagentRow) -> dict[str, Any]:
        ended = self._stop(target)
        self._close_all(target)
        state = states(self._session, [target.id])[0]
        return state if ended is None else {**state, **ended}

    # ---- parts of them

    def _waited_for(self) -> list[Any]:
        """The subagents of a wait as the model named them; those that run if it named none."""
        named = self._call.arguments.get("agent_ids")
        if isinstance(named, list) and named:
            # More are refused; what is listed of them has a bound all the same.
            return named[:MOST_NAMED]
        return [each.id for each in self._children if each.turn_id is not None]

    def _stop(self, target: SubagentRow) -> dict[str, Any] | None:
        """End the turn of a subagent; what it came to is told with the call, and not again as a report."""
        turn = interrupt(self._session, target, is_reported=False)
        if turn is None:
            return None
        outcome = outcome_of(self._session, turn)
        return {"last_text": outcome.text, "tokens_used": outcome.tokens}

    def _close_all(self, target: SubagentRow) -> None:
        for child in self._session.children(target.id):
            self._close_all(child)
        found = self._session.subagent(target.id)
        assert found is not None
        if found.status == "active":
            found = self._session.update_subagent(found, status="closed", closed_us=self._session.tx.now_us)
            self._session.say_subagent(wire.SubagentClosed, found)

    def _check_room(self) -> None:
        """No more subagents run at once than the session's agent may have."""
        limit = self._session.config().settings.multi_agent.max_concurrent_subagents or 0
        running = self._session.row["subagents_running"]
        if running >= limit:
            raise _Refused(
                f"{running} subagents are running, and no more than {limit} may run at once. Wait for one "
                "to end (wait_for_subagents), interrupt one, or do the work yourself; then try again."
            )

    def _name(self) -> str:
        taken = {each.name for each in self._session.subagents()}
        wanted = " ".join(str(self._call.arguments.get("name") or "").split())[: NAME_LENGTH - 5].strip()
        base = wanted or f"agent-{len(taken) + 1}"
        number, name = 1, base
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        return name

    def _target(self) -> SubagentRow:
        return self._find(self._call.arguments.get("agent_id"))

    def _find(self, wanted: Any) -> SubagentRow:
        found = self._look_up(wanted)
        if found is not None:
            return found
        known = ", ".join(f"{each.id} ('{each.name}', {each.state})" for each in self._children[-20:])
        raise _Refused(
            f"You have no subagent '{str(wanted)[:NAME_LENGTH]}'. "
            + (f"Yours are: {known}." if known else "")
        )

    def _look_up(self, wanted: Any) -> SubagentRow | None:
        """A subagent of this agent by its id or else its name, as it is now."""
        for each in self._children:
            if wanted == each.id:
                return self._session.subagent(each.id)
        named = [each for each in self._children if wanted == each.name]
        return self._session.subagent(named[-1].id) if named else None

    def _shown(self, wanted: Any) -> str:
        found = self._look_up(wanted)
        return str(wanted)[:NAME_LENGTH] if found is None else found.id

    def _content(self, field: str) -> list[dict[str, str]]:
        text = self._call.arguments.get(field)
        return [{"type": "output_text", "text": text}] if isinstance(text, str) else []


def _called(subagent: SubagentRow) -> str:
    return f"'{subagent.name}' ({subagent.id})"


def refused(call: Coordination, why: str) -> Coordination:
    """The call as one that a ceiling refuses: it is listed, and not made."""
    return replace(call, refusal=why, counts=False)


def named_to_end(outputs: Sequence[object]) -> set[str]:
    """The subagents whose turns the calls among a step's outputs end, as the model named them."""
    ending = ("interrupt_subagent", "close_subagent")
    calls = [output for output in outputs if isinstance(output, Coordination) and not output.refusal]
    return {str(call.arguments.get("agent_id")) for call in calls if call.tool in ending}
