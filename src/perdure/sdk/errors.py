"""What can go wrong for an application, one class for each thing that it may want to handle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openai.types.beta.agents.sessions.turn import Turn

    from perdure.schema import Issue
    from perdure.sdk.actions import Action


class SdkError(Exception):
    """The root of everything that this library raises by itself, except refused definitions."""


class DefinitionRefused(ValueError):
    """A tool, an agent or a handoff cannot work as it is defined; the message says what to change.

    Raised at construction, like `perdure.schema.FormRefused` and `SchemaRefused` for schemas.
    """


class NoServer(SdkError):
    """Nobody said which server to use, or more than one was named. No request was made."""


class SessionError(SdkError):
    """Something about one session. `session_id` names it; everything it has said is still there."""

    def __init__(self, message: str, session_id: str) -> None:
        super().__init__(message)
        self.session_id = session_id


class SessionBusy(SessionError):
    """A run needs an idle session, and this one is not. `status` is what it was."""

    def __init__(self, session_id: str, status: str) -> None:
        super().__init__(
            f"Session {session_id} is {status}, and a run starts with an idle session. Use send() to say "
            "something into the running turn, or resume() to answer what is owed and follow it to its end.",
            session_id,
        )
        self.status = status


class SessionFailed(SessionError):
    """The session itself has failed and takes no more input; `reason` is the server's text."""

    def __init__(self, session_id: str, reason: str | None) -> None:
        super().__init__(f"Session {session_id} failed: {reason or 'no reason given'}", session_id)
        self.reason = reason


class NothingToResume(SessionError):
    """The session has no turn yet, so there is nothing to follow."""


class UnknownAgent(SessionError):
    """No agent with the session's tools is known here; pass it as `agent=`."""


class TurnError(SessionError):
    """A turn that ended otherwise than `completed`. The session is idle, which is not success.

    Attributes:
        turn: the turn as the server tells it.
        code: the kind of the failure, such as `rate_limit_exceeded`; None for a cancelled turn.
    """

    def __init__(self, message: str, turn: Turn) -> None:
        super().__init__(message, turn.session_id)
        self.turn = turn
        self.turn_id = turn.id
        self.code: str | None = turn.error.code if turn.error else None


class TurnFailed(TurnError):
    """The turn failed. The next message starts another turn of the same session."""

    def __init__(self, turn: Turn) -> None:
        error = turn.error
        told = f"{error.code}: {error.message}" if error else "no reason given"
        super().__init__(f"Turn {turn.id} of session {turn.session_id} failed: {told}", turn)


class TurnCancelled(TurnError):
    """The turn was cancelled, by this program or by another one."""

    def __init__(self, turn: Turn) -> None:
        super().__init__(f"Turn {turn.id} of session {turn.session_id} was cancelled.", turn)


class InvalidFinalOutput(SessionError):
    """The turn completed, and its answer does not match the agent's `output_type`.

    Attributes:
        text: the answer.
        issues: each broken rule with its path; without values.
    """

    def __init__(self, session_id: str, turn_id: str, text: str, issues: Sequence[Issue], told: str) -> None:
        super().__init__(told, session_id)
        self.turn_id = turn_id
        self.text = text
        self.issues = tuple(issues)


class ActionRequired(SessionError):
    """The session waits for something that no tool of the agent answers: `actions` says for what.

    Answer with `session.answer(action, …)` and go on with `session.follow()`, or pass `on_action=`.
    """

    def __init__(self, session_id: str, actions: Sequence[Action]) -> None:
        kinds = ", ".join(action.summary for action in actions)
        super().__init__(f"Session {session_id} waits for {kinds}.", session_id)
        self.actions = tuple(actions)


class ConnectionLost(SessionError):
    """The server could not be reached for longer than `patience`. Nothing is known about the turn.

    `resume()` picks the session up when the server is back; results that were not delivered are in the
    journal.
    """


class NoLedger(SessionError):
    """A tool asked for the ledger of a session that was started without one."""


class ResultRefused(SessionError):
    """The server does not take the result of a call: not a call of this session, or not in this shape."""


class ToolError(Exception):
    """Raise it in a tool to fail the call with this message for the model."""


class OutputInvalid(Exception):
    """What a tool returned cannot be sent; the message is for the model and shows no value."""
