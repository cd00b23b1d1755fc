"""Reading script files: TOML in, a `Script` or every mistake with its place out."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from perdure.config.problems import ConfigError, Problem, key_path, known_keys, unknown_key
from perdure.models import script

_DEFAULT = "demo_script.toml"
_SECTIONS: dict[str, type[BaseModel]] = {
    "rule": script.Rule,
    "otherwise": script.Reply,
    "when": script.When,
    "say": script.Say,
    "json": script.SayJson,
    "reasoning": script.Think,
    "call": script.Call,
    "wait_for_file": script.WaitForFile,
    "fault": script.Fault,
    "pause": script.Pause,
    "table": script.Usage,
    "turn": script.Range,
    "step": script.Range,
    "call_count": script.Range,
}
# Lists and unions whose errors carry the name of the member type, which is no key of the file.
_TAGGED_LISTS = ("answer", "chunks")
_TAGGED_VALUES = ("usage",)


class ScriptError(ConfigError):
    """A script that cannot be used; every problem names the file and the key, as `rule[2].when.step`."""


def load_script(path: Path | None = None) -> script.Script:
    """Read a script file, or the demonstration script without a path. Raises `ScriptError`."""
    try:
        if path is None:
            text = resources.files("perdure.models").joinpath(_DEFAULT).read_text("utf-8")
        else:
            text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScriptError([Problem(str(path or _DEFAULT), f"cannot be read: {error}")]) from None
    return parse_script(text, source=str(path or _DEFAULT))


def parse_script(text: str, *, source: str = "script") -> script.Script:
    """Read the text of a script; `source` names it in errors. Raises `ScriptError`."""
    try:
        return script.Script.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ScriptError([Problem(source, f"is no TOML: {error}")]) from None
    except ValidationError as error:
        problems = [_problem(source, details) for details in error.errors(include_url=False)]
        raise ScriptError(problems) from None


def _problem(source: str, error: ErrorDetails) -> Problem:
    place = key_path(_file_path(error["loc"]))
    return Problem(f"{source}: {place}" if place else source, _message(error))


def _file_path(loc: Sequence[str | int]) -> list[str | int]:
    """The error's place as keys of the file."""
    path: list[str | int] = []
    for index, part in enumerate(loc):
        in_list = index >= 2 and isinstance(loc[index - 1], int) and loc[index - 2] in _TAGGED_LISTS
        if not in_list and not (index >= 1 and loc[index - 1] in _TAGGED_VALUES):
            path.append(part)
    return path


def _message(error: ErrorDetails) -> str:
    match error["type"]:
        case "extra_forbidden":
            section = next(
                (_SECTIONS[part] for part in reversed(error["loc"][:-1]) if part in _SECTIONS), script.Script
            )
            return unknown_key(str(error["loc"][-1]), known_keys(section))
        case "missing":
            return "is required"
        case "value_error":
            return str(error["ctx"]["error"])
        case "action" | "chunk" | "usage":
            return error["msg"]
        case _:
            said = error["msg"][:1].lower() + error["msg"][1:]
            return f"{said}, not {_shown(error['input'])}" if said.startswith("input should") else said


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"
