"""The scripted models of the SDK's tests, by model name."""

from __future__ import annotations

ORDER_DESK = r"""
[[rule]]
when = { user_matches = '(?P<order_id>[A-Z]-\d{4})', has_tool = "resolve_order", step = 0 }
answer = [{ call = "resolve_order", arguments_text = '{"order_id": "A-1042", "include_history": null}' }]

[[rule]]
when = { after_result_of = "resolve_order" }
answer = [{ text = "The specialist says: {result.message|nothing}" }]

[[rule]]
when = { user_contains = "both desks", step = 0 }
answer = [
    { call = "transfer_to_billing_specialist", arguments = {} },
    { call = "transfer_to_shipping_specialist", arguments = {} },
]

[[rule]]
when = { after_result_of = "transfer_to_*" }
answer = [{ text = "Somebody takes over." }]

[[rule]]
when = { user_contains = "invoice", has_tool = "transfer_to_billing_specialist", step = 0 }
answer = [
    { call = "transfer_to_billing_specialist", arguments_text = '{"reason": "Wrong sum.","priority": null}' },
]

[[rule]]
when = { user_contains = "handoff_record", has_tool = "refund", step = 0 }
answer = [{ call = "refund", arguments = { reason = "Wrong sum." } }]

[[rule]]
when = { after_result_of = "refund" }
answer = [{ text = "Billing has refunded it: {result}" }]

[[rule]]
when = { user_contains = "handoff_record" }
answer = [{ text = "Billing here. {user}" }]

[[rule]]
when = { user_matches = '(?P<order_id>[A-Z]-\d{4})', has_tool = "lookup_order", step = 0 }
answer = [
    { text = "One moment.", phase = "commentary" },
    { call = "lookup_order", arguments_text = '{"order_id": "A-1042", "include_history": null}' },
]

[[rule]]
when = { after_result_of = "lookup_order", result_failed = true }
answer = [{ json = { order_id = "", message = "{result}" } }]

[[rule]]
when = { after_result_of = "lookup_order" }
answer = [{ json = { order_id = "{result.order_id}", message = "It is {result.status}." } }]

[otherwise]
answer = [{ text = "You said: {user}" }]
"""

CALLER = r"""
[[rule]]
when = { user_matches = '^gate (?P<gate>[a-z0-9-]+)$', step = 0 }
answer = [{ chunks = ["Before, ", { wait_for_file = "gates/{gate}" }, "after."] }]

[[rule]]
when = { user_contains = "fail" }
answer = [{ fault = "authentication_error", message = "The provider refused the key." }]

[[rule]]
when = { user_contains = "three", step = 0 }
answer = [
    { call = "slow", arguments = { name = "one" } },
    { call = "slow", arguments = { name = "two" } },
    { call = "slow", arguments = { name = "three" } },
]

[[rule]]
when = { user_contains = "both", step = 0 }
answer = [{ call = "work", arguments = { name = "one" } }, { call = "elsewhere", arguments = {} }]

[[rule]]
when = { user_contains = "elsewhere", step = 0 }
answer = [{ call = "elsewhere", arguments = {} }]

[[rule]]
when = { user_contains = "wrong", step = 0 }
answer = [{ call = "work", arguments = { name = "SECRET-VALUE" } }]

[[rule]]
when = { user_contains = "work", step = 0 }
answer = [{ call = "work", arguments = { name = "one" } }]

[[rule]]
when = { newest = "result", result_failed = true }
answer = [{ text = "It failed: {result}" }]

[[rule]]
when = { newest = "result" }
answer = [{ text = "It is {result}." }]

[[rule]]
when = { newest = "note" }
answer = [{ text = "The late result is in." }]

[otherwise]
answer = [{ text = "You said: {user}" }]
"""

TALKING = r"""
[[rule]]
when = { user_contains = "three", step = 0 }
answer = [
    { call = "slow", arguments = { name = "one" } },
    { call = "slow", arguments = { name = "two" } },
    { call = "slow", arguments = { name = "three" } },
]

[[rule]]
when = { newest = "result" }
answer = [{ text = "In the background.", delta_size = 4 }]

[[rule]]
when = { newest = "note" }
answer = [{ text = "All are in." }]

[otherwise]
answer = [{ text = "You said: {user}" }]
"""

LONG = r"""
[otherwise]
answer = [{ text = "TEXT", delta_size = 64 }]
""".replace("TEXT", "".join(f"{number:07d} " for number in range(4096)))
"""32 KiB of text in which every eight characters are different."""

STRUCTURED = """
[otherwise]
answer = [{ json = { name = "one" } }]
"""

CREW = """
[[rule]]
when = { agent = "", user_matches = '^hold (?P<gate>[a-z0-9-]+)$', step = 0 }
answer = [
    { call = "create_subagent", arguments = { task = "hold {gate}", name = "holds" } },
    { call = "create_subagent", arguments = { task = "Count.", name = "counts" } },
    { call = "wait_for_subagents", arguments = { agent_ids = ["counts"] } },
]

[[rule]]
when = { agent = "", user_contains = "two", step = 0 }
answer = [
    { call = "create_subagent", arguments = { task = "Ask below.", name = "left" } },
    { call = "create_subagent", arguments = { task = "Count.", name = "right" } },
    { call = "wait_for_subagents", arguments = { } },
]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { agent = "", user_contains = "close", step = 0 }
answer = [{ call = "close_subagent", arguments = { agent_id = "right" } }]

[[rule]]
when = { agent = "" }
answer = [{ text = "That is all." }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { agent = "left", step = 0 }
answer = [
    { call = "create_subagent", arguments = { task = "Count below.", name = "below" } },
    { call = "wait_for_subagents", arguments = { } },
]
usage = { input_tokens = 20, output_tokens = 2 }

[[rule]]
when = { user_matches = '^hold (?P<gate>[a-z0-9-]+)$' }
answer = [{ chunks = ["Before, ", { wait_for_file = "gates/{gate}" }, "after."] }]

[[rule]]
when = { agent = "?*" }
answer = [{ text = "Counted: {user}" }]
usage = { input_tokens = 30, output_tokens = 3 }
"""

MODELS = {
    "crew": CREW,
    "structured": STRUCTURED,
    "order-desk": ORDER_DESK,
    "caller": CALLER,
    "talking": TALKING,
    "long": LONG,
}

SETTINGS = """
[server]
keepalive = 0.5

[work]
drain = 0.5

[limits]
output_repairs = 0

[subagents]
depth = 2

[retry]
attempts = 2
base_delay = 0.01
max_delay = 0.02
"""
