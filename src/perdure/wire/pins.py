"""Facts that metadata pins: `perdure.pin.<name>` by value, `perdure.pin_path.<name>` by path.

A path is evaluated on results that others wrote, so only those are taken whose work is in proportion to the
result: one descent into everything, no second look at the root, no regular expressions.
"""

from __future__ import annotations

PIN = "perdure.pin."
PIN_PATH = "perdure.pin_path."


def pin_fault(key: str, text: str) -> str | None:
    """What is wrong with a metadata pair, if its key pins a fact; `{param}` stands for its place."""
    for prefix in (PIN, PIN_PATH):
        if key.startswith(prefix):
            name = key.removeprefix(prefix)
            if not name or not name.isprintable():
                return "Invalid '{param}': expected a name of printable characters behind the prefix."
    return path_fault(text) if key.startswith(PIN_PATH) else None


def path_fault(text: str) -> str | None:
    """What is wrong with a pin's path, `<JSONPath>` or `<function>:<JSONPath>`."""
    from jsonpath_rfc9535 import JSONPathError, compile

    _, path = split_path(text)
    if path.count("..") > 1 or path.count("$") > 1:
        return (
            "Invalid '{param}': a path may descend into everything ('..') once, and name the root ('$') only "
            "at its beginning."
        )
    if "match(" in path or "search(" in path:
        return "Invalid '{param}': a path may not use regular expressions (match, search)."
    try:
        compile(path)
    except (JSONPathError, RecursionError):
        return "Invalid '{param}': expected a JSONPath (RFC 9535) such as '$.order.total'."
    return None


def split_path(text: str) -> tuple[str | None, str]:
    """The function that a path is for, None for all, and the path itself."""
    if text.startswith("$"):
        return None, text
    function, _, path = text.partition(":")
    return function or None, path
