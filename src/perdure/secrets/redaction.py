"""The one place where secrets are taken out of text before it leaves the server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

MASK = "[redacted]"

SHORTEST_SECRET = 8
"""Shorter values are not masked: they would take ordinary words out of every text."""

LONGEST_TEXT = 256 * 1024
"""Characters of one text that `redact` keeps; the rest is dropped, with a note."""

# Every repetition is over one class of characters and bounded, so the cost grows with the text alone.
_KEY_LIKE = re.compile(
    r"""
      (?<![A-Za-z0-9]) (?:
          perdure_[A-Za-z0-9]{8,32}_[A-Za-z0-9_-]{20,128}
        | (?:sk|rk|pk)-[A-Za-z0-9_-]{16,512}
        | gh[opsur]_[A-Za-z0-9]{20,255} | github_pat_[A-Za-z0-9_]{20,255}
        | xox[a-z]-[A-Za-z0-9-]{10,255}
        | AIza[A-Za-z0-9_-]{30,64}
        | A[KS]IA[A-Z0-9]{16}
        | eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,4096}
      )
    | -----BEGIN\ [A-Z\ ]{0,32}PRIVATE\ KEY----- (?:[^-]|-(?!----)){0,16384} (?:-----END\ [A-Z\ ]{0,40}-----)?
    """,
    re.VERBOSE,
)
_AFTER_WORD = re.compile(
    r"""
      (?P<scheme> \b (?:bearer|basic) [ ]{1,8} ) (?P<token> [A-Za-z0-9._~+/=-]{8,4096} )
    | (?P<name> \b (?: api[_-]?key | x-api-key | (?:access|refresh|auth)[_-]?token | password | passwd
        | client[_-]?secret | (?:secret|private)[_-]?key | authorization )
        ["']? [ ]{0,4} [=:] [ ]{0,4} ["']? )
      (?P<value> (?:(?:bearer|basic)[ ]{1,8})? [^\s"'&,;<>{}\[\]]{6,4096} )
    | (?P<user> :// [^\s/:@]{0,256} : ) (?P<password> [^\s/@]{1,512} ) (?=@)
    """,
    re.VERBOSE | re.IGNORECASE,
)


class Redactor:
    """Masks registered secret values, and what looks like a secret, in text.

    `redact` is for logs and error messages. `mask` only takes out registered values and is for data
    that must otherwise stay as it is, such as items and events. Safe to use from several threads.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._forms: tuple[str, ...] = ()
        self.register(*values)

    def register(self, *values: str) -> None:
        """Mask these values from now on, also where they are URL- or JSON-escaped."""
        forms = set(self._forms)
        for value in values:
            if len(value) >= SHORTEST_SECRET:
                forms.update((value, quote(value, safe=""), json.dumps(value)[1:-1]))
        # The longest first: a secret that contains another one must not leave its ends behind.
        self._forms = tuple(sorted(forms, key=lambda form: (-len(form), form)))

    def mask(self, text: str) -> str:
        """The text without registered values."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        return text

    def mask_json(self, value: Any) -> Any:
        """A JSON value without registered values, in keys and texts; unchanged parts are shared."""
        match value:
            case str():
                return self.mask(value)
            case dict():
                return {self.mask(key): self.mask_json(inner) for key, inner in value.items()}
            case list():
                return [self.mask_json(inner) for inner in value]
            case _:
                return value

    def redact(self, text: str) -> str:
        """The text without registered values, bearer tokens, passwords and key-like strings."""
        length = len(text)
        # A margin before the cut keeps secrets at the border whole, so that they are recognised.
        text = self.mask(text[: LONGEST_TEXT + 16_384])
        text = _AFTER_WORD.sub(_keep_word, _KEY_LIKE.sub(MASK, text))
        if length > LONGEST_TEXT:
            return f"{text[:LONGEST_TEXT]}… [shortened from {length} characters]"
        return text


def _keep_word(found: re.Match[str]) -> str:
    return f"{found['scheme'] or found['name'] or found['user']}{MASK}"
