"""The scripted models of the conformance tests, by model name.

`gate <name>` in a user text holds the answer open until the test releases the gate of that name.
"""

from __future__ import annotations

GREETER = """
[otherwise]
answer = [{ chunks = ["Hello ", "from ", "the greeter."], phase = "final_answer" }]
usage = { input_tokens = 100, cached_tokens = 40, output_tokens = 20, reasoning_tokens = 5 }
"""

ECHO = """
[otherwise]
answer = [{ text = "You said: {user}" }]
"""

SILENT_ABOUT_USAGE = """
[otherwise]
answer = [{ text = "I do not count." }]
usage = false
"""

GATED = """
[[rule]]
when = { user_matches = "^gate (?P<gate>[a-z0-9-]+)$" }
answer = [{ chunks = ["Before, ", { wait_for_file = "gates/{gate}" }, "after."] }]

[otherwise]
answer = [{ text = "You said: {user}" }]
"""

HELD = """
[[rule]]
when = { user_matches = "^gate (?P<gate>[a-z0-9-]+)$" }
answer = [{ wait_for_file = "gates/{gate}" }, { text = "Released." }]

[otherwise]
answer = [{ text = "You said: {user}" }]
"""

WEATHER = """
[[rule]]
when = { newest = "result", result_failed = true }
answer = [{ text = "It failed: {result}" }]

[[rule]]
when = { newest = "result" }
answer = [{ text = "It is {result}." }]

[[rule]]
when = { user_contains = "weather" }
answer = [{ call = "weather", arguments = { city = "Oslo" } }]

[otherwise]
answer = [{ text = "You said: {user}" }]
"""

COMMENTING = """
[[rule]]
when = { newest = "result" }
answer = [{ text = "It is {result}." }]

[otherwise]
answer = [{ text = "Let me look." }, { call = "weather", arguments = { city = "Oslo" } }]
"""

PARALLEL = """
[[rule]]
when = { newest = "result" }
answer = [{ text = "Both are in." }]

[[rule]]
when = { user_contains = "both" }
answer = [
    { call = "weather", arguments = { city = "Oslo" } },
    { call = "clock", arguments = { zone = "Europe/Oslo" } },
]

[otherwise]
answer = [{ text = "You said: {user}" }]
"""

STRUCTURED = """
[otherwise]
answer = [{ json = { city = "Oslo", degrees = 7 } }]
"""

REPAIRED = """
[[rule]]
when = { newest = "note" }
answer = [{ json = { city = "Oslo", degrees = 7 } }]

[otherwise]
answer = [{ text = "It is seven degrees in Oslo." }]
"""

UNPARSABLE = """
[otherwise]
answer = [{ text = "This is no JSON." }]
"""

REASONING = """
[otherwise]
answer = [{ reasoning = ["First part.", "Second part."] }, { text = "Thought through." }]
"""

STEERED = """
[[rule]]
when = { newest = "user", user_contains = "instead" }
answer = [{ text = "Changed course: {user}" }]

[[rule]]
when = { newest = "result" }
answer = [{ text = "It is {result}." }]

[otherwise]
answer = [{ call = "weather", arguments = { city = "Oslo" } }]
"""

ADAPTIVE = """
[[rule]]
when = { call_count = 0 }
answer = [{ call = "weather", arguments = { city = "Oslo" } }]

[[rule]]
when = { has_tool = "clock", call_count = 1 }
answer = [{ call = "clock", arguments = { zone = "Europe/Oslo" } }]

[otherwise]
answer = [{ text = "No clock at hand." }]
"""

FAULTY = """
[[rule]]
when = { user_contains = "fail" }
answer = [{ fault = "authentication_error", message = "The provider refused the key." }]

[[rule]]
when = { user_contains = "break off" }
answer = [{ chunks = ["Half of ", { fault = "invalid_request", message = "The provider gave up." }] }]

[otherwise]
answer = [{ text = "You said: {user}" }]
"""

