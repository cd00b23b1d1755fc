"""Function names as Gemini takes them, and back to ours."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.models.messages import FunctionSpec
from perdure.models.outgoing import MAX_NAME, function_name


class FunctionNames:
    """The names of one request's functions: Gemini wants a letter or an underscore in front."""

    def __init__(self, tools: Sequence[FunctionSpec]) -> None:
        self._sent: dict[str, str] = {}
        self._ours: dict[str, str] = {}
        for name in dict.fromkeys(spec.name for spec in tools):
            sent = acceptable(name)
            while sent != name and (sent in self._ours or any(sent == spec.name for spec in tools)):
                sent = f"_{sent}"[:MAX_NAME]
            self._sent[name] = sent
            self._ours[sent] = name

    @property
    def changed(self) -> frozenset[tuple[str, str]]:
        """Our name and theirs, of the functions for which they differ."""
        return frozenset((ours, sent) for ours, sent in self._sent.items() if ours != sent)

    def sent(self, name: str) -> str:
        """The name under which a function is offered, or an acceptable one for a function of the past."""
        return self._sent.get(name) or acceptable(name)

    def ours(self, name: str) -> str:
        """Our name of the function that the model has called."""
        return self._ours.get(name, name)


def acceptable(name: str) -> str:
    """A name that Gemini takes: letters, digits, `_` and `-`, with a letter or `_` first."""
    clean = function_name(name)
    return clean if clean[0].isalpha() or clean[0] == "_" else f"_{clean}"[:MAX_NAME]
