"""What models cost: which price counts, how a call is reckoned, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.config.prices import NANO, PriceSettings, find_price
from perdure.config.settings import ConfigError, load_settings

FINE = PriceSettings(models=("small-*",), provider="openai", input=0.25, cached_input=0.025, output=2.0)
ANY = PriceSettings(models=("*",), input=1.0, cache_write=1.25, output=4.0)
HOME = {"HOME": "/home/someone"}


def load(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> tuple[PriceSettings, ...]:
    file = tmp_path / "perdure.toml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file, HOME | (environ or {})).prices


def test_the_first_table_that_matches_counts() -> None:
    prices = (FINE, ANY)
    assert find_price(prices, "openai", "small-1") is FINE
    assert find_price(prices, "openai", "renamed", "small-1") is FINE
    assert find_price(prices, "other", "small-1") is ANY
    assert find_price((FINE,), "openai", "large-1") is None


def test_every_token_is_paid_for_once() -> None:
    assert FINE.cost(read=1_000_000, cached=0, written=0, output=0) == NANO // 4
    assert FINE.cost(read=1_000_000, cached=1_000_000, written=0, output=0) == NANO // 40
    assert FINE.cost(read=0, cached=0, written=0, output=500_000) == NANO
    assert ANY.cost(read=3_000_000, cached=1_000_000, written=1_000_000, output=0) == int(3.25 * NANO)
    assert FINE.cost(read=1, cached=0, written=0, output=0) == 250
    # A provider may count apart what others count as a part.
    assert FINE.cost(read=10, cached=30, written=0, output=0) == 750


def test_prices_come_from_the_file_or_the_environment(tmp_path: Path) -> None:
    text = '[[price]]\nmodels = ["a"]\ninput = 1\noutput = 2.5\n'
    (price,) = load(tmp_path, text)
    assert (price.input, price.output, price.currency) == (1.0, 2.5, "USD")
    given = {"PERDURE_PRICES": '[{"models": ["b"], "input": 3, "output": 4, "currency": "EUR"}]'}
    (price,) = load(tmp_path, text, given)
    assert (price.models, price.currency) == (("b",), "EUR")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('[[price]]\nmodels = ["a"]\ninput = 1\n', "output"),
        ("[[price]]\nmodels = []\ninput = 1\noutput = 1\n", "models"),
        ('[[price]]\nmodels = ["a"]\ninput = -1\noutput = 1\n', "input"),
        ('[[price]]\nmodels = ["a"]\ninput = 1\noutput = 1\ncurrency = "dollars"\n', "currency"),
        (
            '[[price]]\nmodels = ["a"]\ninput = 1\noutput = 1\n'
            '[[price]]\nmodels = ["b"]\ninput = 1\noutput = 1\ncurrency = "EUR"\n',
            "one currency",
        ),
        ("prices = []\n", "did you mean price"),
    ],
)
def test_prices_that_make_no_sense_are_refused(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        load(tmp_path, text)


def test_a_broken_variable_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="PERDURE_PRICES"):
        load(tmp_path, "", {"PERDURE_PRICES": "[{"})
