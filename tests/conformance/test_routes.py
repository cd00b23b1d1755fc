from __future__ import annotations

import httpx2
from tests.server import ServerProcess

from .later_routes import LATER
from .sdk_routes import Route, anonymous, sdk_routes


def served_routes(server: ServerProcess) -> set[Route]:
    document = httpx2.get(f"{server.url}/openapi.json").raise_for_status().json()
    return {
        (method.upper(), anonymous(path).removeprefix("/v1"))
        for path, operations in document["paths"].items()
        for method in operations
        if path.startswith("/v1/")
    }


def test_the_source_of_the_official_client_yields_its_whole_catalogue() -> None:
    routes = sdk_routes()
    assert len(routes) >= 60
    for known in (
        ("POST", "/agents"),
        ("GET", "/agents/sessions/{}/turns/{}/items"),
        ("DELETE", "/vaults/{}/credentials/{}"),
        ("POST", "/webhook_endpoints/{}/rotate_secret"),
    ):
        assert known in routes


def test_every_route_of_the_official_client_is_served_or_listed_for_later(server: ServerProcess) -> None:
    assert sdk_routes() - served_routes(server) - set(LATER) == set()


def test_no_route_listed_for_later_is_served_already(server: ServerProcess) -> None:
    assert set(LATER) & served_routes(server) == set()


def test_every_route_listed_for_later_is_one_the_official_client_calls() -> None:
    assert set(LATER) - sdk_routes() == set()


def test_the_agents_prefix_holds_official_routes_only(server: ServerProcess) -> None:
    agents = {(method, path) for method, path in served_routes(server) if path.startswith("/agents")}
    assert agents - sdk_routes() == set()
