"""Masking values by the names they stand under, wherever those are: also in JSON texts, also cut ones."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from perdure.inspect.exports import Export, Resource, Thread
from perdure.inspect.jsontext import Json, dump, embedded_json, leaves

# What the links are made of. A name to mask is meant for what applications and models wrote.
FRAME = frozenset(
    {
        "id", "object", "type", "role", "status", "phase", "turn_id", "call_id", "agent_id", "session_id",
        "subagent_id", "parent_agent_id", "sender_agent_id", "recipient_agent_id", "recipient_agent_ids",
        "request_id", "environment_id", "name", "server_label", "success", "event_id", "created_at",
        "started_at", "completed_at", "last_active_at", "opened_at", "closed_at", "usage", "required_actions",
    }
)  # fmt: skip
SHORTEST_MASKED = 4
"""Characters a masked value has at least to be masked in running text, too."""


class Redactor:
    """Masks the values of some names with `[redacted 1]`, `[redacted 2]`, …

    Equal values get equal masks, within one redactor, so that what was the same still looks the same.
    Names are compared without regard to case. A masked string is masked in running text, too, if it has at
    least four characters. The members that make up the protocol itself (`id`, `call_id`, `name` of a
    function, …) are kept at their own places and masked inside of arguments, outputs and other payloads.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(name.casefold() for name in names if name)
        self._masks: dict[str, str] = {}
        # The values to look for in running text by how they begin, long ones first.
        self._by_head: dict[str, list[str]] = {}
        alternatives = "|".join(re.escape(name) for name in sorted(self._names, key=len, reverse=True))
        # A member in a text that is no JSON as a whole, with its quotes escaped any number of times.
        self._member = re.compile(rf'(\\*")({alternatives})\1\s*:\s*', re.IGNORECASE) if self._names else None

    def value(self, value: Json) -> Json:
        """Any JSON value, masked."""
        # Once to meet the values, and once more because a text may come before the value it tells.
        self._mask(value)
        return self._mask(value)

    def export(self, export: Export) -> Export:
        """An export, masked."""
        self._export(export)
        return self._export(export)

    def _export(self, export: Export) -> Export:
        return replace(
            export,
            session=None if export.session is None else self._session(export.session),
            turns=self._resources(export.turns),
            items=self._resources(export.items),
            subagents=tuple(
                Thread(
                    self._resources(part.turns),
                    self._resources(part.items),
                    None if part.subagent is None else self._resource(part.subagent),
                )
                for part in export.subagents
            ),
            inputs=self._resources(export.inputs),
            events=None if export.events is None else tuple(self._mask(event) for event in export.events),
            ledger=self._mask(export.ledger),
            journal=None if export.journal is None else self._resources(export.journal),
        )

    def _session(self, session: Resource) -> Resource:
        masked = dict(self._resource({name: value for name, value in session.items() if name != "agent"}))
        actions = session.get("required_actions")
        if isinstance(actions, list):
            masked["required_actions"] = [
                self._resource(action) if isinstance(action, Mapping) else action for action in actions
            ]
        agent = session.get("agent")
        if isinstance(agent, Mapping):
            # A schema names members and holds none.
            rest = self._resource({name: value for name, value in agent.items() if name != "tools"})
            agent = {name: rest.get(name, self._texts(value)) for name, value in agent.items()}
        else:
            agent = self._mask(agent)
        # In the order of the session's own members.
        return {name: masked.get(name, agent) for name in session}

    def _resources(self, entries: tuple[Resource, ...]) -> tuple[Resource, ...]:
        return tuple(self._resource(entry) for entry in entries)

    def _resource(self, entry: Resource) -> Resource:
        return {
            name: value if name in FRAME else self._member_value(name, value) for name, value in entry.items()
        }

    def _member_value(self, name: str, value: Json) -> Json:
        return self._mask_of(value) if name.casefold() in self._names else self._mask(value)

    def _mask(self, value: Json) -> Json:
        match value:
            case dict():
                return {self._text(name): self._member_value(name, member) for name, member in value.items()}
            case list() | tuple():
                return [self._mask(element) for element in value]
            case str():
                return self._string(value)
            case _:
                return value

    def _string(self, text: str) -> str:
        found = embedded_json(text)
        if found is not None:
            masked = self._mask(found)
            return text if masked == found else dump(masked)
        return self._text(self._cut_json(text))

    def _cut_json(self, text: str) -> str:
        """Mask members in a text that holds JSON among other things, or only the beginning of some."""
        if self._member is None:
            return text
        parts, position = [], 0
        while (match := self._member.search(text, position)) is not None:
            quote = match[1]
            end = _end_of_value(text, match.end(), quote)
            raw = text[match.end() : end]
            bare = raw.removeprefix(quote).removesuffix(quote)
            parts += [
                text[position : match.end()],
                quote,
                self._mask_of(bare),
                quote if end < len(text) else "",
            ]
            position = end
        return "".join((*parts, text[position:]))

    def _texts(self, value: Json) -> Json:
        match value:
            case dict():
                return {name: self._texts(member) for name, member in value.items()}
            case list() | tuple():
                return [self._texts(element) for element in value]
            case str():
                return self._text(value)
            case _:
                return value

    def _text(self, text: str) -> str:
        parts, kept, position = [], 0, 0
        while position <= len(text) - SHORTEST_MASKED:
            heads = self._by_head.get(text[position : position + SHORTEST_MASKED], ())
            secret = next((each for each in heads if text.startswith(each, position)), None)
            if secret is None:
                position += 1
                continue
            parts += [text[kept:position], self._masks[secret]]
            position = kept = position + len(secret)
        return "".join((*parts, text[kept:])) if parts else text

    def _mask_of(self, value: Json) -> str:
        if not isinstance(value, str):
            for _, leaf in leaves(value):
                if isinstance(leaf, str):
                    self._mask_of(leaf)
        key = value if isinstance(value, str) else dump(value)
        if key not in self._masks:
            self._masks[key] = f"[redacted {len(self._masks) + 1}]"
            if len(key) >= SHORTEST_MASKED:
                heads = self._by_head.setdefault(key[:SHORTEST_MASKED], [])
                heads.append(key)
                heads.sort(key=len, reverse=True)
        return self._masks[key]


def _end_of_value(text: str, start: int, quote: str) -> int:
    """Where a member's value ends; the end of the text for one that is cut off or not a scalar."""
    if text.startswith(quote, start):
        level = len(quote) - 1
        for match in re.finditer(r'(\\*)"', text[start + len(quote) :]):
            if len(match[1]) == level:
                return start + len(quote) + match.end()
        return len(text)
    scalar = re.compile(r"[^\s,\"\]}\[{]+").match(text, start)
    return len(text) if scalar is None else scalar.end()
