"""The guide's table of metrics is what a server exposes: names, types and labels."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import Metric
from tests.conformance.conftest import PrivateServers
from tests.conformance.scripts import SETTINGS
from tests.conformance.sessions import create_idle

from .scrape import LIBRARY, scrape

GUIDE = Path(__file__).parents[2] / "docs" / "operations.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \|(.*?)\| .+ \|$", re.MULTILINE)

PRICES = '\n[[price]]\nmodels = ["*"]\ninput = 1.0\noutput = 2.0\n'


def written(family: Metric) -> str:
    """The name as the exposition writes it."""
    return family.name + ("_total" if family.type == "counter" else "")


def test_the_guide_lists_exactly_the_metrics_with_type_and_labels(servers: PrivateServers) -> None:
    server = servers(SETTINGS + PRICES)
    create_idle(servers.client(server), "flaky")
    exposed = {}
    for family in scrape(server).families.values():
        if family.name.startswith(LIBRARY):
            continue
        assert family.documentation
        assert family.samples, f"{family.name} shows no sample"
        labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        exposed[written(family)] = (family.type, labels)
    rows = ROW.findall(GUIDE.read_text("utf-8"))
    documented = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert len(documented) == len(rows)
    assert documented == exposed


def test_alerts_name_metrics_and_label_values_that_exist() -> None:
    text = GUIDE.read_text("utf-8")
    documented = {name: labels for name, _, labels in ROW.findall(text)}
    alerts = re.findall(r"^\| (`.*?`.*?) \|[^|]*\|$", text.partition("What to be told of")[2], re.MULTILINE)
    assert len(alerts) >= 6
    for alert in alerts:
        for name, selector in re.findall(r"(perdure_\w+)(?:\{(\w+)=)?", alert):
            assert name in documented, alert
            assert not selector or f"`{selector}`" in documented[name], alert


def test_names_follow_the_conventions(servers: PrivateServers) -> None:
    for family in scrape(servers()).families.values():
        if family.name.startswith(LIBRARY):
            continue
        assert re.fullmatch(r"perdure(_[a-z]+)+", family.name)
        assert not re.search(r"_(ms|us|milliseconds|minutes|kb|kib|mb|mib|percent)(_|$)", family.name)
        if family.type != "histogram":
            assert not family.name.endswith(("_count", "_sum", "_bucket"))
        assert family.type in ("counter", "gauge", "histogram")


def test_the_libraries_own_metrics_are_there(servers: PrivateServers) -> None:
    text = scrape(servers()).text
    for prefix in LIBRARY:
        assert re.search(rf"^{prefix}", text, re.MULTILINE)
