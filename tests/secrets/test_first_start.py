from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from perdure.secrets.first_start import (
    CreateKey,
    Refuse,
    Serve,
    decide_first_start,
    is_loopback,
    read_key_file,
    write_key_file,
)

LOOPBACK = ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost", "LOCALHOST", "::ffff:127.0.0.1", "::1%lo"]
PUBLIC = [
    "0.0.0.0",
    "::",
    "192.168.1.4",
    "example.com",
    "localhost.example.com",
    "",
    "::ffff:10.0.0.1",
    "127.0.0.1.nip",
]


@pytest.mark.parametrize("host", LOOPBACK)
def test_a_server_without_keys_makes_one_on_loopback(host: str) -> None:
    assert is_loopback(host)
    assert decide_first_start(host, 0, False) == CreateKey()


@pytest.mark.parametrize("host", PUBLIC)
def test_a_server_without_keys_refuses_any_other_address_with_status_2(host: str) -> None:
    assert not is_loopback(host)
    decision = decide_first_start(host, 0, False)
    assert isinstance(decision, Refuse)
    assert decision.status == 2
    assert "perdure keys create" in decision.message


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize(("count", "configured"), [(1, False), (0, True), (3, True)])
def test_a_server_with_a_key_starts_anywhere(host: str, count: int, configured: bool) -> None:
    assert decide_first_start(host, count, configured) == Serve()


def test_the_key_file_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "data" / "api-key"
    before = os.umask(0)
    try:
        write_key_file(path, "secret")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.read_text() == "secret\n"
    assert read_key_file(path) == "secret"


def test_the_key_file_is_replaced_as_a_whole_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "api-key"
    path.write_text("an older and longer key\n")
    path.chmod(0o644)
    write_key_file(path, "new")
    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["api-key"]


def test_a_link_in_place_of_the_key_file_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    path = tmp_path / "api-key"
    path.symlink_to(target)
    write_key_file(path, "new")
    assert target.read_text() == "precious"
    assert not path.is_symlink()


def test_a_failed_write_leaves_neither_a_part_nor_a_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "api-key"
    write_key_file(path, "old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_key_file(path, "new")
    assert os.listdir(tmp_path) == ["api-key"]
    assert path.read_text() == "old\n"


def test_a_missing_or_empty_key_file_holds_no_key(tmp_path: Path) -> None:
    assert read_key_file(tmp_path / "absent") is None
    (tmp_path / "empty").write_text("\n")
    assert read_key_file(tmp_path / "empty") is None
