"""Values against a schema: the verdict in microseconds, and every reason in a bounded text for the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from perdure.schema.bounds import CheckedSchema, checked, schema_text
from perdure.schema.rulebook import Rulebook
from perdure.schema.texts import ArgumentFault
from perdure.schema.violations import FINDINGS, STEPS, Exhausted, Walk
from perdure.schema.wording import KEY_CHARACTERS, printable, value_path

DESCRIPTION_BYTES = 2_048
# What the walk may take when it gives the verdict itself, and not only the reasons.
VERDICT_STEPS = 3 * STEPS


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule. `path` is like `lines[2].sku` or `(root)`; `rule` never shows the value.

    `parts` is the same path, not shortened.
    """

    path: str
    rule: str
    parts: tuple[str | int, ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.path}: {self.rule}"


class ArgumentValidator:
    """Checks values against one schema. Get one from `validator_for`; safe to share between threads."""

    __slots__ = ("_book", "_checked")

    def __init__(self, checked: CheckedSchema) -> None:
        self._checked = checked
        self._book = Rulebook(checked)

    def problems(self, value: object) -> tuple[Problem, ...]:
        """What is wrong with a JSON value, at most `FINDINGS` problems; empty when it is valid."""
        verdict = self._checked.validator
        try:
            if verdict is not None and verdict.is_valid(value):
                return ()
            found = Walk(self._book, STEPS if verdict else VERDICT_STEPS).findings(self._checked.root, value)
        except Exhausted:
            reason = "is too large to be checked" if verdict is None else "does not match the schema"
            return (Problem("(root)", reason),)
        except UnicodeEncodeError:
            return (Problem("(root)", "contains text that is not valid Unicode"),)
        except ValueError:
            return (Problem("(root)", "is not a JSON value"),)
        if not found and verdict is not None:
            return (Problem("(root)", "does not match the schema"),)
        return tuple(
            dict.fromkeys(
                Problem(value_path(finding.path), finding.rule, tuple(finding.path)) for finding in found
            )
        )

    def allows(self, value: object) -> bool:
        """Whether a JSON value is valid; False also where that cannot be found out within bounds."""
        try:
            if (verdict := self._checked.validator) is not None:
                return verdict.is_valid(value)
            return not Walk(self._book, VERDICT_STEPS).findings(self._checked.root, value, most=1)
        except (Exhausted, ValueError):
            return False


def validator_for(schema: Mapping[str, object]) -> ArgumentValidator:
    """The validator of a schema; recent ones are remembered by content. Raises SchemaRefused."""
    return _validator(schema_text(schema))


@lru_cache(maxsize=128)
def _validator(text: bytes) -> ArgumentValidator:
    return ArgumentValidator(checked(text))


def describe_problems(
    tool_name: str, problems: Sequence[Problem], limit_bytes: int = DESCRIPTION_BYTES
) -> str:
    """For the model: which arguments of its call broke which rules, in at most `limit_bytes` of UTF-8."""
    return problem_list(
        f"The arguments of {_shown(tool_name)} do not match its schema:", problems, limit_bytes
    )


def describe_fault(tool_name: str, fault: ArgumentFault) -> str:
    """For the model: why the arguments of its call could not be read, in less than `DESCRIPTION_BYTES`."""
    return f"The arguments of {_shown(tool_name)} could not be read: the text {fault.reason}."


def problem_list(heading: str, problems: Sequence[Problem], limit_bytes: int) -> str:
    """A heading and one line for each problem, as many as fit, then how many are left."""
    rest = "at least " if len(problems) >= FINDINGS else ""
    lines = [heading]
    room = limit_bytes - len(heading.encode()) - len(f"\n- and {rest}{len(problems)} more")
    for index, problem in enumerate(problems):
        line = f"- {problem}"
        room -= len(line.encode()) + 1
        if room < 0:
            lines.append(f"- and {rest}{len(problems) - index} more")
            break
        lines.append(line)
    else:
        if rest:
            lines.append("- and perhaps more")
    return "\n".join(lines).encode()[:limit_bytes].decode(errors="ignore")


def _shown(tool_name: str) -> str:
    return printable(tool_name, KEY_CHARACTERS)
