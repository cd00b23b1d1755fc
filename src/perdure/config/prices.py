"""What models cost: `[[price]]` tables, from which calls are estimated in money."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field, field_validator

from perdure.config.problems import Form, Unit
from perdure.config.sections import Section

NANO = 1_000_000_000
"""Costs are counted in billionths of the currency's unit."""

Price = Annotated[float, Unit("currency units per million tokens")]


class PriceSettings(Section):
    """`[[price]]`: the price of models, per million tokens. The first table that matches a call counts."""

    models: tuple[str, ...] = Field(min_length=1)
    """Names of models at their provider, or as agents use them, with `*`, `?` and `[…]` as wildcards."""
    provider: str | None = Field(None, min_length=1)
    """Name of the provider; unset means any."""
    input: Price = Field(ge=0, le=1_000_000)
    """Input that no cache had."""
    cached_input: Annotated[float | None, Unit("currency units per million tokens")] = Field(
        None, ge=0, le=1_000_000
    )
    """Input read from the provider's cache; unset means the price of input."""
    cache_write: Annotated[float | None, Unit("currency units per million tokens")] = Field(
        None, ge=0, le=1_000_000
    )
    """Input written to the provider's cache; unset means the price of input."""
    output: Price = Field(ge=0, le=1_000_000)
    """Output, reasoning included."""
    currency: Annotated[str, Form("three capital letters, the same in all tables")] = Field(
        "USD", pattern=r"^[A-Z]{3}$"
    )
    """Code of the currency."""

    @field_validator("models")
    @classmethod
    def _check_models(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(pattern.strip() for pattern in value):
            raise ValueError("has an empty pattern; allowed: model names or patterns, none of them empty")
        return value

    def serves(self, provider: str, names: Sequence[str]) -> bool:
        """Whether the table is about a model of a provider, under any of its names."""
        if self.provider not in (None, provider):
            return False
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.models)

    def cost(self, *, read: int, cached: int, written: int, output: int) -> int:
        """The cost of a call in billionths of the currency's unit.

        Args:
            read: all input tokens; `cached` of them came from a cache, `written` went into one.
        """
        fresh = max(0, read - cached - written)
        cached_price = self.input if self.cached_input is None else self.cached_input
        written_price = self.input if self.cache_write is None else self.cache_write
        per_million = (
            fresh * self.input + cached * cached_price + written * written_price + output * self.output
        )
        return round(per_million * (NANO / 1_000_000))


def find_price(prices: Sequence[PriceSettings], provider: str, *names: str) -> PriceSettings | None:
    """The price of a model of a provider, by any of its names; None when nobody told it."""
    return next((price for price in prices if price.serves(provider, names)), None)
