"""What a tool journal adds to a session that was read: its calls, its ledger, and what differs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.options import WRONG_USAGE, fail
from perdure.cli.targets import TROUBLE, Sources

if TYPE_CHECKING:
    from perdure.inspect import Chain, Export

JournalPlace = Annotated[
    str | None,
    typer.Option(
        "--journal",
        metavar="PLACE",
        help="A tool journal, as a file or a database URL: the session's calls and its ledger.",
    ),
]


def with_journal(sources: Sources, export: Export, place: str) -> Export:
    """The export with the calls, and the ledger if there is one, that a journal has of its session."""
    from perdure.inspect import Export
    from perdure.sdk.journal import Journal
    from perdure.sdk.journal_errors import JournalError

    session_id = export.session_id
    if session_id is None:
        fail("Which session it is of is not known, so nothing can be found in a journal.", WRONG_USAGE)
    try:
        with Journal.open_read_only(place) as journal:
            calls = tuple(journal.calls(session_id))
            record = journal.ledgers.read(session_id)
    except JournalError as error:
        fail(str(error), TROUBLE)
    found = sources.masked(Export(None, journal=calls, ledger=None if record is None else record.document()))
    return replace(export, journal=calls and found.journal, ledger=found.ledger or export.ledger)


def with_drift(chain: Chain, export: Export) -> Chain:
    """The chain with what differs between its session and the journal in the export."""
    from perdure.inspect import KINDS, Finding
    from perdure.sdk.reconcile import SessionFacts, reconcile

    facts = SessionFacts.of_export(export.document())
    ledger = export.ledger if isinstance(export.ledger, dict) else None
    drifts = [
        Finding(
            drift.kind, drift.severity, drift.text, export.session_id, drift.turn_id, drift.call_id,
            drift.item_ids,
        )
        for drift in reconcile(facts, ledger, export.journal or ())
        # What the chain finds by itself has the same names.
        if drift.kind not in KINDS and drift.kind != "awaiting_nothing"
    ]  # fmt: skip
    return replace(chain, findings=(*chain.findings, *drifts))
