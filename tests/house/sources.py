"""The source tree as the house rules see it: rooms, modules, and what each imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "perdure"


@dataclass(frozen=True)
class Import:
    """One import of a module of ours, wherever in its file it stands."""

    line: int
    module: str

    @property
    def room(self) -> str | None:
        """The room it reaches into; None for the package itself."""
        parts = self.module.split(".")
        return parts[1] if len(parts) > 1 and (PACKAGE / parts[1]).is_dir() else None


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def rooms() -> list[str]:
    return sorted(folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists())


def room_of(module: Path) -> str | None:
    """The room a module stands in; None for the package's own."""
    parts = module.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else None


def imports_of(source: str, package: str) -> Iterator[Import]:
    """What a module of `package` (dotted) imports of ours: at its top, in functions, for type checking."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom():
                origin = _origin(node, package)
                # `from perdure import store` names a room, `from perdure.store import rows` a module.
                names = [f"{origin}.{alias.name}" for alias in node.names]
            case ast.Call(args=[ast.Constant(value=str() as name), *_]) if _is_import_call(node):
                names = [name]
            case _:
                continue
        for name in names:
            if name.partition(".")[0] == "perdure":
                yield Import(node.lineno, name)


def package_of(module: Path) -> str:
    return ".".join(("perdure", *module.relative_to(PACKAGE).parts[:-1]))


def _origin(node: ast.ImportFrom, package: str) -> str:
    if node.level == 0:
        return node.module or ""
    parents = package.split(".")
    kept = parents[: len(parents) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _is_import_call(call: ast.Call) -> bool:
    match call.func:
        case ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"):
            return True
        case _:
            return False
