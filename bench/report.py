"""Results: one row a number, beside its limit and beside what a bare client needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True)
class Row:
    """One measured number.

    `limit` is what the project promises (None: told for information); `beside` is the same work
    without us, in the same unit, and `beside_what` names it.
    """

    what: str
    value: float
    unit: str
    limit: float | None = None
    at: Literal["most", "least"] = "most"
    beside: float | None = None
    beside_what: str = "bare client"

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return ""
        kept = self.value <= self.limit if self.at == "most" else self.value >= self.limit
        return "kept" if kept else "OVER" if self.at == "most" else "UNDER"


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; `share` from 0 to 1."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def as_lines(name: str, rows: Iterable[Row]) -> list[str]:
    """The rows of one benchmark as aligned text."""
    table = [("", "ours", "limit", "beside", "")]
    for row in rows:
        sign = "≤" if row.at == "most" else "≥"
        beside = "" if row.beside is None else f"{number(row.beside)} ({row.beside_what})"
        limit = "" if row.limit is None else f"{sign} {number(row.limit)}"
        table.append((row.what, f"{number(row.value)} {row.unit}", limit, beside, row.verdict))
    widths = [max(len(cells[column]) for cells in table) for column in range(5)]
    lines = [name]
    for what, ours, limit, beside, verdict in table:
        cells = (
            what.ljust(widths[0]),
            ours.rjust(widths[1]),
            limit.rjust(widths[2]),
            beside.ljust(widths[3]),
            verdict,
        )
        lines.append(("  " + "   ".join(cells)).rstrip())
    return lines


def as_data(rows: Iterable[Row]) -> list[dict[str, object]]:
    return [{**asdict(row), "verdict": row.verdict or None} for row in rows]


def number(value: float) -> str:
    """Three digits that count, and thousands apart."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 4)}f}"
