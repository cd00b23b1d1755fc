"""Whether ledger, journal, items and required actions of a session still say the same; drift as data.

facts = read_session(client, session_id)
for drift in reconcile(facts, journal.ledgers.read(session_id), journal.calls(session_id)):
    print(drift.kind, drift.text)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from perdure.sdk.journal_json import Json
from perdure.sdk.ledger import LedgerRecord
from perdure.sdk.pinned import differing_pins
from perdure.sdk.session_facts import SessionFacts, read_session, read_session_async
from perdure.sdk.vanished import vanished_ids

__all__ = ["KINDS", "Drift", "SessionFacts", "read_session", "read_session_async", "reconcile"]

Severity = Literal["problem", "note"]

KINDS: Mapping[str, tuple[Severity, str]] = {
    "answered_twice": ("problem", "the items have more than one result of a call"),
    "result_without_call": ("problem", "the items have a result of a call that they do not have"),
    "result_differs": ("problem", "the items have another result of a call than the journal"),
    "not_submitted": ("problem", "the journal has a result that the server has not taken"),
    "submitted_but_owed": ("problem", "the server took the result and still lists the call as owed"),
    "submitted_without_item": ("note", "the server took the result, and the items do not have it"),
    "owed_without_entry": ("note", "a call is owed, and the journal has not seen it"),
    "outcome_unknown": ("problem", "a call was started, has no result, and nobody runs it"),
    "running_not_owed": ("note", "a call is running, and the server does not wait for it any more"),
    "late_result": ("problem", "a function brought something after its call had been ended otherwise"),
    "ledger_of_other_session": ("problem", "the ledger belongs to another session"),
    "ledger_unknown_call": ("problem", "the ledger names a call that neither items nor journal have"),
    "awaiting_nothing": ("problem", "the ledger awaits something, and nothing is owed"),
    "pin_differs": ("problem", "a pinned value of the ledger is not what the server keeps as the fact"),
    "id_not_in_context": ("problem", "an id of the ledger stands nowhere in what the model still sees"),
}
"""Each kind of drift: its severity and its meaning."""


@dataclass(frozen=True, slots=True)
class Drift:
    """One thing that does not fit. `kind` is one of `KINDS`; `field` names a field of the ledger."""

    kind: str
    severity: Severity
    text: str
    turn_id: str | None = None
    call_id: str | None = None
    field: str | None = None
    item_ids: tuple[str, ...] = ()

    def document(self) -> dict[str, Json]:
        """As plain data."""
        return {**asdict(self), "item_ids": list(self.item_ids)}


def reconcile(
    facts: SessionFacts,
    ledger: LedgerRecord | Mapping[str, Json] | None = None,
    calls: Sequence[Mapping[str, Json]] | None = None,
    *,
    keeps_pins: bool = False,
) -> list[Drift]:
    """Compare what is known of one session. Nothing is changed.

    Args:
        facts: the session and its items, read from a server or an export.
        ledger: its ledger, if there is one: a record, or the flat document of an export.
        calls: `Journal.calls` of it; None when there is no journal to compare with.
        keeps_pins: whether its server keeps pinned facts; then those of a ledger record are compared, too.
    """
    view = _View(facts, None if calls is None else list(calls))
    found = [*_items(view)]
    if calls is not None:
        found += [*_journal(view)]
    if ledger is not None:
        pins = [*_pins(facts, ledger)] if keeps_pins and isinstance(ledger, LedgerRecord) else []
        missed = {pin.field for pin in pins}
        # A fact that is missing says already that the model may not see the id.
        found += [
            drift
            for drift in _ledger(view, ledger)
            if drift.kind != "id_not_in_context" or drift.field not in missed
        ]
        found += pins
    return found


Key = tuple[str | None, str | None]


@dataclass
class _View:
    facts: SessionFacts
    calls: list[Mapping[str, Json]] | None
    asked: dict[str | None, list[Mapping[str, Json]]] = field(default_factory=lambda: defaultdict(list))
    results: dict[str | None, list[Mapping[str, Json]]] = field(default_factory=lambda: defaultdict(list))
    owed: dict[Key, Mapping[str, Json]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for item in self.facts.items:
            match item.get("type"):
                case "function_call":
                    self.asked[item.get("call_id")].append(item)
                case "function_call_output":
                    self.results[item.get("call_id")].append(item)
        for action in self.facts.required_actions:
            if action.get("type") == "function_call":
                self.owed[_key(action)] = action

    @property
    def entries(self) -> dict[Key, Mapping[str, Json]]:
        return {_key(call): call for call in self.calls or ()}


def _drift(kind: str, text: str, source: Mapping[str, Json] | None = None, **more: Any) -> Drift:
    ids = {} if source is None else {"turn_id": source.get("turn_id"), "call_id": source.get("call_id")}
    return Drift(kind, KINDS[kind][0], text, **{**ids, **more})


def _items(view: _View) -> Iterator[Drift]:
    for call_id, results in view.results.items():
        ids = tuple(str(item.get("id")) for item in results)
        if call_id not in view.asked:
            text = f"The items have a result of {call_id}, and no such call."
            yield _drift("result_without_call", text, results[0], item_ids=ids)
        if len(results) > 1:
            text = f"Call {call_id} has {len(results)} results in the items."
            yield _drift("answered_twice", text, results[0], item_ids=ids)


def _journal(view: _View) -> Iterator[Drift]:
    entries = view.entries
    for key, action in view.owed.items():
        if key not in entries:
            text = f"Call {key[1]} of {action.get('name')} is owed, and the journal has not seen it yet."
            yield _drift("owed_without_entry", text, action)
    for key, call in entries.items():
        check: Callable[[_View, Key, Mapping[str, Json]], Iterator[Drift]]
        check = _ended if call.get("state") == "finished" else _open
        yield from check(view, key, call)
        if "late" in call:
            text = f"{_named(call)} brought something that is not its result; the journal keeps it as late."
            yield _drift("late_result", text, call)


def _open(view: _View, key: Key, call: Mapping[str, Json]) -> Iterator[Drift]:
    if call.get("state") == "unknown":
        text = f"{_named(call)} was started, has no result, and nobody runs it any more."
        yield _drift("outcome_unknown", text, call)
    elif key not in view.owed:
        text = f"{_named(call)} is run by {call.get('owner')}, and the server does not wait for it."
        yield _drift("running_not_owed", text, call)


def _ended(view: _View, key: Key, call: Mapping[str, Json]) -> Iterator[Drift]:
    taken, refused = call.get("submitted_us") is not None, call.get("refused") is not None
    shown = view.results.get(call.get("call_id"), [])
    if not taken and not refused and not shown:
        rest = "it is still owed" if key in view.owed else "and it is not owed any more"
        yield _drift("not_submitted", f"The result of {_named(call)} was not submitted; {rest}.", call)
    if taken and key in view.owed:
        text = f"The result of {_named(call)} was accepted, and the call is still owed."
        yield _drift("submitted_but_owed", text, call)
    if taken and key not in view.owed and not shown:
        text = f"The result of {_named(call)} was accepted, and the items do not have it."
        yield _drift("submitted_without_item", text, call)
    if refused or call.get("redacted"):
        return
    for item in shown:
        if (names := _differences(call, item)) and item.get("status") != "in_progress":
            text = f"The items have another {' and '.join(names)} of {_named(call)} than the journal."
            yield _drift("result_differs", text, call, item_ids=(str(item.get("id")),))


def _differences(call: Mapping[str, Json], item: Mapping[str, Json]) -> list[str]:
    """The members of a result in which an item differs from the journal."""
    success = call.get("success")
    found = []
    if item.get("status") in ("completed", "failed") and (item["status"] == "completed") != success:
        found.append("outcome")
    name = "output" if success else "error"
    if item.get(name) is not None and item[name] != call.get(name):
        found.append(name)
    return found


def _ledger(view: _View, ledger: LedgerRecord | Mapping[str, Json]) -> Iterator[Drift]:
    document = ledger.document() if isinstance(ledger, LedgerRecord) else ledger
    session_id, named = view.facts.session_id, document.get("session_id")
    if named is not None and session_id is not None and named != session_id:
        text = f"The ledger belongs to session {named}, and this is {session_id}."
        yield _drift("ledger_of_other_session", text, field="session_id")
    last, turn = document.get("last_call_id"), document.get("last_turn_id")
    known = {*view.asked, *(call_id for _, call_id in (*view.owed, *view.entries))}
    if last is not None and last not in known:
        text = f"The ledger's last_call_id is {last}, and neither items nor journal have that call."
        yield _drift("ledger_unknown_call", text, turn_id=turn, call_id=last, field="last_call_id")
    if document.get("awaiting") is not None and not _is_awaited(view, last):
        text = f"The ledger awaits {document['awaiting']}, and required_actions lists nothing of it."
        yield _drift("awaiting_nothing", text, turn_id=turn, call_id=last, field="awaiting")
    pinned = ledger.pinned if isinstance(ledger, LedgerRecord) else ()
    for name, value in vanished_ids(view.facts, document, pinned):
        text = f"{value}, the ledger's {name}, stands nowhere in what the model still sees."
        yield _drift("id_not_in_context", text, field=name)


def _pins(facts: SessionFacts, ledger: LedgerRecord) -> Iterator[Drift]:
    for name in differing_pins(facts.session.get("metadata") or {}, ledger):
        text = f"The ledger's {name} is pinned, and the server keeps another fact of that name, or none."
        yield _drift("pin_differs", text, field=name)


def _is_awaited(view: _View, last: Json) -> bool:
    if not view.facts.required_actions:
        return False
    return last is None or not view.owed or any(call_id == last for _, call_id in view.owed)


def _key(source: Mapping[str, Json]) -> Key:
    return source.get("turn_id"), source.get("call_id")


def _named(call: Mapping[str, Json]) -> str:
    return f"call {call.get('call_id')} of {call.get('name')}"
