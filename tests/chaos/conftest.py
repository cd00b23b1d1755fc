from __future__ import annotations

import os
import random

import pytest

SEED = os.environ.get("PERDURE_SEED") or str(random.SystemRandom().randrange(1 << 30))
"""The seed of every choice here; `PERDURE_SEED` repeats a run."""


def pytest_report_header() -> str:
    return f"chaos tests: PERDURE_SEED={SEED}"


@pytest.fixture(scope="session")
def seed() -> str:
    return SEED


@pytest.fixture(autouse=True)
def printed_seed(seed: str) -> None:
    """Captured, and shown with a test that fails."""
    print(f"PERDURE_SEED={seed}")
