"""Items: the saved output of a session, one model per kind."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from perdure.wire.actions import BrowserAuthentication
from perdure.wire.shapes import PlainUnion, Resource

TextStatus = Literal["in_progress", "completed", "incomplete"]
CallStatus = Literal["in_progress", "completed", "failed", "incomplete"]
Phase = Literal["commentary", "final_answer"]


class InputText(Resource):
    type: Literal["input_text"] = "input_text"
    text: str


class InputImage(Resource):
    """An image as submitted: a URL or a base64 data URL."""

    type: Literal["input_image"] = "input_image"
    image_url: str


class OutputText(Resource):
    type: Literal["output_text"] = "output_text"
    text: str


class SummaryText(Resource):
    type: Literal["summary_text"] = "summary_text"
    text: str


class EncryptedContent(Resource):
    type: Literal["encrypted_content"] = "encrypted_content"
    encrypted_content: str


InputContent = Annotated[InputText | InputImage, Field(discriminator="type")]
AgentContent = Annotated[OutputText | EncryptedContent, Field(discriminator="type")]


class _Item(Resource):
    id: str
    turn_id: str


class _Call(_Item):
    status: CallStatus


class UserMessageItem(_Item):
    type: Literal["message"] = "message"
    role: Literal["user"] = "user"
    status: Literal["completed"] = "completed"
    phase: None = None
    content: list[InputContent]


class AssistantMessageItem(_Item):
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    status: TextStatus
    phase: Phase | None = None
    content: list[OutputText]


MessageItem = Annotated[UserMessageItem | AssistantMessageItem, Field(discriminator="role")]


class ReasoningItem(_Item):
    type: Literal["reasoning"] = "reasoning"
    status: TextStatus | None = None
    summary: list[SummaryText]


class FunctionCallItem(_Call):
    type: Literal["function_call"] = "function_call"
    call_id: str
    name: str
    arguments: Any


class FunctionCallOutputItem(_Call):
    type: Literal["function_call_output"] = "function_call_output"
    call_id: str
    output: str | list[InputContent] | None = None
    error: str | None = None


class McpCallItem(_Call):
    type: Literal["mcp_call"] = "mcp_call"
    server_label: str
    name: str
    arguments: Any
    output: Any = None
    error: Any = None


class SearchAction(Resource):
    type: Literal["search"] = "search"
    query: str | None = None
    queries: list[str] | None = None


class OpenPageAction(Resource):
    type: Literal["open_page"] = "open_page"
    url: str | None = None


class FindInPageAction(Resource):
    type: Literal["find_in_page"] = "find_in_page"
    url: str | None = None
    pattern: str | None = None


class OtherSearchAction(Resource):
    type: Literal["other"] = "other"


WebSearchAction = Annotated[
    SearchAction | OpenPageAction | FindInPageAction | OtherSearchAction, Field(discriminator="type")
]


class WebSearchCallItem(_Item):
    type: Literal["web_search_call"] = "web_search_call"
    status: TextStatus
    action: WebSearchAction | None = None


class CommandExecutionItem(_Call):
    type: Literal["command_execution"] = "command_execution"
    command: str
    cwd: str | None = None
    output: str | None = None
    exit_code: int | None = None
    duration_ms: int | None = None


class ComputerScreenshot(Resource):
    type: Literal["computer_screenshot"] = "computer_screenshot"
    image_url: str


class ComputerUseCallItem(_Call):
    type: Literal["computer_use_call"] = "computer_use_call"
    title: str | None = None
    output: ComputerScreenshot | None = None


class ComputerApprovalRequestItem(_Item):
    """A sign-in request; origin requests leave no item."""

    type: Literal["computer_use_approval_request"] = "computer_use_approval_request"
    request_id: str
    request: BrowserAuthentication


class SignInSubmitted(Resource):
    """That a sign-in was answered; never with the values."""

    type: Literal["browser_authentication"] = "browser_authentication"
    action: Literal["submit"] = "submit"
    selected_option: str | None = None


class SignInCancelled(Resource):
    type: Literal["browser_authentication"] = "browser_authentication"
    action: Literal["cancel"] = "cancel"


class ComputerApprovalResultItem(_Item):
    type: Literal["computer_use_approval_request_result"] = "computer_use_approval_request_result"
    request_id: str
    response: Annotated[SignInSubmitted | SignInCancelled, Field(discriminator="action")]


class AgentMessageItem(_Item):
    """A message between agents; sender and recipient are ids or names."""

    type: Literal["agent_message"] = "agent_message"
    sender_agent_id: str
    recipient_agent_id: str
    content: list[AgentContent]


class CreateSubagentCallItem(_Call):
    """`agent_id` is the agent that asked; the subagent's own id is in its events and in the list."""

    type: Literal["create_subagent_call"] = "create_subagent_call"
    agent_id: str
    content: list[AgentContent]
    model: str | None = None
    reasoning_effort: str | None = None


class _DirectedCall(_Call):
    sender_agent_id: str
    recipient_agent_id: str


class SendSubagentInputCallItem(_DirectedCall):
    type: Literal["send_subagent_input_call"] = "send_subagent_input_call"
    content: list[AgentContent]


class WaitForSubagentsCallItem(_Call):
    type: Literal["wait_for_subagents_call"] = "wait_for_subagents_call"
    sender_agent_id: str
    recipient_agent_ids: list[str]


class InterruptSubagentCallItem(_DirectedCall):
    type: Literal["interrupt_subagent_call"] = "interrupt_subagent_call"


class ResumeSubagentCallItem(_DirectedCall):
    type: Literal["resume_subagent_call"] = "resume_subagent_call"


class CloseSubagentCallItem(_DirectedCall):
    type: Literal["close_subagent_call"] = "close_subagent_call"


_OutputCall = (
    ReasoningItem
    | FunctionCallItem
    | McpCallItem
    | ComputerUseCallItem
    | ComputerApprovalRequestItem
    | WebSearchCallItem
    | CommandExecutionItem
    | CreateSubagentCallItem
    | SendSubagentInputCallItem
    | ResumeSubagentCallItem
    | WaitForSubagentsCallItem
    | InterruptSubagentCallItem
    | CloseSubagentCallItem
)
OutputItem = Annotated[AssistantMessageItem | _OutputCall, Field(discriminator="type")]
"""Items with an `output_index`: they are added, and later done."""

Item = Annotated[
    MessageItem | _OutputCall | FunctionCallOutputItem | AgentMessageItem | ComputerApprovalResultItem,
    Field(discriminator="type"),
    PlainUnion(),
]
"""Any item of a list or of an `item.added` event."""

ItemAdapter: TypeAdapter[Item] = TypeAdapter(Item)
OutputItemAdapter: TypeAdapter[OutputItem] = TypeAdapter(OutputItem)

OUTPUT_ITEM_TYPES = frozenset(
    {
        "message",  # of the assistant
        "reasoning",
        "function_call",
        "mcp_call",
        "computer_use_call",
        "computer_use_approval_request",
        "web_search_call",
        "command_execution",
        "create_subagent_call",
        "send_subagent_input_call",
        "resume_subagent_call",
        "wait_for_subagents_call",
        "interrupt_subagent_call",
        "close_subagent_call",
    }
)
