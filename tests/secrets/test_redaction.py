from __future__ import annotations

import json
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.secrets.keys import new_key
from perdure.secrets.redaction import LONGEST_TEXT, MASK, Redactor

SECRET = 'p@ss"word/with spaces+0123'


def test_registered_values_are_masked_however_they_are_escaped() -> None:
    redactor = Redactor([SECRET])
    for form in (SECRET, quote(SECRET, safe=""), json.dumps(SECRET)[1:-1]):
        assert redactor.mask(f"a {form} b {form}") == f"a {MASK} b {MASK}"
        assert form not in redactor.redact(f"a {form} b")


def test_a_secret_inside_another_leaves_no_ends_behind() -> None:
    redactor = Redactor(["01234567", "xx01234567yy"])
    assert redactor.mask("xx01234567yy 01234567") == f"{MASK} {MASK}"


def test_values_can_be_registered_later_and_short_ones_are_ignored() -> None:
    redactor = Redactor(["short", ""])
    assert redactor.mask("short story") == "short story"
    redactor.register("a-later-secret")
    assert redactor.mask("a-later-secret") == MASK


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abcdefgh.123", f"Authorization: {MASK}"),
        ("{'authorization': 'Bearer abcdefgh12'}", f"{{'authorization': '{MASK}'}}"),
        ("sent bearer abcdefgh12 along", f"sent bearer {MASK} along"),
        ("Basic dXNlcjpwYXNz is no secret", f"Basic {MASK} is no secret"),
        ('{"api_key": "0123456789", "n": 1}', f'{{"api_key": "{MASK}", "n": 1}}'),
        ("GET /v1?api-key=0123456789&page=2", f"GET /v1?api-key={MASK}&page=2"),
        ("password=hunter22;user=x", f"password={MASK};user=x"),
        ("postgresql://me:hunter2@db/x", f"postgresql://me:{MASK}@db/x"),
        ("key sk-proj-abcdefghij0123456789 used", f"key {MASK} used"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", MASK),
        ("AKIAABCDEFGHIJKLMNOP", MASK),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", MASK),
        ("-----BEGIN RSA PRIVATE KEY-----\nMII\nabc\n-----END RSA PRIVATE KEY-----\nnext", f"{MASK}\nnext"),
        ("-----BEGIN PRIVATE KEY-----\nMIIcut", MASK),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, expected: str) -> None:
    assert Redactor().redact(text) == expected


def test_our_own_keys_are_recognised_without_being_registered() -> None:
    _, secret, _ = new_key()
    assert Redactor().redact(f"refused {secret}.") == f"refused {MASK}."


@pytest.mark.parametrize(
    "text",
    [
        "the bearer of good news",
        "max_output_tokens: 4096, input_tokens=12345678",
        "task-force-of-the-many-words",
        "https://example.com:8700/a@b and http://host/path",
        "provider.openai.api_key: is not usable",
        "sess_0123456789abcdefghijABCD item_0123456789abcdefghijABCD",
        "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert Redactor([SECRET]).redact(text) == text


def test_masking_data_changes_registered_values_only() -> None:
    redactor = Redactor(["registered-secret"])
    data = {"a": ["registered-secret", {"b-registered-secret": "Bearer abcdefgh12"}], "n": 1.5, "none": None}
    assert redactor.mask_json(data) == {
        "a": [MASK, {f"b-{MASK}": "Bearer abcdefgh12"}],
        "n": 1.5,
        "none": None,
    }


def test_a_long_text_is_shortened_and_a_secret_at_the_cut_is_still_masked() -> None:
    text = "x" * (LONGEST_TEXT - 20) + " sk-" + "s" * 100 + " " + "y" * 100_000
    short = Redactor().redact(text)
    assert len(short) < LONGEST_TEXT + 100
    assert "sss" not in short
    assert short.endswith(f"… [shortened from {len(text)} characters]")


@pytest.mark.parametrize(
    "unit",
    [
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN ",
        "eyJ" + "a" * 4096,
        "eyJaaaaaaaa.",
        "://a:",
        "bearer        ",
        "password = ",
        "api_key'",
        "sk-",
        "a",
        "-",
        " ",
    ],
)
def test_the_cost_of_hostile_text_is_bounded(unit: str) -> None:
    text = unit * (LONGEST_TEXT // len(unit))
    begin = time.process_time()
    Redactor([SECRET]).redact(text)
    assert time.process_time() - begin < 2.0


@given(st.text(), st.text(), st.text(alphabet="ABC0123/%", min_size=8))
def test_a_registered_value_never_survives(before: str, after: str, secret: str) -> None:
    assert secret not in Redactor([secret]).mask(before + secret + secret[:4] + after)
