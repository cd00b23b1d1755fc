"""What application authors import; `perdure` has the same names."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from perdure.schema import (
    AsynchronousValidator,
    Failure,
    FormRefused,
    Issue,
    SchemaRefused,
    StandardSchema,
    Success,
    check_adapter,
    from_marshmallow,
    schema_of,
)
from perdure.sdk.actions import (
    Action,
    Approve,
    BrowserOrigin,
    BrowserSignIn,
    Deny,
    Dismiss,
    EnvironmentConnection,
    FunctionCall,
    McpApproval,
    OtherAction,
    SignIn,
)
from perdure.sdk.agent import Agent
from perdure.sdk.agent_tool import AgentTool
from perdure.sdk.blocking import BlockingSession, BlockingSessions
from perdure.sdk.blocking_tree import BlockingAgent, BlockingTreeNode
from perdure.sdk.calls import CallPair, ToolResult
from perdure.sdk.context import ToolContext
from perdure.sdk.errors import (
    ActionRequired,
    ConnectionLost,
    DefinitionRefused,
    InvalidFinalOutput,
    NoLedger,
    NoServer,
    NothingToResume,
    ResultRefused,
    SdkError,
    SessionBusy,
    SessionError,
    SessionFailed,
    ToolError,
    TurnCancelled,
    TurnError,
    TurnFailed,
    UnknownAgent,
)
from perdure.sdk.events import (
    AgentMessage,
    HandedOff,
    Recovered,
    SubagentCall,
    SubagentChanged,
    ToolFinished,
    ToolStarted,
)
from perdure.sdk.handoff import Handoff, HandoffNote, HandoffRecord, handoff
from perdure.sdk.results import RunResult
from perdure.sdk.session import Session
from perdure.sdk.sessions import Sessions
from perdure.sdk.stream import RunStream
from perdure.sdk.subagents import MainAgent, SessionAgent, Subagent
from perdure.sdk.tool import Tool, tool
from perdure.sdk.tree import TreeNode

if TYPE_CHECKING:
    from perdure.sdk.journal import Journal
    from perdure.sdk.ledger import Ledger, Pinned
    from perdure.sdk.run_once import Retry

# These bring a database toolkit or a validation library with them.
_LATER = {
    "Journal": "perdure.sdk.journal",
    "Ledger": "perdure.sdk.ledger",
    "Pinned": "perdure.sdk.ledger",
    "Retry": "perdure.sdk.run_once",
}

__all__ = [
    "Action",
    "ActionRequired",
    "Agent",
    "AgentMessage",
    "AgentTool",
    "Approve",
    "AsynchronousValidator",
    "BlockingAgent",
    "BlockingSession",
    "BlockingSessions",
    "BlockingTreeNode",
    "BrowserOrigin",
    "BrowserSignIn",
    "CallPair",
    "ConnectionLost",
    "DefinitionRefused",
    "Deny",
    "Dismiss",
    "EnvironmentConnection",
    "Failure",
    "FormRefused",
    "FunctionCall",
    "HandedOff",
    "Handoff",
    "HandoffNote",
    "HandoffRecord",
    "InvalidFinalOutput",
    "Issue",
    "Journal",
    "Ledger",
    "MainAgent",
    "McpApproval",
    "NoLedger",
    "NoServer",
    "NothingToResume",
    "OtherAction",
    "Pinned",
    "Recovered",
    "ResultRefused",
    "Retry",
    "RunResult",
    "RunStream",
    "SchemaRefused",
    "SdkError",
    "Session",
    "SessionAgent",
    "SessionBusy",
    "SessionError",
    "SessionFailed",
    "Sessions",
    "SignIn",
    "StandardSchema",
    "Subagent",
    "SubagentCall",
    "SubagentChanged",
    "Success",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolFinished",
    "ToolResult",
    "ToolStarted",
    "TreeNode",
    "TurnCancelled",
    "TurnError",
    "TurnFailed",
    "UnknownAgent",
    "check_adapter",
    "from_marshmallow",
    "handoff",
    "schema_of",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
