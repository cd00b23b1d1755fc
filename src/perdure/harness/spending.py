"""What one model call costs, from its start to its row among the calls of the session."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from perdure.config.prices import PriceSettings, find_price
from perdure.harness.deps import Deps
from perdure.harness.limits import Ceilings, Hit, ceilings_of
from perdure.harness.tokens import entries_tokens, fixed_tokens
from perdure.models.messages import Finished, ModelRequest, UsageTold
from perdure.models.registry import Resolved
from perdure.store.boundary import Boundary, Failure
from perdure.store.spending import ModelCall, Purpose
from perdure.wire.usage import TokenUsage


@dataclass(slots=True)
class CallRecord:
    """One call while it runs: when it began, and what its provider has told.

    `is_compacted`: a note stands in place of the beginning of the history that is sent.
    """

    request: ModelRequest
    resolved: Resolved
    price: PriceSettings | None
    purpose: Purpose = "step"
    is_compacted: bool = False
    started_us: int | None = None
    first_output_us: int | None = None
    told: UsageTold | Finished | None = None
    _began: float = field(default_factory=time.monotonic)

    @classmethod
    def of(
        cls, deps: Deps, resolved: Resolved, request: ModelRequest, name: str, purpose: Purpose = "step"
    ) -> CallRecord:
        """A call that is about to be made to the model that agents call `name`."""
        return cls(request, resolved, price_of(deps, resolved, name), purpose)

    def begin(self) -> None:
        """The request is about to leave."""
        self.started_us, self._began = time.time_ns() // 1000, time.monotonic()

    def output(self) -> None:
        """The answer has begun."""
        if self.first_output_us is None:
            self.first_output_us = time.time_ns() // 1000

    def tell(self, told: UsageTold | Finished) -> None:
        """Take in what the provider tells; an end without numbers leaves those before it."""
        if self.told is None or told.usage is not None:
            self.told = told

    @property
    def cost(self) -> tuple[PriceSettings, int] | None:
        """The price, and what the call has cost by it in billionths, as far as both are known."""
        usage = self.usage
        write = 0 if self.told is None else self.told.cache_write_tokens or 0
        cost = cost_of(self.price, usage, write)
        return None if self.price is None or cost is None else (self.price, cost)

    @property
    def usage(self) -> TokenUsage | None:
        """What the provider has told so far."""
        return None if self.told is None else self.told.usage

    @property
    def active_us(self) -> int:
        return int((time.monotonic() - self._began) * 1e6)

    def ended(self, outcome: str, written: int = 0) -> tuple[ModelCall, ...]:
        """The call as it is listed; none if it never began.

        Args:
            outcome: `ok`, `cancelled` or the code of an error.
            written: about how many tokens it answered, for the case that nobody tells.
        """
        if self.started_us is None:
            return ()
        usage, told = self.usage, self.told
        assumed = None if usage is not None else self._assumed(outcome, written)
        price = self.price
        write = None if told is None else told.cache_write_tokens
        return (
            ModelCall(
                provider=self.resolved.provider,
                model=self.resolved.upstream,
                outcome=outcome,
                started_us=self.started_us,
                ended_us=time.time_ns() // 1000,
                first_output_us=self.first_output_us,
                usage=usage,
                cache_write_tokens=write,
                is_partial=usage is not None and not isinstance(told, Finished),
                assumed=assumed,
                cost=cost_of(price, usage, write or 0),
                assumed_cost=cost_of(price, assumed, 0),
                currency=None if price is None else price.currency,
                purpose=self.purpose,
            ),
        )

    def _assumed(self, outcome: str, written: int) -> TokenUsage | None:
        """What a call counts of which nobody tells: nothing, if it was refused before it answered."""
        if outcome not in ("ok", "cancelled") and self.first_output_us is None:
            return None
        return TokenUsage.of(fixed_tokens(self.request) + entries_tokens(self.request.entries), written)


def cost_of(price: PriceSettings | None, usage: TokenUsage | None, write: int) -> int | None:
    """What a call cost in billionths of the currency's unit; None when price or usage are not known."""
    if price is None or usage is None:
        return None
    return price.cost(
        read=usage.input_tokens,
        cached=usage.input_tokens_details.cached_tokens,
        written=write,
        output=usage.output_tokens,
    )


def price_of(deps: Deps, resolved: Resolved, name: str) -> PriceSettings | None:
    """The configured price of the model that agents call `name`."""
    return find_price(deps.settings.prices, resolved.provider, resolved.upstream, name)


def ceilings_at(deps: Deps, boundary: Boundary) -> Ceilings:
    """What applies to a session as a boundary left it."""
    return ceilings_of(deps.settings.limits, boundary.metadata, boundary.limits)


def count_hit(deps: Deps, hit: Hit) -> Failure:
    """Count a ceiling that refused a call; how the turn ends for it."""
    deps.metrics.loop.limits_hit.labels(hit.limit).inc()
    return hit.failure


def written_tokens(texts: int) -> int:
    """About how many tokens so many characters are."""
    return texts // 4 + 1 if texts else 0