FLAKY = """
[[rule]]
when = { times_per_conversation = 1 }
answer = [{ fault = "server_overloaded", message = "Busy.", retryable = true }]

[otherwise]
answer = [{ text = "At last." }]
"""

FAULT_CODES = (
    "rate_limit_exceeded",
    "usage_limit_exceeded",
    "context_length_exceeded",
    "max_output_tokens",
    "server_overloaded",
    "connection_failed",
    "server_error",
    "authentication_error",
    "invalid_request",
    "resource_not_found",
    "request_timeout",
)

ANY_FAULT = "\n".join(
    f"""
[[rule]]
when = {{ user_contains = "fault {code}" }}
answer = [{{ fault = "{code}", message = "The provider said so." }}]
"""
    for code in FAULT_CODES
)

COUNTED = """
[[rule]]
when = { newest = "result" }
answer = [{ text = "It is {result}." }]
usage = { input_tokens = 20, output_tokens = 2 }

[otherwise]
answer = [{ call = "weather", arguments = { city = "Oslo" } }]
usage = { input_tokens = 10, output_tokens = 1 }
"""

WRONG_ARGUMENTS = """
[[rule]]
when = { newest = "result" }
answer = [{ text = "I was told: {result}" }]

[otherwise]
answer = [{ call = "weather", arguments = { city = 5 } }]
"""

UNKNOWN_TOOL = """
[[rule]]
when = { newest = "result" }
answer = [{ text = "I was told: {result}" }]

[otherwise]
answer = [{ call = "wether", arguments = { city = "Oslo" } }]
"""

BROKEN_JSON = """
[[rule]]
when = { newest = "result" }
answer = [{ text = "I was told: {result}" }]

[otherwise]
answer = [{ call = "weather", arguments_text = '{"city": "Os' }]
"""

STUBBORN = """
[[rule]]
when = { newest = "result", result_failed = false }
answer = [{ text = "It is {result}." }]

[otherwise]
answer = [{ call = "weather", arguments = { city = 5 } }]
"""

SECRET_ARGUMENT = """
[[rule]]
when = { newest = "result" }
answer = [{ text = "I was told: {result}" }]

[otherwise]
answer = [{ call = "weather", arguments = { city = "CANARY" } }]
"""

PATTERN_BOMB = f"""
[[rule]]
when = {{ newest = "result" }}
answer = [{{ text = "I was told: {{result}}" }}]

[otherwise]
answer = [{{ call = "weather", arguments = {{ city = "{"a" * 40}b" }} }}]
"""

HALF_RIGHT = """
[[rule]]
when = { newest = "result" }
answer = [{ text = "Both are in." }]

[otherwise]
answer = [
    { call = "weather", arguments = { town = "Oslo" } },
    { call = "clock", arguments = { zone = "Europe/Oslo" } },
]
"""

NESTED = r"""
[[rule]]
when = { newest = "result" }
answer = [{ text = "It is {result}." }]

[otherwise]
answer = [{ call = "weather", arguments_text = '{"city":null,"list":[1,"zwei",{"a":[]}],"text":"ü\u0000"}' }]
"""

LATE = """
[[rule]]
when = { newest = "note", note_contains = "7" }
answer = [{ text = "The late result is in." }]

[[rule]]
when = { newest = "user", user_contains = "weather" }
answer = [{ call = "weather", arguments = { city = "Oslo" } }]

[[rule]]
when = { newest = "result" }
answer = [{ text = "I have asked." }]

[otherwise]
answer = [{ text = "You said: {user}" }]
"""

LONG = """
[otherwise]
answer = [{ text = "TEXT", delta_size = 1024 }]
""".replace("TEXT", "".join(f"{number:07d} " for number in range(131_072)))
"""1 MiB of text in which every eight characters are different."""

