"""The rules of a session's life as a plain state, and how it moves.

A `World` is one complete prediction: turns, items, calls, accepted input, and the order of everything
that was said. Where the server's own progress races with a request, several worlds are possible;
`reachable` lists where the server may be by now, `settled` where it ends when nothing more is asked.
Turns, items and calls are numbers in the order in which they came to be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from .script import ASYNC, FUNCTIONS, Call, Plan, play

REPAIRED_CALLS = 3
ENDED = ("completed", "failed", "cancelled")


@dataclass(frozen=True)
class TurnState:
    """`answers`: finished model calls that told their usage; `uncounted`: one did not."""

    model: str
    status: str = "queued"
    error: str | None = None
    started: bool = False
    answers: int = 0
    uncounted: bool = False
    outputs: int = 0
    cut_off: bool = False


@dataclass(frozen=True)
class ItemState:
    """`kind` is the type, or the role of a message; an unfinished one has the beginning of `text`.

    answer: the number of items before the model's answer that it is part of.
    """

    turn: int
    kind: Literal["user", "assistant", "reasoning", "function_call", "function_call_output"]
    status: str
    text: str = ""
    phase: str | None = None
    call: int | None = None
    late: bool = False
    refusal: bool = False
    answer: int | None = None
    output_index: int | None = None


@dataclass(frozen=True)
class CallState:
    turn: int
    item: int
    name: str
    arguments: tuple[tuple[str, Any], ...]
    is_async: bool
    state: Literal["open", "answered", "applied", "dropped", "refused"] = "open"
    result: Result | None = None


@dataclass(frozen=True)
class Result:
    success: bool
    output: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Message:
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Cancel:
    pass


@dataclass(frozen=True)
class Answer:
    """A tool result. `call` is a known call, or None; `refused` is why its ids can never be right."""

    result: Result
    call: int | None
    refused: Literal["unknown", "wrong turn", "item", "turn"] | None = None


Input = Message | Cancel | Answer


@dataclass(frozen=True)
class Reply:
    """The status of a response, and of an error its code and the member it names."""

    status: int
    code: str | None = None
    param: str | None = None


@dataclass
class World:
    """See the module's text. `said` holds the events without deltas and parts."""

    model: str
    tools: tuple[str, ...]
    metadata: tuple[tuple[str, str], ...] = ()
    status: str = "idle"
    current: int | None = None
    running: bool = False
    plan: Plan | None = None
    plan_tools: tuple[str, ...] = ()
    opened: int = 0
    answer: int = 0
    deleted: bool = False
    torn: frozenset[str] = frozenset()
    accepted: tuple[str, ...] = ()
    turns: tuple[TurnState, ...] = ()
    items: tuple[ItemState, ...] = ()
    calls: tuple[CallState, ...] = ()
    inbox: tuple[tuple[str, Any], ...] = ()
    said: tuple[tuple[Any, ...], ...] = ()

    def copy(self) -> World:
        return replace(self)

    @property
    def key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, each.name) for each in fields(self))

    @property
    def open_calls(self) -> tuple[int, ...]:
        return tuple(n for n, call in enumerate(self.calls) if call.state == "open")

    @property
    def owed(self) -> tuple[int, ...]:
        """Open calls that the running turn waits for."""
        return tuple(
            n for n in self.open_calls if not self.calls[n].is_async and self.calls[n].turn == self.current
        )

    @property
    def cancelling(self) -> bool:
        return any(kind == "cancel" for kind, _ in self.inbox)

    # ---- requests

    def create(self, text: str) -> None:
        self.accepted = (text,)
        self.status = "in_progress"
        self._say("session", "created", self.open_calls)
        self._start_turn((text,))

    def post(self, batch: Sequence[Input]) -> Reply:
        """Admit a batch; on anything but 202 the world is not to be used any more."""
        if self.deleted:
            return Reply(404, "not_found_error")
        for index, event in enumerate(batch):
            refused = self._admit(event, f"events[{index}]")
            if refused is not None:
                return refused
        return Reply(202)

    def update(self, changes: dict[str, Any]) -> Reply:
        if self.deleted:
            return Reply(404, "not_found_error")
        self.model = changes.get("model", self.model)
        self.tools = changes.get("tools", self.tools)
        self.metadata = changes.get("metadata", self.metadata)
        return Reply(200)

    def delete(self) -> Reply | None:
        """None: the answer comes when the pending cancel has been applied."""
        if self.deleted:
            return Reply(200)
        if self.cancelling:
            return None
        if self.current is not None or self.inbox or self.open_calls:
            return Reply(409, "conflict_error")
        self.deleted = True
        return Reply(200)

    def _admit(self, event: Input, param: str) -> Reply | None:
        match event:
            case Message():
                self.accepted += event.texts
                if self.current is None:
                    self._start_turn(event.texts)
                else:
                    self.inbox += tuple(("message", text) for text in event.texts)
            case Cancel():
                if self.current is not None:
                    self.inbox += (("cancel", None),)
                elif self.open_calls:
                    self._drop(self.open_calls)
                    self._say("session", "idle", ())
            case Answer():
                return self._admit_answer(event, param)
        return None

    def _admit_answer(self, event: Answer, param: str) -> Reply | None:
        if event.refused is not None or event.call is None:
            where = "turn_id" if event.refused == "wrong turn" else "call_id"
            return Reply(400, "invalid_request_error", f"{param}.{where}")
        call = self.calls[event.call]
        conflict = Reply(409, "conflict_error", f"{param}.call_id")
        if call.state in ("dropped", "refused"):
            return conflict
        if call.state in ("answered", "applied"):
            return None if call.result == event.result else conflict
        if self.cancelling:
            return conflict
        self._set_call(event.call, state="answered", result=event.result)
        self.inbox += (("result", event.call),)
        if self.current is None:
            self._start_turn(())
        elif self.status == "requires_action" and not self.owed:
            self.status = "in_progress"
        return None

    # ---- progress

    def crash(self) -> None:
        """The process is gone; what was streamed and not finished is still listed as in progress."""
        self.running, self.plan, self.opened, self.answer, self.torn = False, None, 0, 0, frozenset()

    def moves(self, released: Collection[str]) -> Iterator[Callable[[World], None]]:
        """What the server may do next by itself."""
        if self.deleted:
            return
        if not self.running:
            status = None if self.current is None else self.turns[self.current].status
            input_counts = any(status != "waiting" or kind != "message" for kind, _ in self.inbox)
            if status in ("queued", "in_progress") or input_counts:
                yield World._claim
            return
        assert self.plan is not None
        if self.cancelling:
            yield World._break_off
        plan = self.plan
        if plan.gate is not None and plan.gate not in released and self.opened >= plan.gate_after:
            return
        yield World._open_text if self.opened < len(plan.texts) else World._finish_answer

    def _claim(self) -> None:
        if self.current is not None and self.turns[self.current].status == "in_progress":
            self._close_texts()
        self._boundary(None)

    def _open_text(self) -> None:
        assert self.plan is not None
        text = self.plan.texts[self.opened]
        kind: Any = "assistant" if text.kind == "message" else "reasoning"
        self._output(kind, "in_progress", text=text.text)
        self.opened += 1

    def _finish_answer(self) -> None:
        plan, current = self.plan, self.current
        assert plan is not None
        assert current is not None
        if plan.end is None:
            self._commit(plan, current)
        elif plan.end == "cut":
            self.torn |= {self.turns[current].model}
            self._break_off()
        else:
            self._close_texts()
            self._boundary(plan.end)

    def _break_off(self) -> None:
        """The answer ends early: by a cancel, or by a fault that is tried again."""
        assert self.current is not None
        self._set_turn(self.current, cut_off=True)
        self._close_texts()
        self._boundary(None)

    def _commit(self, plan: Plan, turn: int) -> None:
        for number, item in enumerate(self.items):
            if item.turn == turn and item.status == "in_progress" and item.kind in ("assistant", "reasoning"):
                phase = "commentary" if plan.calls else "final_answer"
                self._set_item(number, status="completed", phase=phase if item.kind == "assistant" else None)
                self._say("done", number, "completed")
        for call in plan.calls:
            self._make_call(turn, call)
        state = self.turns[turn]
        self._set_turn(
            turn, answers=state.answers + plan.counts, uncounted=state.uncounted or not plan.counts
        )
        self._boundary(None if plan.calls else "completed")

    def _make_call(self, turn: int, call: Call) -> None:
        known = call.name in self.plan_tools
        repairs = self._repairs(turn, call.name, self.answer)
        refused = not known or (not call.valid and repairs < REPAIRED_CALLS)
        is_async = call.name in ASYNC and known and not refused
        number = len(self.calls)
        item = self._output("function_call", "failed" if refused else "in_progress", call=number, quiet=True)
        made = CallState(turn, item, call.name, call.arguments, is_async, "refused" if refused else "open")
        self.calls += (made,)
        if refused:
            self._say("done", item, "failed")
            self._add("function_call_output", turn, "failed", call=number, refusal=True)
            return
        self._say("added", item)
        if is_async:
            self._set_item(item, status="completed")
            self._say("done", item, "completed")

    def _repairs(self, turn: int, name: str, answer: int) -> int:
        """Calls of the function in a row, before this answer, that the server has answered itself."""
        count = 0
        for call in reversed(self.calls):
            if call.turn == turn and call.name == name and self._answer_of(call) < answer:
                if call.state != "refused":
                    break
                count += 1
        return count

    # ---- boundaries

    def _boundary(self, ending: str | None) -> None:
        """Cancels first, then results, then messages. `ending`: "completed" or an error code."""
        self.running, self.plan, self.opened, self.answer = False, None, 0, 0
        cancels = [n for n, (kind, _) in enumerate(self.inbox) if kind == "cancel"]
        if cancels:
            before, self.inbox = self.inbox[: cancels[-1] + 1], self.inbox[cancels[-1] + 1 :]
            assert self.current is not None
            self._cancel(before, self.current)
            self._next_turn()
        elif self.current is None or ending is not None:
            if self.current is not None and ending is not None:
                self._finish(self.current, ending)
            self._next_turn()
        else:
            self._continue()

    def _continue(self) -> None:
        assert self.current is not None
        results = [row for row in self.inbox if row[0] == "result"]
        self.inbox = tuple(row for row in self.inbox if row[0] != "result")
        self._apply(results, self.current)
        if self.owed:
            if self.status != "requires_action" or results:
                self.status = "requires_action"
                self._say("session", "requires_action", self.open_calls)
            self._set_turn(self.current, status="waiting")
            return
        self._apply(self.inbox, self.current)
        self.inbox = ()
        self._run(self.current)

    def _run(self, turn: int) -> None:
        state = self.turns[turn]
        if state.status == "waiting":
            self.status = "in_progress"
            self._say("session", "in_progress", self.open_calls)
            self._set_turn(turn, status="in_progress")
        elif state.status == "queued":
            self._set_turn(turn, status="in_progress", started=True)
            self._say("turn", "in_progress", turn)
        self.running, self.plan_tools, self.answer = True, self.tools, len(self.items)
        self.plan = play(*self._context(turn), state.model, state.model in self.torn)

    def _next_turn(self) -> None:
        if not self.inbox:
            self.status = "idle"
            self._say("session", "idle", self.open_calls)
            return
        rows, self.inbox = self.inbox, ()
        turn = self._new_turn()
        self._apply([row for row in rows if row[0] == "result"], turn)
        self._apply([row for row in rows if row[0] == "message"], turn)
        self.status = "in_progress"
        said = [what[1] for what in self.said if what[0] == "session"]
        if said[-1] != "in_progress":
            self._say("session", "in_progress", self.open_calls)
        self._run(turn)

    def _cancel(self, rows: Sequence[tuple[str, Any]], turn: int) -> None:
        """Nothing is owed any more; what was accepted before belongs to the cancelled turn."""
        self._apply([row for row in rows if row[0] == "result"], turn)
        self._apply([row for row in rows if row[0] == "message"], turn)
        self._drop(self.open_calls)
        self._end(turn, "cancelled")

    def _finish(self, turn: int, ending: str) -> None:
        if ending == "completed":
            self._end(turn, "completed")
            return
        self._drop(self.owed)
        self._say("error", ending)
        self._end(turn, "failed", ending)

    def _end(self, turn: int, status: str, error: str | None = None) -> None:
        self._set_turn(turn, status=status, error=error)
        self.current = None
        self._say("turn", status, turn)

    # ---- what the model sees

    def _context(self, running: int) -> tuple[str, str, int]:
        """What the context ends with, the newest user message, and the answers since."""
        newest, user, seen = "", "", set[tuple[int, int]]()
        last = {item.turn: item.answer for item in self.items if item.answer is not None}
        for item in self.items:
            if item.kind == "user":
                newest, user, seen = "user", item.text, set()
            elif item.late:
                newest = "note"
            elif item.answer is not None and item.kind != "reasoning":
                key = (item.turn, item.answer)
                torn = item.status == "incomplete" and item.kind == "assistant"
                if torn and (item.turn == running or last[item.turn] != item.answer):
                    continue
                if key not in seen:
                    seen.add(key)
                    newest = "result" if self._has_calls(key) else "assistant"
        return newest, user, len(seen)

    def _has_calls(self, answer: tuple[int, int]) -> bool:
        return any(item.kind == "function_call" and (item.turn, item.answer) == answer for item in self.items)

    def _answer_of(self, call: CallState) -> int:
        answer = self.items[call.item].answer
        assert answer is not None
        return answer

    # ---- writing

    def _start_turn(self, texts: Iterable[str]) -> None:
        turn = self._new_turn()
        self._apply([("message", text) for text in texts], turn)
        self.status = "in_progress"
        self._say("session", "in_progress", self.open_calls)

    def _new_turn(self) -> int:
        self.current = len(self.turns)
        self.turns += (TurnState(self.model),)
        self._say("turn", "created", self.current)
        return self.current

    def _apply(self, rows: Iterable[tuple[str, Any]], turn: int) -> None:
        for kind, what in rows:
            if kind == "message":
                self._add("user", turn, "completed", text=what)
            elif kind == "result":
                call = self.calls[what]
                assert call.result is not None
                status = "completed" if call.result.success else "failed"
                self._add("function_call_output", turn, status, call=what, late=call.is_async)
                self._set_call(what, state="applied")
                if not call.is_async:
                    self._set_item(call.item, status=status)
                    self._say("done", call.item, status)

    def _drop(self, calls: Iterable[int]) -> None:
        for number in calls:
            self._set_call(number, state="dropped")
            item = self.calls[number].item
            if self.items[item].status == "in_progress":
                self._set_item(item, status="incomplete")
                self._say("done", item, "incomplete")

    def _close_texts(self) -> None:
        for number, item in enumerate(self.items):
            if (
                item.turn == self.current
                and item.status == "in_progress"
                and item.kind in ("assistant", "reasoning")
            ):
                self._set_item(number, status="incomplete")
                self._say("done", number, "incomplete")

    def _output(self, kind: Any, status: str, *, quiet: bool = False, **more: Any) -> int:
        assert self.current is not None
        turn = self.turns[self.current]
        self._set_turn(self.current, outputs=turn.outputs + 1)
        more = {"answer": self.answer, "output_index": turn.outputs, **more}
        return self._add(kind, self.current, status, quiet=quiet, **more)

    def _add(self, kind: Any, turn: int, status: str, *, quiet: bool = False, **more: Any) -> int:
        self.items += (ItemState(turn, kind, status, **more),)
        number = len(self.items) - 1
        if not quiet:
            self._say("added", number)
        return number

    def _set_turn(self, number: int, **changes: Any) -> None:
        changed = replace(self.turns[number], **changes)
        self.turns = (*self.turns[:number], changed, *self.turns[number + 1 :])

    def _set_item(self, number: int, **changes: Any) -> None:
        changed = replace(self.items[number], **changes)
        self.items = (*self.items[:number], changed, *self.items[number + 1 :])

    def _set_call(self, number: int, **changes: Any) -> None:
        changed = replace(self.calls[number], **changes)
        self.calls = (*self.calls[:number], changed, *self.calls[number + 1 :])

    def _say(self, *what: Any) -> None:
        if what[0] in ("added", "done"):
            what += (self.items[what[1]].output_index,)
        self.said += (what,)


def reachable(worlds: Iterable[World], released: Collection[str]) -> list[World]:
    """Every world that the server may be in by now."""
    return _walk(worlds, released, only_settled=False)


def settled(worlds: Iterable[World], released: Collection[str]) -> list[World]:
    """The worlds in which the server comes to rest: idle, waiting, or held by a gate."""
    return _walk(worlds, released, only_settled=True)


def _walk(worlds: Iterable[World], released: Collection[str], *, only_settled: bool) -> list[World]:
    pending = list(worlds)
    seen: dict[tuple[Any, ...], World] = {world.key: world for world in pending}
    found = []
    while pending:
        world = pending.pop()
        moves = list(world.moves(released))
        if not moves or not only_settled:
            found.append(world)
        for move in moves:
            after = world.copy()
            move(after)
            if after.key not in seen:
                seen[after.key] = after
                pending.append(after)
    return found


assert set(ASYNC) <= set(FUNCTIONS)
