"""What the documents consist of: fenced blocks, links, headings, and names of files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("**/*.md"),
        *(ROOT / "bench").glob("*.md"),
        *(ROOT / "examples").glob("*.md"),
    ]
)

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
# Never across the end of a comment: the search would begin at the first one of the document.
_COMMENT = re.compile(r"<!--\s*((?:(?!-->).)*?)\s*-->\n+\Z", re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]\[]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.*?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block. `line` is that of its first line of text, from 1; `note` the comment above it."""

    path: Path
    line: int
    language: str
    text: str
    note: str

    @property
    def is_run(self) -> bool:
        return not self.note.startswith("not run:")

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def blocks(path: Path, *languages: str) -> list[Block]:
    """The blocks of a document in its order, all or those of some languages."""
    source = path.read_text("utf-8")
    found = []
    for match in _FENCE.finditer(source):
        above = _COMMENT.search(source, 0, match.start())
        found.append(
            Block(
                path,
                source.count("\n", 0, match.start("text")) + 1,
                match["language"],
                match["text"],
                above[1] if above else "",
            )
        )
    return [block for block in found if not languages or block.language in languages]


def prose(path: Path) -> str:
    """A document without its blocks."""
    return _FENCE.sub("", path.read_text("utf-8"))


def links(path: Path) -> list[str]:
    return _LINK.findall(prose(path))


def anchors(path: Path) -> set[str]:
    """The fragments that lead to headings, as the usual renderers make them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(prose(path))
    }


def code_spans(path: Path) -> list[str]:
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose(path))
