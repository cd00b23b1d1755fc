from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.conformance.conftest import PrivateServers


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[PrivateServers]:
    """Servers with metrics of their own: what one test does is all that they count."""
    with ExitStack() as stack:
        yield PrivateServers(tmp_path, stack)
