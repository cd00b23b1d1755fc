"""Traces of the loop as OpenTelemetry spans. Loaded only where traces are asked for.

    invoke_agent ─ chat, chat …            a stretch in which an agent works in this process
       ╰─ invoke_agent subagent ─ chat …   that of a subagent, which the agent above set to work

A stretch ends when the agent waits or rests; waiting is not part of it. A turn that goes on later, or in
another process, has a further stretch. All stretches of a turn of the root are in one trace, whose id comes
from the turn's id, as does that of the first one's span: so each later one has a link to one before it,
and nothing has to be stored for that. A subagent's stretch is below the one of the agent that set it to
work, where this process knows it; elsewhere it is in a trace of its own that points to that agent's turn.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec

from opentelemetry.context import Context
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from perdure.config import telemetry as names
from perdure.config.telemetry import Endpoint
from perdure.harness.call_span import CallSpan, call_attributes, usage_attributes
from perdure.harness.spending import CallRecord
from perdure.harness.tracing import Tracing
from perdure.store.boundary import Boundary
from perdure.store.rows import TurnRow
from perdure.wire.usage import TokenUsage

log = logging.getLogger(__name__)
P = ParamSpec("P")

KEPT = 4096
"""So many agents whose stretches are over are remembered, for those that follow."""


class TurnIds(RandomIdGenerator):
    """Random ids, but for the next span if they are given."""

    def __init__(self) -> None:
        self.trace_id: int | None = None
        self.span_id: int | None = None

    def generate_trace_id(self) -> int:
        given, self.trace_id = self.trace_id, None
        return super().generate_trace_id() if given is None else given

    def generate_span_id(self) -> int:
        given, self.span_id = self.span_id, None
        return super().generate_span_id() if given is None else given


def trace_id_of(turn_id: str) -> int:
    """The trace of a turn of a root agent, the same in every process."""
    return _number("trace", turn_id, 16)


def first_span_of(turn_id: str) -> SpanContext:
    """The first stretch of a turn of a root agent, wherever it was."""
    span_id = _number("span", turn_id, 8)
    return SpanContext(
        trace_id_of(turn_id), span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )


def _number(kind: str, turn_id: str, size: int) -> int:
    # Never 0, which stands for no id.
    return int.from_bytes(hashlib.sha256(f"{kind} {turn_id}".encode()).digest()[:size]) or 1


@dataclass(slots=True)
class Stretch:
    """A span that is not ended yet. `over_ns` is set when the agent works no more, `status` with its turn."""

    turn_id: str
    span: Span
    known_calls: frozenset[str]
    over_ns: int | None = None
    outcome: str = "broken_off"
    status: str | None = None
    code: str | None = None
    model_calls: int = 0
    usage: TokenUsage | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """The last turn of an agent that this process has seen.

    Args:
        span: its latest stretch here, if there was one; `above`: what that one was set to work by.
    """

    turn_id: str
    span: SpanContext | None = None
    above: SpanContext | None = None


def _harmless(method: Callable[P, None]) -> Callable[P, None]:
    """A fault in a trace is told in the log and disturbs nobody."""

    @wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except Exception:
            log.exception("a span was not recorded")

    return guarded


class Spans(Tracing):
    """Makes spans. Used by one event loop.

    Args:
        ids: those of the provider that `tracer` belongs to.
        endpoints: what spans say of each provider, by its configured name.
        close: hands over what was recorded, for at most so many seconds.
    """

    def __init__(
        self,
        tracer: Tracer,
        ids: TurnIds,
        endpoints: Mapping[str, Endpoint],
        close: Callable[[float], Any],
    ) -> None:
        self._tracer = tracer
        self._ids = ids
        self._endpoints = endpoints
        self._close = close
        self._open: dict[str, dict[str, Stretch]] = {}
        self._known: OrderedDict[tuple[str, str], Known] = OrderedDict()
        self._recovered: OrderedDict[str, None] = OrderedDict()

    # ---- what the loop tells

    @_harmless
    def claimed(self, boundary: Boundary) -> None:
        if boundary.turn is not None:
            place = (boundary.lease.session_id, boundary.agent_id)
            known = self._known.get(place)
            if known is None or known.turn_id != boundary.turn.id:
                self._know(place, Known(boundary.turn.id))

    @_harmless
    def works(self, boundary: Boundary, above: str | None) -> None:
        turn = boundary.turn
        assert turn is not None
        stretch = self._stretch(turn.session_id, turn.agent_id)
        if stretch is not None:
            if stretch.turn_id == turn.id and stretch.over_ns is None:
                return
            self._finish(turn.session_id, turn.agent_id)
        self._begin(boundary, turn, above)

    def calls(self, turn: TurnRow, call: CallRecord, step: int | None) -> AbstractContextManager[None]:
        return CallSpan(lambda: self._begin_call(turn, call, step), call, lambda: self._count(turn, call))

    @_harmless
    def committed(self, turn: TurnRow, step: int, boundary: Boundary) -> None:
        stretch = self._stretch(turn.session_id, turn.agent_id)
        if stretch is None or stretch.turn_id != turn.id:
            return
        for item in boundary.items:
            if item.step != step or item.turn_id != turn.id or not item.type.endswith("_call"):
                continue
            is_function = item.type == "function_call"
            name = item.data.get("name") if is_function else item.type.removesuffix("_call")
            said: dict[str, Any] = {
                names.TOOL_TYPE: "function" if is_function else "extension",
                names.TOOL_CALL_ID: item.data.get("call_id") or item.id,
                names.STEP: step,
                names.OUTCOME: _outcome_of(item.status, is_function=is_function),
            }
            if not is_function or name in stretch.known_calls:
                # Any other name is a text of the model.
                said[names.TOOL_NAME] = name
            stretch.span.add_event(names.TOOL_CALL, said)

    @_harmless
    def rests(self, session_id: str, agent_id: str, boundary: Boundary | None) -> None:
        stretch = self._stretch(session_id, agent_id)
        if stretch is None:
            return
        if stretch.over_ns is None:
            stretch.over_ns = time.time_ns()
            if boundary is not None:
                stretch.outcome = "handed_back" if boundary.state == "run" else "waiting"
        turn = None if boundary is None else boundary.turn
        if stretch.status is not None or turn is None or turn.status == "waiting":
            self._finish(session_id, agent_id)
        # Else others may be about to end the turn, and the span is to say so.

    @_harmless
    def left(self, session_id: str) -> None:
        for agent_id in tuple(self._open.get(session_id, ())):
            self._finish(session_id, agent_id)

    @_harmless
    def ended(self, turn: TurnRow) -> None:
        self._recovered.pop(turn.id, None)
        code = None if turn.error is None else turn.error["code"]
        stretch = self._stretch(turn.session_id, turn.agent_id)
        is_open = stretch is not None and stretch.turn_id == turn.id
        if stretch is None or not is_open:
            # It waited: nobody works on it, and its end is all there is to show.
            stretch = Stretch(turn.id, self._start(turn, {}, None, names.INVOKE_AGENT), frozenset())
        stretch.status, stretch.code = turn.status, code
        stretch.span.add_event(names.TURN_ENDED, {names.OUTCOME: turn.status})
        if not is_open:
            _end(stretch)
        elif stretch.over_ns is not None:
            self._finish(turn.session_id, turn.agent_id)
        else:
            # Its last step is on its way back from the transaction.
            stretch.over_ns = time.time_ns()

    @_harmless
    def recovered(self, session_id: str, turn_id: str) -> None:
        self._recovered[turn_id] = None
        while len(self._recovered) > KEPT:
            self._recovered.popitem(last=False)

    async def close(self, seconds: float) -> None:
        for session_id in tuple(self._open):
            self.left(session_id)
        await self._close(seconds)

    # ---- stretches

    def _stretch(self, session_id: str, agent_id: str) -> Stretch | None:
        return self._open.get(session_id, {}).get(agent_id)

    def _begin(self, boundary: Boundary, turn: TurnRow, above: str | None) -> None:
        agent = boundary.config.agent
        said: dict[str, Any] = {names.REQUEST_MODEL: boundary.turn_config.settings.model}
        name = f"{names.INVOKE_AGENT} subagent"
        if boundary.subagent is None:
            name = names.INVOKE_AGENT
            if agent.name:
                said[names.AGENT_NAME] = agent.name
                name = f"{names.INVOKE_AGENT} {agent.name}"
        elif above is not None:
            said[names.PARENT_AGENT_ID] = above
        span = self._start(turn, said, above, name)
        if turn.id in self._recovered:
            del self._recovered[turn.id]
            span.set_attribute(names.RECOVERED, True)
            span.add_event(names.TURN_RECOVERED)
        tools = boundary.config.settings.tools if boundary.subagent is None else ()
        known = frozenset(tool.name for tool in tools if tool.type == "function")
        self._open.setdefault(turn.session_id, {})[turn.agent_id] = Stretch(turn.id, span, known)

    def _start(self, turn: TurnRow, said: dict[str, Any], above: str | None, name: str) -> Span:
        """A span for work on a turn, in the place where the module says that it belongs."""
        place = (turn.session_id, turn.agent_id)
        known = self._known.get(place)
        if known is not None and known.turn_id != turn.id:
            known = None
        links, set_by = [], None if known is None else known.above
        if known is not None and known.span is not None:
            links.append(Link(known.span))
        if turn.subagent_id is None:
            self._ids.trace_id = trace_id_of(turn.id)
            if not links and turn.model_calls == 0:
                self._ids.span_id = first_span_of(turn.id).span_id
            elif not links:
                links.append(Link(first_span_of(turn.id)))
        elif set_by is None and not links and above is not None:
            over = self._known.get((turn.session_id, above))
            if over is not None and over.span is not None:
                set_by = over.span
            elif over is not None:
                links.append(Link(first_span_of(over.turn_id)))
        if turn.subagent_id is not None and set_by is None:
            self._ids.trace_id = trace_id_of(turn.id)
        try:
            span = self._tracer.start_span(
                name,
                # Never what happens to be current: that is the request of whoever woke the session.
                context=_below(set_by),
                kind=SpanKind.INTERNAL,
                attributes=_who(turn) | said,
                links=links,
            )
        finally:
            self._ids.trace_id = self._ids.span_id = None
        self._know(place, Known(turn.id, span.get_span_context(), set_by))
        return span

    def _finish(self, session_id: str, agent_id: str) -> None:
        stretches = self._open[session_id]
        stretch = stretches.pop(agent_id)
        if not stretches:
            del self._open[session_id]
        _end(stretch)

    def _know(self, place: tuple[str, str], known: Known) -> None:
        self._known[place] = known
        self._known.move_to_end(place)
        while len(self._known) > KEPT:
            self._known.popitem(last=False)

    # ---- model calls

    def _begin_call(self, turn: TurnRow, call: CallRecord, step: int | None) -> Span:
        known = self._known.get((turn.session_id, turn.agent_id))
        parent = known.span if known is not None and known.turn_id == turn.id else None
        endpoint = self._endpoints.get(call.resolved.provider) or Endpoint(call.resolved.provider, None, None)
        said = _who(turn) | call_attributes(call, endpoint)
        if step is not None:
            said[names.STEP] = step
        return self._tracer.start_span(
            f"{names.CHAT} {call.resolved.upstream}",
            context=_below(parent),
            kind=SpanKind.INTERNAL if endpoint.address is None else SpanKind.CLIENT,
            attributes=said,
        )

    def _count(self, turn: TurnRow, call: CallRecord) -> None:
        stretch = self._stretch(turn.session_id, turn.agent_id)
        if stretch is None or stretch.turn_id != turn.id:
            return
        stretch.model_calls += 1
        if call.usage is not None:
            stretch.usage = call.usage if stretch.usage is None else stretch.usage + call.usage


def _who(turn: TurnRow) -> dict[str, Any]:
    said = {
        names.OPERATION: names.INVOKE_AGENT,
        names.CONVERSATION_ID: turn.session_id,
        names.AGENT_ID: turn.agent_id,
        names.TURN_ID: turn.id,
    }
    return said if turn.subagent_id is None else said | {names.SUBAGENT_ID: turn.subagent_id}


def _below(parent: SpanContext | None) -> Context:
    return Context() if parent is None else set_span_in_context(NonRecordingSpan(parent), Context())


def _end(stretch: Stretch) -> None:
    span = stretch.span
    span.set_attribute(names.OUTCOME, stretch.status or stretch.outcome)
    if stretch.model_calls:
        span.set_attribute(names.MODEL_CALLS, stretch.model_calls)
    if stretch.usage is not None:
        span.set_attributes(usage_attributes(stretch.usage))
    if stretch.code is not None:
        span.set_attribute(names.ERROR_TYPE, stretch.code)
        span.set_status(Status(StatusCode.ERROR))
    span.end(stretch.over_ns)


def _outcome_of(status: str | None, *, is_function: bool) -> str:
    """What became of a call: `announced` to the application, `refused`, `made` here, or `failed`."""
    if is_function:
        return "announced" if status == "in_progress" else "refused"
    return "failed" if status == "failed" else "made"
