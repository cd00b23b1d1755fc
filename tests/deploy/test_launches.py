"""Every process that a deployment file starts: its command, its settings, its time to stop."""

from __future__ import annotations

import re

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from perdure.api.app import create_app
from perdure.cli.main import app
from perdure.config.problems import known_keys
from perdure.config.settings import SECTIONS, Settings, load_settings

from .files import DEPLOY, DOCKERFILE, Launch, compose, environment_file, image_environment, instructions
from .files import launches as all_launches

LAUNCHES = list(all_launches())
VARIABLES = {
    *(f"PERDURE_{key.upper()}" for key in known_keys(Settings) if key not in SECTIONS and key != "provider"),
    *(f"PERDURE_{name}_{key}".upper() for name, model in SECTIONS.items() for key in known_keys(model)),
}
NAMED = re.compile(r"PERDURE_[A-Z0-9_]+")

every_launch = pytest.mark.parametrize("launch", LAUNCHES, ids=str)


def test_servers_workers_and_upgrades_are_started() -> None:
    begun = {launch.arguments[0] for launch in LAUNCHES}
    assert begun == {"serve", "worker", "db"}
    assert len(LAUNCHES) >= 10


@every_launch
def test_the_command_exists_with_these_options(launch: Launch) -> None:
    command, arguments = get_command(app), list(launch.arguments)
    while hasattr(command, "commands"):
        command = command.commands[arguments.pop(0)]
    # Raises for an option or an argument that the command does not have, and for a wrong value.
    context = command.make_context("perdure", [*arguments])
    assert context.params.keys()
    for option in (word for word in arguments if word.startswith("--")):
        assert option in _help(launch), option


def _help(launch: Launch) -> str:
    names = [word for word in launch.arguments if re.fullmatch(r"[a-z]+", word)]
    shown = CliRunner().invoke(app, [*names, "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    return shown.output


@every_launch
def test_the_settings_are_accepted(launch: Launch) -> None:
    settings = load_settings(None, {"HOME": "/home/someone", **launch.environ})
    if "--workers" in launch.arguments or launch.arguments[0] == "worker":
        assert settings.database.startswith("postgresql://")
    if settings.server.host != "127.0.0.1":
        assert settings.api_key is not None


@every_launch
def test_a_process_has_longer_to_stop_than_it_takes(launch: Launch) -> None:
    if launch.grace is None:
        return
    settings = load_settings(None, {"HOME": "/home/someone", **launch.environ})
    assert launch.grace > settings.work.drain + settings.server.shutdown_grace


def test_every_variable_that_a_file_names_is_one_of_the_settings() -> None:
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            unknown = set(NAMED.findall(path.read_text("utf-8"))) - VARIABLES
            assert unknown == set(), path.name


def test_examples_hold_no_secret() -> None:
    for path in DEPLOY.rglob("*.example"):
        for name, value in environment_file(path).items():
            if re.search("KEY|PASSWORD|SECRET|TOKEN", name):
                assert value == "aVeryLongSecret", f"{path.name}: {name} is not empty"


def test_workers_answer_scrapes_where_the_files_say() -> None:
    for launch in LAUNCHES:
        if launch.arguments[0] == "worker" and "PERDURE_WORK_METRICS_PORT" in launch.environ:
            settings = load_settings(None, {"HOME": "/home/someone", **launch.environ})
            assert settings.work.metrics_port is not None


def test_ports_and_probes_are_those_of_the_server() -> None:
    port = str(Settings().server.port)
    assert [each.value for each in instructions() if each.name == "EXPOSE"] == [port]
    (check,) = [each.value for each in instructions() if each.name == "HEALTHCHECK"]
    (url,) = re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", check)
    assert url[0] == port
    assert url[1] in {getattr(route, "path", None) for route in create_app().routes}
    (published,) = compose()["services"]["api"]["ports"]
    assert published.endswith(f":{port}")
    assert published.startswith("127.0.0.1:")


def test_the_image_serves_everybody_who_has_a_key() -> None:
    environ = image_environment()
    assert environ["PERDURE_SERVER_HOST"] == "0.0.0.0"
    assert "PERDURE_API_KEY" not in DOCKERFILE.read_text("utf-8")
