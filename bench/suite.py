"""`bench/run [--smoke] [--only NAME] [--json FILE]`: the benchmarks, one after the other."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson

from bench import deltas, growth, pages, startup, subscribers, turns, waiting
from bench.machine import Work, cores, describe, fixed_work_seconds, raise_file_limit
from bench.report import Row, as_data, as_lines

Benchmark = Callable[[Path, bool], list[Row]]

BENCHMARKS: Mapping[str, Benchmark] = {
    "turn-overhead": turns.measure_overhead,
    "turns-per-second": turns.measure_rate,
    "deltas": deltas.measure,
    "idle-subscribers": subscribers.measure,
    "waiting-sessions": waiting.measure,
    "page-latency": pages.measure,
    "start-up": startup.measure,
    "growth": growth.measure,
}


def main() -> int:
    """Run what was asked for; 1 when something did not work. A number over its limit is no failure."""
    options = _options()
    names = options.only or list(BENCHMARKS)
    raise_file_limit()
    cores()
    results: dict[str, list[Row]] = {}
    others: dict[str, float] = {}
    speed: dict[str, float] = {}
    broken: list[str] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-", dir=options.directory) as home:
        machine = describe(Path(home))
        print("   ".join(f"{name}: {value}" for name, value in machine.items()), flush=True)
        for name in names:
            directory = Path(home) / name
            directory.mkdir()
            before = Work.now()
            speed[name] = fixed_work_seconds()
            try:
                results[name] = BENCHMARKS[name](directory, options.smoke)
            except Exception as error:  # noqa: BLE001 - told here, and in the exit status
                told = traceback.TracebackException.from_exception(error, max_group_width=1)
                told.print(chain=False)
                _print_logs(directory)
                broken.append(name)
                continue
            speed[name] = (speed[name] + fixed_work_seconds()) / 2
            others[name] = Work.now().others_since(before)
            print("\n" + "\n".join(as_lines(name, results[name])))
            fixed = f"fixed work took {speed[name] * 1e3:.1f} ms"
            print(f"  (other processes used {others[name]:.0%} of the machine; {fixed})", flush=True)
    print(f"\n{len(results)} of {len(names)} benchmarks in {time.monotonic() - began:.0f} s", flush=True)
    if broken:
        print(f"did not work: {', '.join(broken)}", file=sys.stderr)
    if options.json is not None:
        data = {
            "machine": machine,
            "smoke": options.smoke,
            "benchmarks": {
                name: {
                    "used_by_others": others[name],
                    "fixed_work_seconds": speed[name],
                    "rows": as_data(rows),
                }
                for name, rows in results.items()
            },
        }
        options.json.write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2) + b"\n")
    return 1 if broken else 0


def _print_logs(directory: Path) -> None:
    """What the processes of a benchmark that did not work had to say."""
    for log in sorted(directory.rglob("*.log")):
        if tail := log.read_text(errors="replace")[-4000:]:
            print(f"--- {log.name}\n{tail}", file=sys.stderr)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="everything small, to see that it works")
    parser.add_argument("--only", action="append", choices=list(BENCHMARKS), help="may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to a file too")
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="where the databases go (default: the system's)"
    )
    return parser.parse_args()
