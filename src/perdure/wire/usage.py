"""Token usage, best effort: null where unknown, never a guess."""

from __future__ import annotations

from perdure.wire.shapes import Resource


class InputTokensDetails(Resource):
    cached_tokens: int = 0


class OutputTokensDetails(Resource):
    reasoning_tokens: int = 0


class TokenUsage(Resource):
    """Tokens of one or several model calls; `a + b` is the usage of both."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int

    @classmethod
    def of(
        cls, input_tokens: int, output_tokens: int, *, cached_tokens: int = 0, reasoning_tokens: int = 0
    ) -> TokenUsage:
        """Usage from its independent numbers; the total is their sum."""
        return cls(
            input_tokens=input_tokens,
            input_tokens_details=InputTokensDetails(cached_tokens=cached_tokens),
            output_tokens=output_tokens,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=reasoning_tokens),
            total_tokens=input_tokens + output_tokens,
        )

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            input_tokens_details=InputTokensDetails(
                cached_tokens=self.input_tokens_details.cached_tokens
                + other.input_tokens_details.cached_tokens
            ),
            output_tokens=self.output_tokens + other.output_tokens,
            output_tokens_details=OutputTokensDetails(
                reasoning_tokens=self.output_tokens_details.reasoning_tokens
                + other.output_tokens_details.reasoning_tokens
            ),
            total_tokens=self.total_tokens + other.total_tokens,
        )
