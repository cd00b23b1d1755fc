"""Regular expressions of a schema: which engine runs them, and which are refused.

Almost every pattern runs on an engine that takes linear time. One with lookaround or back references, as
pydantic has written for `Decimal`, runs on a backtracking engine that gives up after `BACKTRACKS` steps.
Giving up counts as no match.
"""

from __future__ import annotations

from collections.abc import Mapping

import jsonschema_rs

from perdure.schema.dialects import Part
from perdure.schema.refusals import SchemaRefused

PATTERN_CHARACTERS = 2_048
PATTERNS = 100
COMPILED_BYTES = 4 << 20
SMALL_BYTES = 256 << 10
LARGE_PATTERNS = 4
BACKTRACKS = 4_000

Engine = jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions


def engine_for(patterns: Mapping[str, tuple[Part, ...]]) -> Engine:
    """The engine that can run every one of `patterns` (text to its path in the schema).

    Raises SchemaRefused with the path of a pattern that is too long, too large or not a pattern at all.
    """
    backtracking = False
    large = 0
    for index, (pattern, path) in enumerate(patterns.items()):
        if index == PATTERNS:
            raise SchemaRefused((), f"has more than {PATTERNS} different patterns")
        if len(pattern) > PATTERN_CHARACTERS:
            raise SchemaRefused(path, f"the pattern is longer than {PATTERN_CHARACTERS:,} characters")
        if _runs(pattern, _linear(SMALL_BYTES)):
            continue
        if _runs(pattern, _backtracking(SMALL_BYTES)):
            backtracking = True
            continue
        large += 1
        if large > LARGE_PATTERNS:
            raise SchemaRefused(path, f"is one of more than {LARGE_PATTERNS} patterns with large repetitions")
        if not _runs(pattern, _linear(COMPILED_BYTES)):
            backtracking = True
            if not _runs(pattern, _backtracking(COMPILED_BYTES)):
                raise SchemaRefused(
                    path, "the pattern is not a regular expression, or its repetitions are too large"
                )
    return _backtracking(COMPILED_BYTES) if backtracking else _linear(COMPILED_BYTES)


def _linear(compiled_bytes: int) -> Engine:
    return jsonschema_rs.RegexOptions(size_limit=compiled_bytes)


def _backtracking(compiled_bytes: int) -> Engine:
    return jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACKS, size_limit=compiled_bytes)


def _runs(pattern: str, engine: Engine) -> bool:
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=engine, offline=True)
    except jsonschema_rs.ValidationError:
        return False
    return True
