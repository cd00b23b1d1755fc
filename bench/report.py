"""Results: one row a number, beside its limit and beside what a bare client needs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal


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
        value = round(self.value, 6)
        kept = value <= self.limit if self.at == "most" else value >= self.limit
        return "kept" if kept else "OVER" if self.at == "most" else "UNDER"


@dataclass(frozen=True)
class Result:
    """What one benchmark gave, and the state of the machine meanwhile.

    `used_by_others`: the share of all cores that other processes used. `fixed_work_seconds`: see
    `bench.machine.fixed_work_seconds`.
    """

    rows: tuple[Row, ...]
    used_by_others: float
    fixed_work_seconds: float


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; `share` from 0 to 1."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def as_lines(result: Result) -> list[str]:
    """The rows of one benchmark as aligned text, and how far they can be trusted."""
    table = [("", "ours", "limit", "beside", "")]
    for row in result.rows:
        sign = "≤" if row.at == "most" else "≥"
        beside = "" if row.beside is None else f"{number(row.beside)} ({row.beside_what})"
        limit = "" if row.limit is None else f"{sign} {number(row.limit)}"
        table.append((row.what, f"{number(row.value)} {row.unit}", limit, beside, row.verdict))
    widths = [max(len(cells[column]) for cells in table) for column in range(5)]
    lines = []
    for what, ours, limit, beside, verdict in table:
        cells = (
            what.ljust(widths[0]),
            ours.rjust(widths[1]),
            limit.rjust(widths[2]),
            beside.ljust(widths[3]),
            verdict,
        )
        lines.append(("  " + "   ".join(cells)).rstrip())
    fixed = f"fixed work took {result.fixed_work_seconds * 1e3:.1f} ms"
    lines.append(f"  (other processes used {result.used_by_others:.0%} of the machine; {fixed})")
    return lines


def as_data(result: Result) -> dict[str, Any]:
    rows = [{**asdict(row), "verdict": row.verdict or None} for row in result.rows]
    return {**asdict(result), "rows": rows}


def record(document: Path, name: str, machine: Mapping[str, str], result: Result) -> None:
    """Replace the benchmark's table in a Markdown document, or add it at the end."""
    where = f"{machine['date']}: {machine['processor']}, {machine['cores']} cores, Python {machine['python']}"
    disk = f"4 KiB made durable in {machine['durable 4 KiB write']}"
    lines = [f"{where}, {disk}", *as_lines(result)]
    section = "\n".join([f"### {name}", "", "```text", *lines, "```", ""])
    text = document.read_text()
    present = re.compile(rf"^### {re.escape(name)}\n.*?^```\n", re.MULTILINE | re.DOTALL)
    # A function, because a replacement text would be searched for escapes.
    text, replaced = present.subn(lambda _: section, text)
    document.write_text(text if replaced else f"{text.rstrip()}\n\n{section}")


def number(value: float) -> str:
    """Three digits that count, and thousands apart."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 4)}f}"
