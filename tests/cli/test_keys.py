from __future__ import annotations

import json
import re
import stat

from tests.cli.conftest import Perdure

from perdure.config.settings import load_settings
from perdure.secrets.keys import ApiKey, digest
from perdure.store.engine import open_sync_connection
from perdure.store.keys import find_key


def find(perdure: Perdure, secret: str) -> ApiKey | None:
    settings = load_settings(None, {"HOME": str(perdure.home)})
    with open_sync_connection(settings.database) as conn:
        return find_key(conn, digest(secret))


def test_a_new_key_is_printed_alone_on_standard_output_and_kept_as_its_digest(perdure: Perdure) -> None:
    outcome = perdure("keys", "create", "--name", "laptop")
    secret = outcome.stdout.removesuffix("\n")
    assert re.fullmatch(r"perdure_\w{12}_\w{43}", secret)
    assert secret not in outcome.stderr
    key = find(perdure, secret)
    assert key is not None
    assert (key.project_id, key.name, key.revoked_us) == ("default", "laptop", None)
    assert key.scopes == {"api.agents.read", "api.agents.write"}
    assert key.id in outcome.stderr
    for file in perdure.data_dir.iterdir():
        assert secret.encode() not in file.read_bytes()
    assert stat.S_IMODE(perdure.data_dir.stat().st_mode) == 0o700


def test_a_key_has_the_project_and_scopes_it_was_made_with(perdure: Perdure) -> None:
    secret = perdure("keys", "create", "--project", "lab", "--scope", "read").stdout.strip()
    key = find(perdure, secret)
    assert key is not None
    assert key.project_id == "lab"
    assert key.scopes == {"api.agents.read"}
    both = perdure("keys", "create", "--scope", "write", "--scope", "read", "--scope", "read").stdout.strip()
    key = find(perdure, both)
    assert key is not None
    assert key.scopes == {"api.agents.read", "api.agents.write"}


def test_an_unknown_scope_or_an_empty_project_makes_no_key(perdure: Perdure) -> None:
    assert "allowed: read, write" in " ".join(
        perdure("keys", "create", "--scope", "admin", status=2).stderr.split()
    )
    perdure("keys", "create", "--project", " ", status=2)
    assert not perdure.data_dir.exists()


def test_the_list_shows_hints_and_never_a_key(perdure: Perdure) -> None:
    first = perdure("keys", "create", "--name", "one [bold]").stdout.strip()
    second = perdure("keys", "create", "--name", "two", "--project", "lab").stdout.strip()
    text = perdure("keys", "list").stdout
    assert "one [bold]" in text
    assert "two" in text
    for secret in (first, second):
        assert secret[:21] in text
        assert secret[21:] not in text
    lab = perdure("keys", "list", "--project", "lab").stdout
    assert "two" in lab
    assert "one" not in lab


def test_the_list_as_json_is_complete(perdure: Perdure) -> None:
    assert json.loads(perdure("keys", "list", "--json").stdout) == []
    secret = perdure("keys", "create").stdout.strip()
    (key,) = json.loads(perdure("keys", "list", "--json").stdout)
    assert key["hint"] == secret[:21] + "…"
    assert key["scopes"] == ["api.agents.read", "api.agents.write"]
    assert key["revoked_us"] is None


def test_an_empty_list_says_so(perdure: Perdure) -> None:
    outcome = perdure("keys", "list")
    assert outcome.stdout == ""
    assert "no keys" in outcome.stderr


def test_a_revoked_key_is_listed_and_no_longer_found(perdure: Perdure) -> None:
    secret = perdure("keys", "create").stdout.strip()
    key = find(perdure, secret)
    assert key is not None
    assert f"Revoked {key.id}" in perdure("keys", "revoke", key.id).stderr
    assert find(perdure, secret) is None
    (listed,) = json.loads(perdure("keys", "list", "--json").stdout)
    assert listed["revoked_us"] > listed["created_us"]
    assert key.id in perdure("keys", "revoke", key.id, status=1).stderr


def test_a_key_that_does_not_exist_cannot_be_revoked(perdure: Perdure) -> None:
    assert "key_nobody" in perdure("keys", "revoke", "key_nobody", status=1).stderr


def test_the_data_directory_and_the_database_can_be_chosen(perdure: Perdure) -> None:
    perdure("keys", "create", "--data-dir", perdure.home / "a")
    assert (perdure.home / "a" / "perdure.db").exists()
    url = f"sqlite:///{perdure.home}/b.db"
    perdure("keys", "create", "--name", "b", "--database", url)
    assert '"name": "b"' in perdure("keys", "list", "--json", "--database", url).stdout
    config = perdure.config(f'database = "{url}"\n')
    assert '"name": "b"' in perdure("keys", "list", "--json", "--config", config).stdout
    assert not perdure.data_dir.exists()


def test_a_file_that_is_no_database_is_an_error_without_traceback(perdure: Perdure) -> None:
    file = perdure.home / "x.db"
    file.write_text(
        "this is a text of more than a hundred characters, and therefore no database at all. " * 3
    )
    outcome = perdure("keys", "list", "--database", f"sqlite:///{file}", status=1)
    assert outcome.stdout == ""
    assert "The database cannot be used: file is not a database" in outcome.stderr


def test_a_data_directory_that_cannot_be_made_is_an_error_without_traceback(perdure: Perdure) -> None:
    (perdure.home / "file").write_text("")
    outcome = perdure("keys", "list", "--data-dir", perdure.home / "file" / "d", status=1)
    assert "The database cannot be used" in outcome.stderr


def test_an_unusable_configuration_ends_with_status_2(perdure: Perdure) -> None:
    outcome = perdure("keys", "list", "--database", "mysql://db/x", status=2)
    assert "database: is not usable" in outcome.stderr
