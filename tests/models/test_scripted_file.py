from __future__ import annotations

from pathlib import Path

import pytest

from perdure.config.settings import ConfigError, ProviderSettings
from perdure.models.script_file import ScriptError, load_script, parse_script
from perdure.models.scripted import ScriptedModel

ANY = "[[rule]]\nwhen = {}\nanswer = []\n"


def problems(text: str) -> list[str]:
    with pytest.raises(ScriptError) as caught:
        parse_script(text)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("rules = []", "rules", "unknown key; did you mean rule?"),
        (f"{ANY}otherwis = 1", "rule[0].otherwis", "unknown key"),
        (
            f"{ANY}[[rule]]\nwhen = {{ user_contians = 'x' }}\nanswer = []",
            "rule[1].when.user_contians",
            "user_contains",
        ),
        (f"{ANY}[[rule]]\nanswer = []", "rule[1].when", "is required"),
        ("[otherwise]", "otherwise.answer", "is required"),
        ("[otherwise]\nanswer = [{ txt = 'x' }]", "otherwise.answer[0]", "one of the keys text, chunks"),
        ("[otherwise]\nanswer = ['x']", "otherwise.answer[0]", "an action is a table"),
        ("[otherwise]\nanswer = [{ text = 'x', puase = 1 }]", "otherwise.answer[0].puase", "unknown key"),
        (
            "[otherwise]\nanswer = [{ text = 'x' }, { text = 'x', call = 'y' }]",
            "otherwise.answer[1].call",
            "unknown key",
        ),
        (
            "[otherwise]\nanswer = [{ text = 'x', chunks = [] }]",
            "otherwise.answer[0]",
            "either text or chunks",
        ),
        (
            "[otherwise]\nanswer = [{ chunks = ['x'], delta_size = 1 }]",
            "otherwise.answer[0]",
            "deltas already",
        ),
        (
            "[otherwise]\nanswer = [{ chunks = ['x', 1] }]",
            "otherwise.answer[0].chunks[1]",
            "a chunk is a text",
        ),
        (
            "[otherwise]\nanswer = [{ text = 'x', delta_size = 0 }]",
            "otherwise.answer[0].delta_size",
            "greater than",
        ),
        ("[otherwise]\nanswer = [{ pause = -1 }]", "otherwise.answer[0].pause", "greater than or equal to 0"),
        (
            "[otherwise]\nanswer = [{ fault = 'boom' }]",
            "otherwise.answer[0].fault",
            "unknown fault 'boom'; allowed: cut",
        ),
        (
            "[otherwise]\nanswer = [{ call = 'f', arguments = { a = nan } }]",
            "otherwise.answer[0].arguments",
            "no JSON",
        ),
        (
            "[otherwise]\nanswer = [{ call = 'f', arguments = { a = 2026-01-01 } }]",
            "otherwise.answer[0].arguments",
            "no JSON",
        ),
        (
            "[otherwise]\nanswer = [{ call = 'f', arguments = {}, arguments_text = '' }]",
            "otherwise.answer[0]",
            "either arguments or arguments_text",
        ),
        ("[otherwise]\nanswer = [{ text = 'a {b' }]", "otherwise.answer[0].text", "stray '{' at character 3"),
        (
            "[otherwise]\nanswer = [{ text = 'a } b' }]",
            "otherwise.answer[0].text",
            "stray '}' at character 3",
        ),
        (
            "[otherwise]\nanswer = [{ text = '{usr}' }]",
            "otherwise",
            "unknown placeholder {usr}; known here: model",
        ),
        ("[otherwise]\nanswer = [{ text = '{user.name}' }]", "otherwise", "only result has members"),
        (
            "[[rule]]\nwhen = { user_matches = '(?P<id>x)' }\nanswer = [{ text = '{idd}' }]",
            "rule[0]",
            "unknown placeholder {idd}; known here: id, model",
        ),
        (
            "[otherwise]\nanswer = [{ call = 'f', arguments = { a = [{ b = '{c}' }] } }]",
            "otherwise",
            "unknown placeholder {c}",
        ),
        ("[[rule]]\nwhen = { user_matches = '(?P<user>x)' }\nanswer = []", "rule[0]", "built-in placeholder"),
        (
            "[[rule]]\nwhen = { user_matches = '(' }\nanswer = []",
            "rule[0].when.user_matches",
            "no regular expression",
        ),
        (
            "[[rule]]\nwhen = { step = 'first' }\nanswer = []",
            "rule[0].when.step",
            "a whole number or a table",
        ),
        ("[[rule]]\nwhen = { step = { mn = 1 } }\nanswer = []", "rule[0].when.step.mn", "did you mean min?"),
        ("[[rule]]\nwhen = { effort = 'huge' }\nanswer = []", "rule[0].when.effort", "'minimal'"),
        ("[otherwise]\nanswer = []\nusage = true", "otherwise.usage", "usage is false"),
        (
            "[otherwise]\nanswer = []\nusage = { input_tokens = 1 }",
            "otherwise.usage.output_tokens",
            "is required",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, place: str, message: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith(f"script: {place}: ")
    assert message in problem


def test_every_mistake_is_reported() -> None:
    assert len(problems("[otherwise]\nanswer = [{ txt = 'x' }, { fault = 'boom' }]\nnaem = 'x'")) == 3


def test_what_is_no_toml_is_named_with_the_line() -> None:
    (problem,) = problems("[otherwise]\nanswer = [")
    assert "is no TOML" in problem
    assert "line 2" in problem or "end of document" in problem


def test_an_error_names_the_file_and_is_a_configuration_error(tmp_path: Path) -> None:
    path = tmp_path / "orders.toml"
    path.write_text("rules = []")
    with pytest.raises(ConfigError, match=r"orders\.toml: rules: unknown key"):
        load_script(path)


def test_a_missing_file_is_a_script_error(tmp_path: Path) -> None:
    provider = ProviderSettings(name="scripted", protocol="scripted", script=tmp_path / "none.toml")
    with pytest.raises(ScriptError, match=r"none\.toml: cannot be read"):
        ScriptedModel(provider)


def test_the_demonstration_script_is_packaged() -> None:
    script = load_script()
    assert script.rule
    assert script.otherwise is not None
