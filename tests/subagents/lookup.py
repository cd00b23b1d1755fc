"""The function of these tests, which only the root may call."""

from __future__ import annotations

from typing import Any

LOOKUP: Any = {
    "type": "function",
    "name": "lookup_order",
    "description": "Looks an order up.",
    "parameters": {
        "type": "object",
        "properties": {"order_id": {"type": "string"}},
        "required": ["order_id"],
        "additionalProperties": False,
    },
}
