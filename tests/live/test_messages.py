"""Messages between processes: small, complete, and harmless when they are something else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.live.messages import (
    PAYLOAD_BYTES,
    Delta,
    Gone,
    Input,
    Message,
    Newest,
    Want,
    WantText,
    WhoWants,
    letters,
    messages,
    payloads,
)

ID = "sess_0123456789abcdef01234567"
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.builds(
        lambda text, n: text * n, st.sampled_from(["a", "\x00", "☃", "😀", '"']), st.integers(0, 20_000)
    ),
)


@given(texts=st.lists(TEXTS, max_size=8))
def test_text_of_any_length_arrives_whole_in_payloads_that_are_small(texts: list[str]) -> None:
    told, at = [], 0
    for text in texts:
        told.append(Delta(ID, 1, "turn_" + "x" * 24, "msg_" + "x" * 24, 0, "output_text", 0, at, text, 7))
        at += len(text)
    packed = payloads(letter for delta in told for letter in letters(delta))
    assert all(len(payload) <= PAYLOAD_BYTES for payload in packed)
    heard = ""
    for payload in packed:
        for message in messages(payload):
            assert isinstance(message, Delta)
            assert message.at == len(heard)
            heard += message.text
    assert heard == "".join(texts)


@given(count=st.integers(0, 2000))
def test_any_number_of_wanted_sessions_fits(count: int) -> None:
    wanted = tuple(f"sess_{n:024x}" for n in range(count))
    packed = payloads(letters(Want(wanted, True)))
    assert all(len(payload) <= PAYLOAD_BYTES for payload in packed)
    heard = [message for payload in packed for message in messages(payload)]
    assert tuple(each for want in heard if isinstance(want, Want) for each in want.session_ids) == wanted


@pytest.mark.parametrize(
    "message",
    [
        Newest(ID, 7),
        Delta(ID, 3, "turn_1", "rs_1", 2, "reasoning_summary_text", 1, 40, "text", 9),
        Gone(ID),
        Input(ID),
        Want((ID,), False),
        WantText(ID, "msg_1", 12),
        WhoWants(),
    ],
)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    assert messages(payloads(letters(message))[0]) == [message]


@pytest.mark.parametrize(
    "payload",
    [b"", b"hello", b"{}", b"7", b"[7]", b'[{"kind":"newer"}]', b'[{"kind":"seq"}]', b"[[]]", b"\xff"],
)
def test_what_is_no_message_is_left_out(payload: bytes) -> None:
    assert messages(payload) == []


def test_a_message_beside_nonsense_is_heard() -> None:
    assert messages(b'[{"kind":"seq"},{"kind":"closed","session":"s"}]') == [Gone("s")]
