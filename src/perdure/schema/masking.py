"""Messages of other libraries, without the value that they are about.

A library may quote what it refuses ("got 'hunter2'"). Values may be secrets, so whatever a message has in
common with the value is masked before anyone reads it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from perdure.schema.results import Issue

MASK = "…"
UNKNOWN = "is not valid"
LEAVES = 5_000
LEAF_CHARACTERS = 200_000
MESSAGE_CHARACTERS = 400
# So many characters in a row are no coincidence.
RUN = 8
WORD = 4


def masked(issue: Issue, value: object) -> Issue:
    """The issue with its path cut where it leaves the value, and its message without pieces of the value."""
    path = _within(issue.path, value)
    message = " ".join(issue.message[:MESSAGE_CHARACTERS].split())
    every = _leaves(value)
    if every is None:
        return Issue(UNKNOWN, path)
    there: object = value
    for part in path:
        there = _child(there, part)
    words = {text for text in every if len(text) >= WORD} | set(_leaves(there, numbers=True) or ())
    for text in sorted(words, key=len, reverse=True):
        for shown in {text, repr(text)[1:-1]}:
            if shown.strip() and shown.lower() in message.lower():
                pattern = rf"(?<!\w){re.escape(shown)}(?!\w)"
                message = re.sub(pattern, MASK, message, flags=re.IGNORECASE)
    return Issue(_without_runs(message, every).strip() or UNKNOWN, path)


def _without_runs(message: str, texts: Sequence[str]) -> str:
    hidden = [False] * len(message)
    lowered = message.lower()
    long = [text.lower() for text in texts if len(text) >= RUN]
    if len(lowered) != len(message) or not long:
        return message if not long else UNKNOWN
    for start in range(len(message) - RUN + 1):
        run = lowered[start : start + RUN]
        if any(run in text for text in long):
            hidden[start : start + RUN] = [True] * RUN
    kept = "".join(MASK if gone else letter for letter, gone in zip(message, hidden, strict=True))
    return re.sub(f"{MASK}+", MASK, kept)


def _within(path: Sequence[str | int], value: object) -> tuple[str | int, ...]:
    """The steps that lead through the value, and the key that is missing at their end.

    Libraries also put names of alternatives into their paths, which are no steps.
    """
    kept: list[str | int] = []
    for index, part in enumerate(path):
        match value:
            case dict() if part in value:
                kept.append(part)
                value = value[part]
            case list() if isinstance(part, int) and 0 <= part < len(value):
                kept.append(part)
                value = value[part]
            case dict() if isinstance(part, str) and index == len(path) - 1 and part.isidentifier():
                kept.append(part)
    return tuple(kept)


def _child(value: object, part: str | int) -> object:
    match value:
        case dict():
            return value.get(part)
        case list() if isinstance(part, int) and part < len(value):
            return value[part]
        case _:
            return None


def _leaves(value: object, *, numbers: bool = False) -> list[str] | None:
    """The texts in a value, the numbers too if asked; None if there are too many to compare with."""
    found: list[str] = []
    stack = [value]
    size = 0
    while stack:
        match stack.pop():
            case dict() as members:
                stack.extend(members.values())
            case list() as items:
                stack.extend(items)
            case str() as text if text:
                found.append(text)
                size += len(text)
            case bool() | None:
                pass
            case int() | float() as number if numbers:
                found.append(repr(number))
        if len(found) + len(stack) > LEAVES or size > LEAF_CHARACTERS:
            return None
    return found
