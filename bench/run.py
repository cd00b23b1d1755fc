"""The entry of `bench/run`; the suite itself is `bench.suite`."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # Run as a script, the search path begins with this directory instead of the project's.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from bench.suite import main

    raise SystemExit(main())
