"""JSON files, and what they hold: an export of a session, or anything else."""

from __future__ import annotations

import sys
from pathlib import Path

from perdure.inspect.exports import Export, export_of
from perdure.inspect.faults import Unreadable
from perdure.inspect.jsontext import Json, parse_json

STDIN = "-"


def read_json(name: str) -> Json:
    """The JSON value of a file, or of standard input for `-`.

    Raises:
        Unreadable: there is no such file, or it is no JSON.
    """
    if name == STDIN:
        return parse_json(sys.stdin.buffer.read(), "standard input")
    try:
        data = Path(name).read_bytes()
    except OSError as error:
        raise Unreadable(f"{name} cannot be read: {error.strerror or error}") from error
    return parse_json(data, name)


def read_file(name: str) -> Export:
    """The export in a file.

    Raises:
        Unreadable: there is no such file, or it holds no export.
    """
    return export_of(read_json(name), name)
