"""Output schemas that a provider cannot hold its model to, although they look as if it could."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from perdure.models.jsontext import encode
from perdure.models.messages import ModelRequest

MOST_REFUSED = 10_000

# Too many properties, too deep, too large a grammar: such limits differ and change.
_REFUSED = re.compile(
    r"response_?format|text\.format|output_config|output_?format|structured output"
    r"|response_?(?:json_?)?schema"
    r"|\bgrammar\b|schema\b.{0,40}\b(?:complex|large|deep)",
    re.IGNORECASE | re.DOTALL,
)


class OutputLessons:
    """What was refused, by model and schema: it is asked for in words from then on."""

    def __init__(self) -> None:
        self._refused: set[bytes] = set()

    def takes(self, request: ModelRequest) -> bool:
        """Whether the provider may be asked to hold the model to the output schema of a request."""
        schema = request.output_schema
        return schema is None or not self._refused or _digest(request.model, schema) not in self._refused

    def learn(self, request: ModelRequest, complaint: str) -> bool:
        """Take a refused request into account; whether the next one will be different."""
        if request.output_schema is None or not _REFUSED.search(complaint) or not self.takes(request):
            return False
        if len(self._refused) > MOST_REFUSED:
            self._refused.clear()
        self._refused.add(_digest(request.model, request.output_schema))
        return True


def _digest(model: str, schema: Mapping[str, Any]) -> bytes:
    return sha256(encode([model, dict(schema)])).digest()
