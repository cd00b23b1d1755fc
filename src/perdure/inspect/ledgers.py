"""Whether the application's ledger still says what the session says."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.inspect.exports import Export
from perdure.inspect.kinds import finding
from perdure.inspect.links import Chain, Finding


def check_ledger(export: Export, chain: Chain) -> list[Finding]:
    """Compare the bookkeeping of a ledger (`session_id`, `last_call_id`, `awaiting`) with the session."""
    ledger = export.ledger
    if not isinstance(ledger, Mapping):
        return []
    found = []
    named = ledger.get("session_id")
    if isinstance(named, str) and chain.session_id is not None and named != chain.session_id:
        text = f"The ledger is of session {named}, and this is {chain.session_id}."
        found.append(finding("ledger_of_other_session", text, session_id=chain.session_id))
    last = ledger.get("last_call_id")
    calls = {call.call_id for call in chain.calls()}
    if isinstance(last, str) and last not in calls:
        text = f"The ledger's last_call_id is {last}, and the session has no such call."
        found.append(finding("ledger_unknown_call", text, session_id=chain.session_id, call_id=last))
    elif ledger.get("awaiting") and export.session is not None:
        owed = {owed.key for owed in chain.owed}
        awaited = last if isinstance(last, str) else None
        if (awaited is None and not owed) or (awaited is not None and awaited not in owed):
            text = (
                f"The ledger awaits {ledger['awaiting']}"
                + (f" for call {awaited}" if awaited else "")
                + ", and required_actions lists no such call: nothing is owed there."
            )
            found.append(finding("ledger_awaits_nothing", text, session_id=chain.session_id, call_id=awaited))
    return found
