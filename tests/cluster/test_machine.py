"""Sessions live at random on a cluster whose nodes are asked in turn, by the rules of a single server."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.machine.script import MODELS, SCRIPT, SETTINGS
from tests.machine.test_machine import TIMEOUT, SessionMachine
from tests.server import scripted_config

from .conftest import MakeCluster
from .installation import Cluster, Part

pytestmark = pytest.mark.slow


class InTurn(httpx2.BaseTransport):
    """Sends each request to another node than the one before it."""

    def __init__(self, nodes: list[Part]) -> None:
        self._wires = httpx2.HTTPTransport(limits=httpx2.Limits(max_connections=None))
        self._nodes = itertools.cycle(nodes)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        request.url = request.url.copy_with(port=urlsplit(next(self._nodes).url).port)
        return self._wires.handle_request(request)

    def close(self) -> None:
        self._wires.close()


class Whole:
    """A cluster, as the machine knows a server."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.config = cluster.config

    def start(self) -> None:
        self.cluster.start()

    def kill(self) -> None:
        self.cluster.kill()

    def terminate(self) -> int:
        """End every process; the exit status of all of them."""
        self.cluster.stop()
        return 0

    def stderr(self) -> str:
        return self.cluster.logged()


class ClusterMachine(SessionMachine):
    """`server` is the whole cluster."""

    def connect(self) -> tuple[httpx2.Client, httpx2.Client]:
        whole = self.server
        assert isinstance(whole, Whole)
        nodes = whole.cluster.nodes
        headers = {"Authorization": f"Bearer {nodes[0].api_key}", "OpenAI-Beta": "agents=v1"}
        client, root = (
            httpx2.Client(base_url=url, headers=headers, timeout=TIMEOUT, transport=InTurn(nodes))
            for url in (nodes[0].base_url, nodes[0].url)
        )
        return client, root


def test_sessions_live_by_the_rules_on_a_cluster(
    make_cluster: MakeCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    given = request.config.getoption("--hypothesis-seed")
    chosen = random.SystemRandom().getrandbits(32) if given in (None, "random") else int(given)
    long = request.config.getoption("--long")
    print(f"reproduce with --hypothesis-seed={chosen}" + (" --long" if long else ""))
    (tmp_path / "gates").mkdir()
    config = scripted_config(tmp_path, dict.fromkeys(MODELS, SCRIPT), SETTINGS)
    whole = Whole(make_cluster(workers=1, config=config))
    whole.start()

    @seed(chosen)
    class Machine(ClusterMachine):
        server = whole  # type: ignore[assignment]

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=60 if long else 4,
            stateful_step_count=30 if long else 12,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate,),
            print_blob=False,
        ),
    )
    assert "Traceback" not in whole.stderr(), whole.stderr()
    whole.cluster.stop()
