"""The scripted model of sessions with subagents: the root does what its user says, a subagent its task.

Every text that is said has a tag of its own, which is also the name of the gate that holds an answer open.
"""

from __future__ import annotations

import re

KINDS = ("answer", "mute", "break", "tear", "hang", "hush", "spawn", "call")
"""What a subagent does with an input: `<kind> <tag>`."""
HELD = ("hang", "hush", "below")
NAMES = ("a", "b", "c", "a-2", "nobody")
LIMIT = 3
"""Subagents that may be at work at once."""

_ACTS = (
    (r"create (?P<tag>\S+) (?P<name>\S+) (?P<kind>\S+)", (("create", "{kind} {tag}", "{name}"),)),
    (
        r"fan (?P<tag>\S+)",
        (
            ("create", "hang {tag}", "f"),
            ("create", "answer {tag}x", "f"),
            ("create", "mute {tag}y", "f"),
            ("create", "break {tag}z", "f"),
            ("wait", "", "any"),
        ),
    ),
    (
        r"rest (?P<tag>\S+) (?P<kind>\S+)",
        (("create", "{kind} {tag}", "r"), ("wait", "", "long")),
    ),
    (r"tell (?P<tag>\S+) (?P<name>\S+) (?P<kind>\S+)", (("send", "{kind} {tag}", "{name}"),)),
    (
        r"divert (?P<tag>\S+) (?P<name>\S+) (?P<kind>\S+)",
        (("interrupt", "", "{name}"), ("send", "{kind} {tag}", "{name}")),
    ),
    (r"interrupt (?P<tag>\S+) (?P<name>\S+)", (("interrupt", "", "{name}"),)),
    (r"close (?P<tag>\S+) (?P<name>\S+)", (("close", "", "{name}"),)),
    (r"resume (?P<tag>\S+) (?P<name>\S+)", (("resume", "", "{name}"),)),
    (r"wait (?P<tag>\S+) (?P<how>short)", (("wait", "", "short"),)),
    (r"wait (?P<tag>\S+) (?P<how>long)", (("wait", "", "long"),)),
    (r"wait (?P<tag>\S+) (?P<how>any)", (("wait", "", "any"),)),
    (
        r"ask (?P<tag>\S+) (?P<kind>\S+)",
        (("create", "{kind} {tag}", "q"), ("wait", "", "long"), ("weather", "", "{tag}")),
    ),
)

_CALLS = {
    "create": "create_subagent",
    "send": "send_subagent_input",
    "wait": "wait_for_subagents",
    "interrupt": "interrupt_subagent",
    "close": "close_subagent",
    "resume": "resume_subagent",
    "weather": "weather",
}
WAITS = {"short": "timeout_s = 0.1", "long": "timeout_s = 600", "any": 'until = "any", timeout_s = 600'}


def _call(act: str, text: str, name: str) -> str:
    match act:
        case "create":
            arguments = f'task = "{text}", name = "{name}"'
        case "send":
            arguments = f'agent_id = "{name}", input = "{text}"'
        case "wait":
            arguments = WAITS[name]
        case "weather":
            arguments = f'city = "{name}"'
        case _:
            arguments = f'agent_id = "{name}"'
    return f'{{ call = "{_CALLS[act]}", arguments = {{ {arguments} }} }}'


def _acts() -> str:
    return "".join(
        f"""
[[rule]]
when = {{ agent = "", step = 0, user_matches = '^{pattern}$' }}
answer = [{", ".join(_call(*call) for call in calls)}]
usage = {{ input_tokens = 10, output_tokens = 1 }}
"""
        for pattern, calls in _ACTS
    )


_USAGE = "usage = { input_tokens = 100, output_tokens = 10 }"

SCRIPT = (
    _acts()
    + r"""
[[rule]]
when = { agent = "", step = 0, user_matches = '^work (?P<tag>\S+)$' }
answer = [{ chunks = ["working", { wait_for_file = "gates/{tag}" }, " no more"] }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { agent = "", step = 0, user_matches = '^forget (?P<tag>\S+)$' }
answer = [{ text = "forgotten" }]
usage = false

[[rule]]
when = { agent = "" }
answer = [{ text = "done" }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { agent = "?*", step = 0, user_matches = '\bspawn (?P<tag>\S+)$' }
answer = [
    { call = "create_subagent", arguments = { task = "below {tag}", name = "below" } },
    { call = "wait_for_subagents", arguments = { timeout_s = 0.3 } },
]
USAGE

[[rule]]
when = { agent = "?*", user_matches = '\bspawn (?P<tag>\S+)$' }
answer = [{ text = "spawned {tag}" }]
USAGE

[[rule]]
when = { agent = "?*", step = 0, user_matches = '\bcall (?P<tag>\S+)$' }
answer = [{ call = "weather", arguments = { city = "{tag}" } }]
USAGE

[[rule]]
when = { agent = "?*", user_matches = '\bcall (?P<tag>\S+)$' }
answer = [{ text = "called {tag}" }]
USAGE

[[rule]]
when = { agent = "?*", user_matches = '\b(hang|below) (?P<tag>\S+)$' }
answer = [{ chunks = ["held {tag}", { wait_for_file = "gates/{tag}" }, " and let go"] }]
USAGE

[[rule]]
when = { agent = "?*", user_matches = '\bhush (?P<tag>\S+)$' }
answer = [{ reasoning = "thinking" }, { wait_for_file = "gates/{tag}" }, { text = "hushed {tag}" }]
USAGE

[[rule]]
when = { agent = "?*", user_matches = '\bmute \S+$' }
answer = []
USAGE

[[rule]]
when = { agent = "?*", user_matches = '\bbreak (?P<tag>\S+)$' }
answer = [{ chunks = ["half {tag}", { fault = "server_error", retryable = false, message = "It broke." }] }]

[[rule]]
when = { agent = "?*", user_matches = '\btear (?P<tag>\S+)$', times_per_conversation = 1 }
answer = [{ chunks = ["torn {tag}", { fault = "cut" }] }]

[[rule]]
when = { agent = "?*", user_matches = '\btear (?P<tag>\S+)$' }
answer = [{ text = "mended {tag}" }]
USAGE

[[rule]]
when = { agent = "?*", user_matches = '\banswer (?P<tag>\S+)$' }
answer = [{ text = "answered {tag}", delta_size = 3 }]
USAGE
""".replace("USAGE", _USAGE)
)

_ANSWERS = {
    "answer": "answered {tag}",
    "mute": "(The subagent ended its turn without any text.)",
    "tear": "mended {tag}",
    "hang": "held {tag} and let go",
    "below": "held {tag} and let go",
    "hush": "hushed {tag}",
    "spawn": "spawned {tag}",
    "call": "called {tag}",
}

SETTINGS = """
[server]
keepalive = 0.5

[work]
drain = 0.2
LEASE

[subagents]
depth = 2
wait = 0.3

[retry]
attempts = 2
base_delay = 0.01
max_delay = 0.02
"""


def settings_text(lease: str = "") -> str:
    """Settings of a server; `lease` is a line of the table `[work]`."""
    return SETTINGS.replace("LEASE", lease)


def words_of(text: str) -> tuple[str, str]:
    """The kind and the tag of what a subagent was told."""
    found = re.search(r"(\S+) (\S+)$", text)
    assert found is not None, text
    return found[1], found[2]


def answer_to(text: str) -> str:
    """What a subagent reports that has been told this, if its turn is completed."""
    kind, tag = words_of(text)
    return _ANSWERS[kind].format(tag=tag)
