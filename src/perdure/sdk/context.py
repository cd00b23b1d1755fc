"""What a tool is told about the call that it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from perdure.sdk.calls import CallPair
from perdure.sdk.errors import NoLedger

if TYPE_CHECKING:
    from perdure.sdk.ledger_edit import LedgerEdit
    from perdure.sdk.session import Session

LedgerT = TypeVar("LedgerT", default=Any)


@dataclass(frozen=True)
class ToolContext(Generic[LedgerT]):
    """Given to a tool whose function has a parameter named `context`, and to callbacks.

    `ToolContext[OrderLedger]` types the ledger.

    Attributes:
        pair: session, turn and call, as the result will be sent.
        tool: the name the model called.
        agent: the name of the agent that called it.
        is_repeat: whether an earlier try of this call was begun and its end is not known.
    """

    pair: CallPair
    tool: str
    agent: str
    is_repeat: bool
    _ledger: LedgerEdit[LedgerT] | None = field(repr=False, compare=False)
    _session: Session[Any] = field(repr=False, compare=False)

    @property
    def session_id(self) -> str:
        """The session that the call is of."""
        return self.pair.session_id

    @property
    def turn_id(self) -> str:
        """The turn that the call is of."""
        return self.pair.turn_id

    @property
    def call_id(self) -> str:
        """The call. The same at each try of it."""
        return self.pair.call_id

    @property
    def has_ledger(self) -> bool:
        """Whether the session was started with a ledger."""
        return self._ledger is not None

    @property
    def ledger(self) -> LedgerEdit[LedgerT]:
        """The session's ledger. Changes are recorded together with the result, or dropped with the call.

        Raises NoLedger if the session was started without one.
        """
        if self._ledger is None:
            raise NoLedger(
                f"Session {self.session_id} has no ledger: start it with ledger=.", self.session_id
            )
        return self._ledger
