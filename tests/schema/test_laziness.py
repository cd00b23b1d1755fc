"""Libraries are loaded only for what is of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pydantic", "msgspec", "attr", "marshmallow", "fastapi", "sqlalchemy")


def loaded_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_import_loads_none_of_them() -> None:
    assert loaded_after("import perdure.schema") == set()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("schema_of({'type': 'object', 'properties': {}})", set()),
        ("schema_of(dataclasses.make_dataclass('D', [('a', int)]))", {"pydantic"}),
        ("def f(a: int): ...\nschema_of(f)", {"pydantic"}),
        ("import msgspec\nschema_of(msgspec.defstruct('S', [('a', int)]))", {"msgspec"}),
        (
            "import attrs\nschema_of(attrs.make_class('A', {'a': attrs.field(type=int)}))",
            {"attr", "pydantic"},
        ),
        ("import marshmallow as m\nschema_of(m.Schema.from_dict({'a': m.fields.Int()}))", {"marshmallow"}),
    ],
)
def test_a_form_loads_its_own_library(code: str, expected: set[str]) -> None:
    setting = "import dataclasses\nfrom perdure.schema import schema_of\n"
    assert loaded_after(setting + code) == expected
