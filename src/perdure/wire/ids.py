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
_ALPHABET = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# 248 is the last multiple of 62 in a byte: what lies above would favour some characters.
_CHARACTERS = bytes(_ALPHABET[byte % 62] for byte in range(256))
_REJECTED = bytes(range(248, 256))


def new_id(prefix: str) -> str:
    """A fresh identifier such as `sess_4fK…`, with 143 bits from the system's secure source."""
    characters = b""
    while len(characters) < LENGTH:
        characters = secrets.token_bytes(36).translate(_CHARACTERS, _REJECTED)
    return f"{prefix}_{characters[:LENGTH].decode('ascii')}"
