"""A text that a simple regular expression matches, for sample values of a JSON Schema."""

from __future__ import annotations

import re
from dataclasses import dataclass

_CLASSES = {"d": "0", "w": "a", "s": " ", "D": "a", "W": "-", "S": "a"}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r"}
_PRINTABLE = "aA0 -_.:/@#" + "".join(map(chr, range(33, 127)))
_MOST_CHARACTERS = 10_000
_QUANTIFIER = re.compile(r"([*+?]|\{(\d+)(,(\d*))?\})[?+]?")


def sample_text(pattern: str, min_length: int = 0, max_length: int | None = None) -> str | None:
    """A text with the wanted length in which `pattern` is found, or None where none is easily made.

    Understands literals, escapes, character classes, groups, alternatives (the first one is taken) and
    quantifiers; not look-around, back references or Unicode properties.
    """
    for stretch in range(min(min_length, 1000) + 1):
        try:
            text = _Reader(pattern, stretch).read()
        except (_TooDifficult, RecursionError):
            return None
        if len(text) < min_length and not pattern.endswith("$"):
            text += "x" * (min_length - len(text))
        if len(text) >= min_length:
            fits = max_length is None or len(text) <= max_length
            return text if fits and _found(pattern, text) else None
    return None


def _found(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return False


class _TooDifficult(Exception):
    """A construct that this reader does not know."""


@dataclass
class _Reader:
    """Walks through a pattern once and writes a short text; open quantifiers repeat `stretch` times."""

    pattern: str
    stretch: int
    at: int = 0

    def read(self) -> str:
        text = self._alternatives()
        if self.at < len(self.pattern):
            raise _TooDifficult
        return text

    def _alternatives(self) -> str:
        first = self._sequence()
        while self._take("|"):
            self._sequence()
        return first

    def _sequence(self) -> str:
        parts: list[str] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            parts.append(self._repeated(self._atom()))
        return "".join(parts)

    def _atom(self) -> str:
        char = self._next()
        match char:
            case "^" | "$":
                return ""
            case ".":
                return "a"
            case "[":
                return self._class()
            case "(":
                if (
                    self._take("?")
                    and not self._take(":")
                    and not re.match(r"P?<\w", self.pattern[self.at :])
                ):
                    raise _TooDifficult
                if re.match(r"P?<", self.pattern[self.at :]):
                    self.at = self.pattern.index(">", self.at) + 1
                text = self._alternatives()
                if not self._take(")"):
                    raise _TooDifficult
                return text
            case "\\":
                escaped = self._next()
                if escaped in "bB":
                    return ""
                return self._escaped(escaped)
            case "*" | "+" | "?":
                raise _TooDifficult
            case _:
                return char

    def _repeated(self, text: str) -> str:
        found = _QUANTIFIER.match(self.pattern, self.at)
        if not found:
            return text
        self.at = found.end()
        match found[1]:
            case "?":
                count = 0
            case "*":
                count = self.stretch
            case "+":
                count = max(1, self.stretch)
            case _:
                count = int(found[2])
                if found[3]:
                    count = max(count, min(self.stretch, int(found[4] or self.stretch)))
        if len(text) * count > _MOST_CHARACTERS:
            raise _TooDifficult
        return text * count

    def _class(self) -> str:
        negated = self._take("^")
        ranges: list[tuple[str, str]] = []
        while self.at < len(self.pattern) and (self.pattern[self.at] != "]" or not ranges):
            first = last = self._member()
            if self.pattern.startswith("-", self.at) and not self.pattern.startswith("-]", self.at):
                self.at += 1
                last = self._member()
            ranges.append((first, last))
        if not self._take("]"):
            raise _TooDifficult
        if not negated:
            return ranges[0][0]
        free = (char for char in _PRINTABLE if not any(first <= char <= last for first, last in ranges))
        return next(free, "")

    def _member(self) -> str:
        char = self._next()
        return self._escaped(self._next()) if char == "\\" else char

    def _escaped(self, char: str) -> str:
        if char in _CLASSES:
            return _CLASSES[char]
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char.isalnum():
            raise _TooDifficult
        return char

    def _next(self) -> str:
        if self.at >= len(self.pattern):
            raise _TooDifficult
        self.at += 1
        return self.pattern[self.at - 1]

    def _take(self, expected: str) -> bool:
        if self.pattern.startswith(expected, self.at):
            self.at += len(expected)
            return True
        return False
