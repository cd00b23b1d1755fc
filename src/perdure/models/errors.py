"""Why a model call failed, in the protocol's turn error codes."""

from __future__ import annotations

from perdure.wire.turns import TurnErrorCode


class ModelError(Exception):
    """A model call that produced no usable answer.

    Args:
        code: the turn error code a turn fails with when retries are exhausted.
        message: one sentence for people, without secrets.
        retryable: whether the same request may succeed later.
        retry_after: seconds the provider asked to wait, if it did.
        status: the provider's HTTP status, if there was one.
    """

    def __init__(
        self,
        code: TurnErrorCode,
        message: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code: TurnErrorCode = code
        self.message = message
        self.retryable = retryable
        self.retry_after = retry_after
        self.status = status
