"""The perdure processes of the tests."""

from __future__ import annotations

from pathlib import Path

from tests.server import ServerProcess, scripted_config


def test_a_server_uses_the_database_it_is_given(tmp_path: Path) -> None:
    database = tmp_path / "elsewhere.db"
    config = scripted_config(tmp_path, {})
    with ServerProcess(config, tmp_path / "data", database=f"sqlite:///{database}") as server:
        assert database.exists()
        key = server.create_key()
    assert key != server.api_key
    assert not list((tmp_path / "data").glob("*.db"))
