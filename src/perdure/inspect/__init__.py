"""Reading what happened in a session: its chain of ids, paths into it, and what changed.

Everything here works on exports: `read_file` and `read_export` get one, `build_chain`, `find_path`,
`compare` and `compare_call` ask it something, and `Redactor` masks it.
"""

from __future__ import annotations

from perdure.inspect.callcheck import CallComparison, Comparison, compare_call
from perdure.inspect.chain import build_chain
from perdure.inspect.difference import Change, Difference, Section, compare, compare_json
from perdure.inspect.exports import Export, Thread, export_of
from perdure.inspect.faults import BadQuestion, InspectError, Unreadable
from perdure.inspect.files import read_file, read_json
from perdure.inspect.kinds import KINDS
from perdure.inspect.links import Call, Chain, Finding, Result, ThreadLink, Tokens, TurnLink
from perdure.inspect.operations import Operation, operations
from perdure.inspect.paths import Hit, find_path
from perdure.inspect.reading import Reader, read_export
from perdure.inspect.redaction import Redactor
from perdure.inspect.retries import find_retries
from perdure.inspect.server import ServerReader
from perdure.inspect.stored import StoreReader, open_store

__all__ = [
    "KINDS",
    "BadQuestion",
    "Call",
    "CallComparison",
    "Chain",
    "Change",
    "Comparison",
    "Difference",
    "Export",
    "Finding",
    "Hit",
    "InspectError",
    "Operation",
    "Reader",
    "Redactor",
    "Result",
    "Section",
    "ServerReader",
    "StoreReader",
    "Thread",
    "ThreadLink",
    "Tokens",
    "TurnLink",
    "Unreadable",
    "build_chain",
    "compare",
    "compare_call",
    "compare_json",
    "export_of",
    "find_path",
    "find_retries",
    "open_store",
    "operations",
    "read_export",
    "read_file",
    "read_json",
]