SPOKEN = """
[otherwise]
answer = [{ text = "TEXT", delta_size = 64, pause = 0.005 }]
""".replace("TEXT", "".join(f"{number:07d} " for number in range(1024)))
"""8 KiB of text, spoken over more than half a second."""

CREW = """
[[rule]]
when = { agent = "?*", user_matches = "^gate (?P<gate>[a-z0-9-]+)$" }
answer = [{ chunks = ["Before, ", { wait_for_file = "gates/{gate}" }, "after."] }]
usage = { input_tokens = 30, output_tokens = 3 }

[[rule]]
when = { agent = "?*" }
answer = [{ text = "I look.", phase = "commentary" }, { text = "I was told: {user}" }]
usage = { input_tokens = 30, output_tokens = 3 }

[[rule]]
when = { user_matches = "^ask (?P<task>.+)$", call_count = 0 }
answer = [{ call = "create_subagent", arguments = { task = "{task}", name = "scout" } }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { context_contains = "ask ", call_count = 1 }
answer = [{ call = "wait_for_subagents", arguments = { agent_ids = ["scout"] } }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { user_matches = "^leave (?P<task>.+)$", call_count = 0 }
answer = [{ call = "create_subagent", arguments = { task = "{task}", name = "scout" } }]

[[rule]]
when = { context_contains = "three rounds", call_count = 0 }
answer = [
    { call = "create_subagent", arguments = { task = "Look.", name = "one" } },
    { call = "create_subagent", arguments = { task = "Look.", name = "two" } },
    { call = "create_subagent", arguments = { task = "Look.", name = "three" } },
    { call = "wait_for_subagents", arguments = {} },
]

[[rule]]
when = { context_contains = "three rounds", call_count = { min = 4, max = 6 } }
answer = [
    { call = "send_subagent_input", arguments = { agent_id = "one", input = "Again." } },
    { call = "wait_for_subagents", arguments = {} },
]

[[rule]]
when = { context_contains = "open and closed", call_count = 0 }
answer = [
    { call = "create_subagent", arguments = { task = "Look.", name = "scout" } },
    { call = "wait_for_subagents", arguments = {} },
]

[[rule]]
when = { context_contains = "open and closed", call_count = 2 }
answer = [
    { call = "close_subagent", arguments = { agent_id = "scout" } },
    { call = "resume_subagent", arguments = { agent_id = "scout" } },
    { call = "close_subagent", arguments = { agent_id = "scout" } },
]

[otherwise]
answer = [{ text = "That is all." }]
usage = { input_tokens = 10, output_tokens = 1 }
"""

MODELS = {
    "crew": CREW,
    "greeter": GREETER,
    "echo": ECHO,
    "silent-about-usage": SILENT_ABOUT_USAGE,
    "gated": GATED,
    "held": HELD,
    "weather": WEATHER,
    "commenting": COMMENTING,
    "parallel": PARALLEL,
    "structured": STRUCTURED,
    "repaired": REPAIRED,
    "unparsable": UNPARSABLE,
    "reasoning": REASONING,
    "steered": STEERED,
    "adaptive": ADAPTIVE,
    "faulty": FAULTY,
    "flaky": FLAKY,
    "any-fault": ANY_FAULT,
    "counted": COUNTED,
    "wrong-arguments": WRONG_ARGUMENTS,
    "unknown-tool": UNKNOWN_TOOL,
    "broken-json": BROKEN_JSON,
    "stubborn": STUBBORN,
    "secret-argument": SECRET_ARGUMENT,
    "pattern-bomb": PATTERN_BOMB,
    "half-right": HALF_RIGHT,
    "nested": NESTED,
    "late": LATE,
    "long": LONG,
    "spoken": SPOKEN,
}

SETTINGS = """
[server]
keepalive = 0.5

[work]
drain = 0.5

[retry]
attempts = 2
base_delay = 0.01
max_delay = 0.02
"""
"""Short times, so that keep-alives and retries happen in every test run."""
