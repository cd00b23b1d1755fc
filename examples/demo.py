"""The life of a session in eight acts, on a real perdure server: no key, no network, a few seconds.

    python examples/demo.py

Exit status: 0 if all that the demo claims was true, 1 if not, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from openai import OpenAIError
from rich.console import Console

from story.chain import show_the_chain
from story.crash import kill_the_server, see_the_turn_end
from story.first_turn import ask_for_an_order
from story.other_process import continue_elsewhere
from story.recovery import lose_and_recover_a_stream
from story.repair import refuse_a_bad_argument
from story.server import Server, ServerFailed, running_server
from story.stage import ClaimBroken, Stage
from story.three_at_once import compare_with_subagents

SETTINGS = Path(__file__).parent / "settings.toml"
LONGEST_SECONDS = 120


def play(stage: Stage, server: Server) -> None:
    """All acts, most of them in one session, against a running server."""
    stage.act("The server", "One process with everything in one directory. No account, no key of a provider.")
    stage.tell(f"perdure serve, process {server.process_id}, listens on {server.url}")
    stage.tell(f"It made an API key at its first start: {server.api_key[:12]}… in {server.key_file}")
    mode = stat.S_IMODE(server.key_file.stat().st_mode)
    stage.check(f"Only its owner can read the key (mode {mode:04o}).", mode == 0o600)

    with server.client() as client:
        stage.act("A tool with a schema", "The official client, a streamed session, one call and its result.")
        session_id = ask_for_an_order(client, stage)

        stage.act("Another process", "It gets the session's id and nothing else.")
        continue_elsewhere(client, stage, server, session_id)

        stage.act("A bad argument", "A call that breaks the tool's schema is refused before your code runs.")
        refuse_a_bad_argument(client, stage, session_id)

        stage.act(
            "A lost connection", "The stream breaks in mid-sentence. The documented procedure recovers it."
        )
        lose_and_recover_a_stream(client, stage, session_id)

        stage.act("A killed server", "The server dies in mid-sentence. The next one finishes the turn.")
        seen = kill_the_server(client, stage, server, session_id)

    server.start()
    with server.client() as client:
        see_the_turn_end(client, stage, server, session_id, seen)

        stage.act("Three at once", "Subagents share the work on one order, beside each other.")
        compare_with_subagents(client, stage)

        stage.act("The chain of ids", "What happened, from the lists of the API.")
        show_the_chain(client, stage, session_id)


def main() -> int:
    """Play the demo on a fresh server; returns the exit status."""
    arguments = read_arguments()
    console = Console(highlight=False)
    stage = Stage(console)
    started = time.monotonic()
    try:
        with data_directory(arguments.keep) as data_dir, running_server(SETTINGS, data_dir) as server:
            play(stage, server)
    except SystemExit:
        console.print("\nStopped, and the server with it.")
        raise
    except (ClaimBroken, ServerFailed, OpenAIError, subprocess.SubprocessError) as error:
        console.print(f"\n✗ {type(error).__name__}: {error}", style="bold red", markup=False)
        return 1
    console.print(f"\n{stage.checked} claims, all of them true, in {time.monotonic() - started:.1f} s.")
    if arguments.keep:
        console.print(f"Look around: perdure serve --config {SETTINGS} --data-dir {data_dir}", soft_wrap=True)
    return 0


def read_arguments() -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="keep the server's data directory")
    return parser.parse_args()


@contextmanager
def data_directory(keep: bool) -> Iterator[Path]:
    """A fresh directory for the server; it is removed at the end unless it is to be kept."""
    directory = Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    try:
        yield directory
    finally:
        if not keep:
            shutil.rmtree(directory)


def end_in_order(number: int, frame: FrameType | None) -> None:
    """Turn a signal into an exception, so that the server is stopped and its directory removed."""
    if number == getattr(signal, "SIGALRM", None):
        raise ClaimBroken(f"The demo ends within {LONGEST_SECONDS} s.")
    signal.signal(number, signal.SIG_IGN)  # the end takes a moment, and once is enough
    sys.exit(128 + number)


if __name__ == "__main__":
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), end_in_order)
    if hasattr(signal, "alarm"):
        signal.alarm(LONGEST_SECONDS)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show every character
    sys.exit(main())
