"""What `/metrics` exposes, read the way a scraper reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.conformance.rawhttp import RawResponse, exchange
from tests.server import ServerProcess

OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
LIBRARY = ("process_", "python_")
"""How the names of the library's own metrics begin."""


@dataclass(frozen=True)
class Scrape:
    """One exposition. `value` and `values` name samples as they are written, with `_total`, `_count`."""

    text: str = field(repr=False)
    families: dict[str, Metric] = field(repr=False)

    @classmethod
    def of(cls, text: str, *, openmetrics: bool = False) -> Scrape:
        parse = parse_openmetrics if openmetrics else parse_text
        families = list(parse(text))
        assert len({family.name for family in families}) == len(families)
        return cls(text, {family.name: family for family in families})

    def values(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Every sample of a name by the values of these labels, added up over all other labels."""
        found: dict[tuple[str, ...], float] = {}
        for family in self.families.values():
            for sample in family.samples:
                if sample.name == name:
                    key = tuple(sample.labels[label] for label in labels)
                    found[key] = found.get(key, 0.0) + sample.value
        return found

    def value(self, name: str) -> float:
        """The one sample of a metric without labels."""
        (value,) = self.values(name).values()
        return value


def ask(server: ServerProcess, key: str | None, accept: str | None = None) -> RawResponse:
    """`GET /metrics` with this key as bearer token."""
    headers = [] if key is None else [("Authorization", f"Bearer {key}")]
    headers += [] if accept is None else [("Accept", accept)]
    return exchange(server.address, "GET", "/metrics", headers)


def scrape(server: ServerProcess) -> Scrape:
    response = ask(server, server.api_key)
    assert response.status == 200, response.body
    return Scrape.of(response.body.decode())
