"""What turns one JSON value into another: operations of RFC 6902 that also say what was there before."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from perdure.inspect.faults import BadQuestion
from perdure.inspect.jsontext import Expanded, Json, Location, expand


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a patch.

    `path` is a JSON pointer, in which a JSON text counts as the value it says; `in_text` is the pointer of
    that text when the path leads into one. `before` is None for `add`, `after` for `remove`.
    """

    op: Literal["add", "remove", "replace", "move"]
    path: str
    before: Json = None
    after: Json = None
    source: str | None = None
    in_text: str | None = None

    def document(self) -> dict[str, Json]:
        """The operation as RFC 6902 writes it, with `before` and `in_text` beside its own members."""
        document: dict[str, Json] = {"op": self.op, "path": self.path}
        match self.op:
            case "add":
                document["value"] = self.after
            case "replace":
                document |= {"value": self.after, "before": self.before}
            case "remove":
                document["before"] = self.before
            case "move":
                document["from"] = self.source
        return document if self.in_text is None else document | {"in_text": self.in_text}


def operations(before: Json, after: Json) -> tuple[Operation, ...]:
    """The operations that turn `before` into `after`, JSON texts opened; none when they say the same.

    Raises:
        BadQuestion: `jsonpatch` is not installed.
    """
    old, new = expand(before), expand(after)
    if old.value == new.value and _same_kinds(old.value, new.value):
        return ()
    try:
        import jsonpatch
        from jsonpointer import JsonPointer
    except ModuleNotFoundError as error:
        raise BadQuestion("Comparing needs the package jsonpatch; install it.") from error
    found = []
    document: Any = {"root": deepcopy(old.value)}
    for step in jsonpatch.make_patch(document, {"root": new.value}).patch:
        location = tuple(JsonPointer(step["path"]).parts)[1:]
        path = step["path"].removeprefix("/root")
        in_text = _text_around(old, location) or _text_around(new, location)
        match step["op"]:
            case "add":
                found.append(Operation("add", path, after=step["value"], in_text=in_text))
            case "remove":
                before = JsonPointer(step["path"]).resolve(document)
                found.append(Operation("remove", path, before=deepcopy(before), in_text=in_text))
            case "replace":
                before = JsonPointer(step["path"]).resolve(document)
                found.append(
                    Operation("replace", path, before=deepcopy(before), after=step["value"], in_text=in_text)
                )
            case "move":
                source = step["from"].removeprefix("/root")
                moved = deepcopy(JsonPointer(step["from"]).resolve(document))
                found.append(Operation("move", path, after=moved, source=source, in_text=in_text))
        document = jsonpatch.JsonPatch([step]).apply(document, in_place=True)
    return tuple(found)


def _same_kinds(one: Json, other: Json) -> bool:
    """Whether equal values are equal as JSON, where true is not 1."""
    match one, other:
        case dict(), dict():
            return all(_same_kinds(value, other[name]) for name, value in one.items())
        case list(), list():
            return all(_same_kinds(*pair) for pair in zip(one, other, strict=True))
        case _:
            return isinstance(one, bool) == isinstance(other, bool)


def _text_around(document: Expanded, location: tuple[str, ...]) -> str | None:
    texts = {tuple(map(str, text)): text for text in document.texts}
    for end in range(len(location) - 1, -1, -1):
        if location[:end] in texts:
            return pointer(texts[location[:end]])
    return None


def pointer(location: Location) -> str:
    """A location as a JSON pointer."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in location)
