"""Facts that survive every compaction word for word.

The application pins facts by metadata and by JSONPath; others are found by rule: values of id-like and
money-like fields in calls and results, and codes and amounts that the user wrote.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from perdure.harness.cuts import is_request
from perdure.store.rows import ItemRow
from perdure.wire.pins import PIN, PIN_PATH, path_fault, split_path

log = logging.getLogger(__name__)

MOST_FACTS = 200
MOST_OF_ONE = 50
"""Values that one path or one item contributes at most."""
MOST_TEXT = 256 << 10
LONGEST = 120

_ID_FIELD = re.compile(
    r"(?:^|[_\-.])(?:id|ids|uuid|number|no|ref|reference|code|sku|iban|account|ticket|invoice|order|tracking)$",
    re.IGNORECASE,
)
_CAMEL_ID = re.compile(r"[a-z](?:Id|ID|Number|Ref|Code)$")
_MONEY_FIELD = re.compile(
    r"(?:^|[_\-.])(?:amount|total|subtotal|price|cost|refund|fee|balance|sum|tax|paid|due|limit|currency)s?$"
    r"|[a-z](?:Amount|Total|Price|Cost|Fee|Balance)$",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"(?<![\w/.-])(?=[\w-]*\d)(?=[\w-]*[A-Z])[A-Z][A-Z0-9]{0,9}(?:-[A-Z0-9]{1,12}){1,3}(?![\w-])"
)
_AMOUNT = re.compile(
    r"(?<![\w.,-])(?:[€$£¥]\s?)?\d{1,3}(?:,\d{3})*\.\d{2}(?:\s?(?:EUR|USD|GBP|CHF|€))?(?![\w])"
)

Fact = dict[str, Any]


def pinned_facts(metadata: Mapping[str, str]) -> dict[str, str]:
    """The facts that the application pinned in a session's metadata, by name."""
    return {key[len(PIN) :]: value for key, value in sorted(metadata.items()) if key.startswith(PIN)}


def pin_paths(metadata: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """JSONPath expressions by name: those of the settings, and those of a session, which win."""
    own = {key[len(PIN_PATH) :]: value for key, value in metadata.items() if key.startswith(PIN_PATH)}
    return {**settings, **own}


def gather_facts(
    before: Sequence[Mapping[str, Any]], rows: Iterable[ItemRow], paths: Mapping[str, str]
) -> list[Fact]:
    """The facts of a history: those known before and those of further items.

    Facts of paths come first, the rest newest-referenced first; a fact that appears again counts as
    referenced, and keeps the source that it was first found in.
    """
    facts: dict[tuple[str, str], Fact] = {(pin["name"], pin["value"]): dict(pin) for pin in before}
    names: dict[str, str] = {}
    queries = _compile(paths)
    for row in rows:
        if row.type == "function_call":
            names[row.data["call_id"]] = row.data["name"]
        for name, value, source, kind in _found_in(row, names, queries):
            known = facts.get((name, value))
            if known is None:
                facts[name, value] = {
                    "name": name, "value": value, "source": source, "kind": kind, "pos": row.pos
                }  # fmt: skip
            else:
                known["pos"] = row.pos
    ordered = sorted(facts.values(), key=lambda fact: (fact["kind"] != "path", -fact["pos"]))
    return ordered[:MOST_FACTS]


def _found_in(
    row: ItemRow, names: Mapping[str, str], queries: Mapping[str, tuple[str | None, Any]]
) -> Iterator[tuple[str, str, str, str]]:
    match row.type:
        case "message" | "agent_message" if is_request(row) or row.type == "agent_message":
            text = "\n".join(part["text"] for part in row.data["content"] if "text" in part)[:MOST_TEXT]
            said = "said by the user"
            if row.type == "agent_message":
                sender = row.data["sender_agent_id"]
                said = "said by the agent above" if is_request(row) else f"reported by the subagent {sender}"
            for pattern, label in ((_CODE, "code"), (_AMOUNT, "amount")):
                for match in list(pattern.finditer(text))[:MOST_OF_ONE]:
                    yield label, match[0], said, "rule"
        case "function_call":
            source = f"argument of {row.data['name']}"
            for name, value in _fields(row.data["arguments"]):
                yield name, value, source, "rule"
        case "function_call_output" if row.status == "completed" and not (row.private or {}).get("refusal"):
            call_id = row.data["call_id"]
            function = names.get(call_id, "a function")
            source = f"result of {function}, {call_id}"
            value = _parsed(row.data["output"])
            if value is None:
                return
            for name, found in _selected(queries, function, value):
                yield name, found, source, "path"
            for name, found in _fields(value):
                yield name, found, source, "rule"


def _fields(value: Any) -> Iterator[tuple[str, str]]:
    """Id-like and money-like fields of a JSON value, at any depth, with their values as texts."""
    left = MOST_OF_ONE
    stack: list[tuple[Any, int]] = [(value, 0)]
    while stack and left > 0:
        current, depth = stack.pop()
        if isinstance(current, dict):
            for key, inner in current.items():
                if isinstance(inner, dict | list):
                    if depth < 8:
                        stack.append((inner, depth + 1))
                elif (text := _scalar(inner)) and _is_telling(key):
                    left -= 1
                    yield str(key)[:LONGEST], text
        elif isinstance(current, list):
            stack += [(inner, depth + 1) for inner in reversed(current[:MOST_OF_ONE])]


def _is_telling(key: str) -> bool:
    return bool(_ID_FIELD.search(key) or _CAMEL_ID.search(key) or _MONEY_FIELD.search(key))


def _scalar(value: Any) -> str | None:
    if isinstance(value, bool) or value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    return text if 0 < len(text) <= LONGEST and "\n" not in text else None


def _parsed(output: Any) -> Any:
    """The JSON of a result's text, numbers as they are written; None for what is no JSON."""
    if isinstance(output, list):
        output = "".join(part["text"] for part in output if "text" in part)
    if not isinstance(output, str) or len(output) > MOST_TEXT or output.lstrip()[:1] not in ("{", "["):
        return None
    try:
        # As texts, because 129.90 would come back as 129.9.
        return json.loads(output, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        return None


def _compile(paths: Mapping[str, str]) -> dict[str, tuple[str | None, Any]]:
    if not paths:
        return {}
    import jsonpath_rfc9535

    queries: dict[str, tuple[str | None, Any]] = {}
    for name, text in paths.items():
        if path_fault(text) is not None:
            # Of the settings, or of metadata from before paths were checked.
            log.warning("the pin path %s is not used: %s", name, text)
            continue
        function, path = split_path(text)
        queries[name] = (function, jsonpath_rfc9535.compile(path))
    return queries


def _selected(
    queries: Mapping[str, tuple[str | None, Any]], function: str, value: Any
) -> Iterator[tuple[str, str]]:
    for name, (wanted, query) in queries.items():
        if wanted is not None and wanted != function:
            continue
        for node in islice(query.finditer(value), MOST_OF_ONE):
            text = node.value if isinstance(node.value, str) else json.dumps(node.value, ensure_ascii=False)
            if text:
                yield name, text[: 4 * LONGEST]
