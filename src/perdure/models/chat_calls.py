"""Putting tool calls together from the pieces a chat stream brings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from perdure.models.jsontext import encode


@dataclass(slots=True, eq=False)
class Call:
    """A call as far as it has arrived; `ordinal` is its place among the outputs of the answer."""

    ordinal: int
    index: int | None
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    size: int = 0

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    @property
    def is_complete(self) -> bool:
        """Whether the arguments are a whole JSON object, so that nothing can be added to them."""
        text = self.arguments
        if not text.rstrip().endswith("}"):
            return False
        try:
            return isinstance(orjson.loads(text), dict)
        except ValueError:
            return False


class CallAssembler:
    """Tells which call each piece belongs to.

    Servers leave out the index or the id, send the same of either for two calls, repeat the name in
    every piece, or send a call in one piece with its arguments as an object. `index` decides where it
    can; a name that comes with arguments after a complete call starts a new one.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def add(self, pieces: Any, next_ordinal: int) -> int:
        """Take the `tool_calls` of one chunk; returns the ordinal that is free afterwards."""
        begun: list[Call] = []
        for piece in pieces if isinstance(pieces, list) else ():
            if not isinstance(piece, dict):
                continue
            call = self._owner(piece, begun)
            if call is None:
                index = piece.get("index")
                call = Call(next_ordinal, index if isinstance(index, int) else None)
                self.calls.append(call)
                next_ordinal += 1
            begun.append(call)
            _extend(call, piece)
        return next_ordinal

    def _owner(self, piece: dict[str, Any], begun: Sequence[Call]) -> Call | None:
        """The call that a piece continues, or None if it starts one. `begun` are those of this chunk."""
        index, call_id, name, arguments = _fields(piece)
        if index is not None:
            same = [call for call in self.calls if call.index == index]
            call = same[-1] if same else None
        elif call_id:
            call = next((call for call in reversed(self.calls) if call.id == call_id), None)
        else:
            call = self.calls[-1] if self.calls else None
        if call is None:
            return None
        if not name:
            return call
        if call in begun and call.name:
            return None
        if call_id and call.id and call_id != call.id:
            return None
        if call.name and name != call.name and (index is None or call.pieces):
            return None
        repeated = call_id and call_id == call.id and arguments == call.arguments
        return None if arguments and call.is_complete and not repeated else call


def _extend(call: Call, piece: dict[str, Any]) -> None:
    _, call_id, name, arguments = _fields(piece)
    call.id = call.id or call_id
    if name and name != call.name:
        call.name += name
    # Some servers close a call with a piece that repeats all its arguments.
    if arguments and not (len(arguments) == call.size and arguments == call.arguments and call.is_complete):
        call.pieces.append(arguments)
        call.size += len(arguments)


def _fields(piece: dict[str, Any]) -> tuple[int | None, str, str, str]:
    """Index, id, name and arguments of a piece, empty where it has none."""
    index, call_id = piece.get("index"), piece.get("id")
    function = piece.get("function")
    if not isinstance(function, dict):
        function = {}
    name, arguments = function.get("name"), function.get("arguments")
    if isinstance(arguments, dict | list):
        arguments = encode(arguments).decode()
    return (
        index if isinstance(index, int) else None,
        call_id if isinstance(call_id, str) else "",
        name if isinstance(name, str) else "",
        arguments if isinstance(arguments, str) else "",
    )
