"""The Compose file: what services name exists, and secrets stay outside."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .files import COMPOSE, DEPLOY, ROOT, compose, environment_file

FILE = compose()
SERVICES: dict[str, Any] = FILE["services"]
KEYS = {
    "build", "cap_drop", "command", "depends_on", "deploy", "environment", "expose", "healthcheck", "image",
    "init", "networks", "ports", "read_only", "restart", "security_opt", "stop_grace_period", "tmpfs",
    "volumes",
}  # fmt: skip
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}

every_service = pytest.mark.parametrize("name", SERVICES)


def test_the_file_has_only_known_parts() -> None:
    assert {key for key in FILE if not key.startswith("x-")} == {"name", "services", "volumes", "networks"}
    assert set(SERVICES) == {"database", "upgrade", "api", "worker"}


@every_service
def test_a_service_has_only_known_keys(name: str) -> None:
    assert set(SERVICES[name]) <= KEYS
    assert SERVICES[name]["restart"] in ("no", "always", "on-failure", "unless-stopped")
    assert all(isinstance(value, str) for value in SERVICES[name]["environment"].values())


@every_service
def test_what_a_service_names_exists(name: str) -> None:
    service = SERVICES[name]
    assert set(service["networks"]) <= set(FILE["networks"])
    for volume in service.get("volumes", ()):
        assert volume.partition(":")[0] in FILE["volumes"]
    if "build" in service:
        context = (COMPOSE.parent / service["build"]["context"]).resolve()
        assert context == ROOT
        assert (context / service["build"]["dockerfile"]).is_file()


@every_service
def test_a_service_waits_for_what_can_come_true(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert how["condition"] in CONDITIONS
        if how["condition"] == "service_healthy":
            assert "test" in SERVICES[other]["healthcheck"]
        if how["condition"] == "service_completed_successfully":
            assert SERVICES[other]["restart"] == "no"


def test_every_network_and_volume_is_used() -> None:
    assert {each for service in SERVICES.values() for each in service["networks"]} == set(FILE["networks"])
    used = {text.partition(":")[0] for service in SERVICES.values() for text in service.get("volumes", ())}
    assert used == set(FILE["volumes"])


def test_the_database_is_reached_by_its_services_alone() -> None:
    (network,) = SERVICES["database"]["networks"]
    assert FILE["networks"][network]["internal"] is True
    assert "ports" not in SERVICES["database"]
    user = SERVICES["database"]["environment"]["POSTGRES_USER"]
    database = SERVICES["database"]["environment"]["POSTGRES_DB"]
    for name in ("upgrade", "api", "worker"):
        assert network in SERVICES[name]["networks"]
        url = SERVICES[name]["environment"]["PERDURE_DATABASE"]
        assert re.fullmatch(
            rf"postgresql://{user}:\$\{{POSTGRES_PASSWORD:\?.+\}}@database:5432/{database}", url
        )


def test_only_the_api_is_published_and_two_workers_run() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["api"]
    assert SERVICES["worker"]["deploy"]["replicas"] == 2
    assert SERVICES["api"]["command"] == ["serve", "--workers", "0"]


def test_secrets_come_from_a_file_that_nobody_commits() -> None:
    for service in SERVICES.values():
        for name, value in service["environment"].items():
            if re.search("KEY|PASSWORD", name):
                assert re.fullmatch(r"\$\{\w+:[?-][^}]*\}", value), name
    wanted = set(re.findall(r"\$\{(\w+)", COMPOSE.read_text("utf-8")))
    assert set(environment_file(DEPLOY / "env.example")) == wanted
    assert "/deploy/.env" in (ROOT / ".gitignore").read_text("utf-8").splitlines()


@pytest.mark.parametrize("name", ["upgrade", "api", "worker"])
def test_services_of_ours_have_no_rights(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    if name != "api":
        assert service["healthcheck"] == {"disable": True}
