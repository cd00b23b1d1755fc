"""The benchmarks, one after the other, and what becomes of their numbers."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson

from bench import (
    clusters,
    context,
    deltas,
    dispatch,
    fanout,
    growth,
    pages,
    startup,
    subagents,
    subscribers,
    turns,
    waiting,
    wires,
)
from bench.machine import Work, cores, describe, fixed_work_seconds, raise_file_limit
from bench.report import Result, Row, as_data, as_lines, record

Benchmark = Callable[[Path, bool], list[Row]]

README = Path(__file__).with_name("README.md")
BENCHMARKS: Mapping[str, Benchmark] = {
    "turn-overhead": turns.measure_overhead,
    "turns-per-second": turns.measure_rate,
    "deltas": deltas.measure,
    "idle-subscribers": subscribers.measure,
    "waiting-sessions": waiting.measure,
    "page-latency": pages.measure,
    "start-up": startup.measure,
    "growth": growth.measure,
    "context": context.measure,
    "stores": clusters.measure_stores,
    "takeover": clusters.measure_takeover,
    "recovery": clusters.measure_recovery,
    "fan-out": fanout.measure,
    "tool-dispatch": dispatch.measure,
    "subagents": subagents.measure,
    "wires": wires.measure,
}


def main() -> int:
    """Run what was asked for; 1 when something did not work. A number over its limit is no failure."""
    options = _options()
    names: list[str] = options.only or list(BENCHMARKS)
    raise_file_limit()
    cores()
    results: dict[str, Result] = {}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-", dir=options.directory) as home:
        machine = describe(Path(home))
        print("   ".join(f"{name}: {value}" for name, value in machine.items()), flush=True)
        for name in names:
            result = _run(name, Path(home) / name, options.smoke)
            if result is None:
                continue
            results[name] = result
            print("\n" + "\n".join([name, *as_lines(result)]), flush=True)
            if options.record:
                record(README, name, machine, result)
    print(f"\n{len(results)} of {len(names)} benchmarks in {time.monotonic() - began:.0f} s", flush=True)
    broken = [name for name in names if name not in results]
    if broken:
        print(f"did not work: {', '.join(broken)}", file=sys.stderr)
    if options.json is not None:
        told = {name: as_data(result) for name, result in results.items()}
        data = {"machine": machine, "smoke": options.smoke, "benchmarks": told}
        options.json.write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2) + b"\n")
    return 1 if broken else 0


def _run(name: str, directory: Path, smoke: bool) -> Result | None:
    """One benchmark in a directory of its own; None when it did not work, which is told here."""
    directory.mkdir()
    before, speed = Work.now(), fixed_work_seconds()
    try:
        rows = BENCHMARKS[name](directory, smoke)
    except Exception as error:  # noqa: BLE001 - told here, and in the exit status
        traceback.TracebackException.from_exception(error, max_group_width=1).print(chain=False)
        for log in sorted(directory.rglob("*.log")):
            if tail := log.read_text(errors="replace")[-4000:]:
                print(f"--- {log.name}\n{tail}", file=sys.stderr)
        return None
    return Result(
        rows=tuple(rows),
        used_by_others=Work.now().others_since(before),
        fixed_work_seconds=(speed + fixed_work_seconds()) / 2,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="everything small, to see that it works")
    parser.add_argument("--only", action="append", choices=list(BENCHMARKS), help="may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to a file too")
    parser.add_argument("--record", action="store_true", help="put the tables into bench/README.md")
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="where the databases go (default: the system's)"
    )
    options = parser.parse_args()
    if options.record and options.smoke:
        parser.error("--record is for whole runs, --smoke is not one")
    return options
