"""Identifiers: a prefix that names the kind, and 24 random base62 characters. Never parsed."""

from __future__ import annotations

import secrets

AGENT = "agt"
ARTIFACT = "art"
AUTOMATION = "auto"
CALL = "call"
CREDENTIAL = "cred"
ENVIRONMENT = "env"
ENVIRONMENT_TEMPLATE = "envtmpl"
EVENT = "evt"
FILE = "file"
INVOCATION = "inv"
REQUEST = "req"
SESSION = "sess"
SUBAGENT = "sub"
TURN = "turn"
VAULT = "vlt"
WEBHOOK_ENDPOINT = "we"

ITEM = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "mcp_call": "mcp",
    "web_search_call": "ws",
    "command_execution": "cmd",
    "computer_use_call": "cu",
    "computer_use_approval_request": "car",
    "computer_use_approval_request_result": "cao",
    "agent_message": "am",
    "create_subagent_call": "cs",
    "send_subagent_input_call": "ss",
    "wait_for_subagents_call": "wt",
    "interrupt_subagent_call": "is",
    "resume_subagent_call": "rsm",
    "close_subagent_call": "cl",
}
"""The prefix of an item's id, by the item's type."""

LENGTH = 24
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def new_id(prefix: str) -> str:
    """A fresh identifier such as `sess_4fK…`, with 143 bits from the system's secure source."""
    # 65 bits more than the id holds, so that the modulus favours no character measurably.
    number = int.from_bytes(secrets.token_bytes(26))
    characters = []
    for _ in range(LENGTH):
        number, digit = divmod(number, 62)
        characters.append(_ALPHABET[digit])
    return f"{prefix}_{''.join(characters)}"
