"""What a Gemini provider has refused, so that the next request is different."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perdure.models.gemini_family import Rules, known_rules

# A signature that the provider documents for calls it did not make itself.
FOREIGN_SIGNATURE = "skip_thought_signature_validator"
MOST_REFUSED = 100_000

_JSON_SCHEMA = re.compile(
    r"json_?schema|function_?declarations\[\d+\]|response_?schema|(?:invalid|unsupported) .{0,40}schema",
    re.IGNORECASE,
)
_SCHEMA_WITH_TOOLS = re.compile(r"(?:function calling|tool use) with a response mime type", re.IGNORECASE)
_SIGNATURE_MISSING = re.compile(r"missing a[n`]? ?`?thought_?signature|missing_thought_signature", re.I)
_SIGNATURE_REFUSED = re.compile(
    r"thought[ _]?signature.{0,80}(?:not valid|invalid|corrupt|decod)"
    r"|(?:invalid|corrupt\w*) thought[ _]?signature",
    re.IGNORECASE | re.DOTALL,
)
_CALL_IDS = re.compile(r"unknown name \"id\"", re.IGNORECASE)
_FETCH = re.compile(r"fetch content from the provided url|(?:unsupported|invalid) file ur[il]|url_\w+", re.I)
_LEVEL = re.compile(r"thinking[ _]?level", re.IGNORECASE)


@dataclass(slots=True)
class Refused:
    """What is left out of requests: signatures that are not taken back, images that are not fetched."""

    signatures: set[str] = field(default_factory=set)
    urls: set[str] = field(default_factory=set)


class Lessons:
    """The rules of each model: those its name tells, corrected by what it has refused."""

    def __init__(self) -> None:
        self.refused = Refused()
        self._rules: dict[str, Rules] = {}
        self._unfetched: set[str] = set()

    def rules(self, model: str) -> Rules:
        return self._rules.get(model) or known_rules(model)

    def learn(
        self, model: str, body: Mapping[str, Any], contents: list[dict[str, Any]], complaint: str
    ) -> bool:
        """Take a refused request into account; whether trying again may help.

        Args:
            contents: those of the request; its `body` may hold them in another form.
        """
        rules = self.rules(model)
        changed = _corrected(rules, body, complaint)
        if changed != rules:
            self._rules[model] = changed
            return True
        parts = [part for content in contents for part in content["parts"]]
        if _SIGNATURE_REFUSED.search(complaint):
            return self._refuse_signatures(parts)
        return bool(_FETCH.search(complaint)) and self._refuse_images(parts)

    def _refuse_signatures(self, parts: list[dict[str, Any]]) -> bool:
        sent = {part["thoughtSignature"] for part in parts if "thoughtSignature" in part}
        sent.discard(FOREIGN_SIGNATURE)
        if len(self.refused.signatures) > MOST_REFUSED:
            self.refused.signatures.clear()
        self.refused.signatures |= sent
        return bool(sent)

    def _refuse_images(self, parts: list[dict[str, Any]]) -> bool:
        """Leave out images that could not be fetched twice: the first time it is often a passing fault."""
        urls = {part["fileData"]["fileUri"] for part in parts if "fileData" in part}
        if len(self.refused.urls) + len(self._unfetched) > MOST_REFUSED:
            self.refused.urls.clear()
            self._unfetched.clear()
        self.refused.urls |= urls & self._unfetched
        self._unfetched |= urls
        return bool(urls)


def _corrected(rules: Rules, body: Mapping[str, Any], complaint: str) -> Rules:
    config = body.get("generationConfig", {})
    offers = bool(body.get("tools"))
    wants_schema = "responseMimeType" in config
    if _SCHEMA_WITH_TOOLS.search(complaint):
        return replace(rules, schema_with_tools=False)
    if _SIGNATURE_MISSING.search(complaint):
        return replace(rules, signed_calls=True)
    if _CALL_IDS.search(complaint):
        return replace(rules, call_ids=False)
    if "thinkingLevel" in config.get("thinkingConfig", {}) and _LEVEL.search(complaint):
        return replace(rules, thinking="budget")
    if (offers or wants_schema) and _JSON_SCHEMA.search(complaint):
        return replace(rules, json_schema=False)
    return rules
