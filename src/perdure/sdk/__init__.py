"""What application authors import; `perdure` has the same names."""

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
from perdure.sdk.events import HandedOff, Recovered, ToolFinished, ToolStarted
from perdure.sdk.handoff import Handoff, HandoffNote, HandoffRecord, handoff
from perdure.sdk.results import RunResult
from perdure.sdk.session import Session
from perdure.sdk.sessions import Sessions
from perdure.sdk.stream import RunStream
from perdure.sdk.tool import Tool, tool

__all__ = [
    "Action",
    "ActionRequired",
    "Agent",
    "AgentTool",
    "Approve",
    "BrowserOrigin",
    "BrowserSignIn",
    "CallPair",
    "ConnectionLost",
    "DefinitionRefused",
    "Deny",
    "Dismiss",
    "EnvironmentConnection",
    "FunctionCall",
    "HandedOff",
    "Handoff",
    "HandoffNote",
    "HandoffRecord",
    "InvalidFinalOutput",
    "McpApproval",
    "NoLedger",
    "NoServer",
    "NothingToResume",
    "OtherAction",
    "Recovered",
    "ResultRefused",
    "RunResult",
    "RunStream",
    "SdkError",
    "Session",
    "SessionBusy",
    "SessionError",
    "SessionFailed",
    "Sessions",
    "SignIn",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolFinished",
    "ToolResult",
    "ToolStarted",
    "TurnCancelled",
    "TurnError",
    "TurnFailed",
    "UnknownAgent",
    "handoff",
    "tool",
]
