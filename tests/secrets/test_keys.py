from __future__ import annotations

import hashlib
import re

import pytest

from perdure.secrets.keys import SCOPES, ApiKey, digest, hint, matches, new_key, scope_of


def make_key(**changes: object) -> ApiKey:
    fields: dict[str, object] = {
        "id": "key_1",
        "project_id": "default",
        "name": "",
        "scopes": frozenset(SCOPES),
        "created_us": 1,
        "revoked_us": None,
        "hint": "…",
    }
    return ApiKey(**(fields | changes))  # type: ignore[arg-type]


def test_a_new_key_has_a_public_id_and_43_random_characters() -> None:
    key_id, secret, stored = new_key()
    found = re.fullmatch(r"perdure_([0-9A-Za-z]{12})_([0-9A-Za-z]{43})", secret)
    assert found is not None
    assert key_id == f"key_{found[1]}"
    assert stored == hashlib.sha256(secret.encode()).digest() == digest(secret)


def test_keys_do_not_repeat() -> None:
    made = [new_key() for _ in range(200)]
    for column in zip(*made, strict=True):
        assert len(set(column)) == 200


def test_only_the_whole_text_matches_its_digest() -> None:
    _, secret, stored = new_key()
    assert matches(secret, stored)
    for wrong in (secret[:-1], secret + "x", secret.upper(), "", " " + secret):
        assert not matches(wrong, stored)


def test_a_text_that_is_no_unicode_is_a_wrong_key_and_no_crash() -> None:
    assert not matches("\udcff", digest("x"))


def test_a_hint_does_not_tell_the_secret() -> None:
    _, secret, _ = new_key()
    assert hint(secret) == secret[:21] + "…"
    assert hint("sk-proj-0123456789abcdef0123") == "sk-p…"
    assert hint("short-key") == "…"
    assert hint("perdure_x_y") == "…"


def test_scopes_are_separate_and_end_with_the_key() -> None:
    reader = make_key(scopes=frozenset({"api.agents.read"}))
    assert reader.allows("api.agents.read")
    assert not reader.allows("api.agents.write")
    assert not make_key(scopes=frozenset({"api.agents.write"})).allows("api.agents.read")
    assert not make_key(revoked_us=5).allows("api.agents.read")


def test_scopes_have_short_names() -> None:
    assert [scope_of(word) for word in ("read", "write", "metrics", "api.agents.read")] == [
        "api.agents.read",
        "api.agents.write",
        "api.metrics.read",
        "api.agents.read",
    ]
    for word in ("", "agents.read", "admin", "READ"):
        with pytest.raises(ValueError, match="allowed: read, write, metrics"):
            scope_of(word)
