"""Every link of the documents leads somewhere, and every file they name exists."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from perdure.config import telemetry

from .documents import DOCUMENTS, ROOT, anchors, code_spans, links, prose

TOP = ("src", "docs", "tests", "bench", "examples", "scripts", ".ci")
ROOMS = {folder.name for folder in (ROOT / "src" / "perdure").iterdir() if folder.is_dir()}
REPOSITORY_FILE = re.compile(r"[\w.-]+\.(?:md|toml|py|txt)")


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=names)


@every_document
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for link in links(document):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, fragment = link.partition("#")
        path = (document.parent / target).resolve() if target else document
        if not path.exists() or (fragment and fragment not in anchors(path)):
            broken.append(link)
    assert broken == []


@every_document
def test_named_files_exist(document: Path) -> None:
    missing = []
    for span in code_spans(document):
        folder = span.partition("/")[0]
        if "/" not in span or not re.fullmatch(r"[\w./-]+", span):
            continue
        if folder in TOP and not (ROOT / span).exists():
            missing.append(span)
        # Rooms are named without the way to them: `store/accept.py`, `wire/`.
        if folder in ROOMS and not (ROOT / "src" / "perdure" / span).exists():
            missing.append(span)
    assert missing == []


@every_document
def test_named_modules_exist(document: Path) -> None:
    missing = []
    for span in code_spans(document):
        match = re.fullmatch(r"(perdure(?:\.\w+)+)(?:\(\))?", span)
        if match is not None and not _exists(match[1]):
            missing.append(span)
    assert missing == []


def _exists(dotted: str) -> bool:
    if dotted in vars(telemetry).values():
        return True  # what traces say is named like modules are
    if importlib.util.find_spec("perdure") is None:
        return False
    try:
        if importlib.util.find_spec(dotted) is not None:
            return True
    except ModuleNotFoundError:
        pass
    module, _, attribute = dotted.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError:
        return False


@every_document
def test_a_document_begins_with_its_title(document: Path) -> None:
    text = prose(document)
    assert text.startswith("# ")
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1


def test_the_readme_leads_to_every_guide() -> None:
    named = {(ROOT / link.partition("#")[0]).resolve() for link in links(ROOT / "README.md")}
    guides = set((ROOT / "docs").glob("*.md"))
    assert guides - named == set()
