"""The routes the official client calls, read from its own source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import openai

Route = tuple[str, str]
"""Method and path; every path parameter is written `{}`."""

SOURCES = ("resources/beta/agents", "resources/webhooks")
METHODS = {
    "_get": "GET",
    "_get_api_list": "GET",
    "_post": "POST",
    "_put": "PUT",
    "_patch": "PATCH",
    "_delete": "DELETE",
}


def anonymous(path: str) -> str:
    """The path without the names of its parameters."""
    return re.sub(r"\{[^}]*\}", "{}", path)


def sdk_routes() -> set[Route]:
    package = Path(openai.__file__).parent
    return {
        route
        for source in SOURCES
        for file in sorted((package / source).rglob("*.py"))
        for route in _routes_of(ast.parse(file.read_text(encoding="utf-8")))
    }


def _routes_of(tree: ast.Module) -> Iterator[Route]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        method = METHODS.get(node.func.attr)
        if method is None:
            continue
        overridden = [keyword.value for keyword in node.keywords if keyword.arg == "method"]
        if overridden:
            assert isinstance(overridden[0], ast.Constant)
            method = str(overridden[0].value).upper()
        yield method, anonymous(_path_of(node.args[0]))


def _path_of(argument: ast.expr) -> str:
    if isinstance(argument, ast.Call):
        assert isinstance(argument.func, ast.Name)
        assert argument.func.id == "path_template", ast.unparse(argument)
        argument = argument.args[0]
    assert isinstance(argument, ast.Constant), ast.unparse(argument)
    assert isinstance(argument.value, str)
    return argument.value
