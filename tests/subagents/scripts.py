"""The scripted model of these tests: the root does what its user says, and a subagent what its task says."""

from __future__ import annotations

_ACTS = {
    r"^create (?P<name>\S+): (?P<task>[^;]+)$": [("create_subagent", 'task = "{task}", name = "{name}"')],
    r"^tell (?P<name>\S+): (?P<input>.+)$": [
        ("send_subagent_input", 'agent_id = "{name}", input = "{input}"')
    ],
    r"^wait for (?P<name>\S+) briefly$": [("wait_for_subagents", 'agent_ids = ["{name}"], timeout_s = 0.2')],
    r"^wait for (?P<name>\S+) long$": [("wait_for_subagents", 'agent_ids = ["{name}"], timeout_s = 1e30')],
    r"^wait for (?P<name>\S+)$": [("wait_for_subagents", 'agent_ids = ["{name}"]')],
    r"^wait for any$": [("wait_for_subagents", 'until = "any"')],
    r"^wait$": [("wait_for_subagents", "")],
    r"^(?P<act>interrupt|close|resume) (?P<name>\S+)$": [("{act}_subagent", 'agent_id = "{name}"')],
    r"^interrupt (?P<name>\S+) and tell it: (?P<input>.+)$": [
        ("interrupt_subagent", 'agent_id = "{name}"'),
        ("send_subagent_input", 'agent_id = "{name}", input = "{input}"'),
    ],
    r"^ask (?P<name>\S+): (?P<task>[^;]+)$": [
        ("create_subagent", 'task = "{task}", name = "{name}"'),
        ("wait_for_subagents", ""),
    ],
    r"^five (?P<gate>\S+)$": [
        ("create_subagent", 'task = "Say yes.", name = "answers"'),
        ("create_subagent", 'task = "hang {gate}", name = "hangs"'),
        ("create_subagent", 'task = "Please spawn.", name = "spawns"'),
        ("create_subagent", 'task = "Please look up A-1042.", name = "calls"'),
        ("create_subagent", 'task = "Please break.", name = "breaks"'),
    ],
    r"^fan (?P<gate>\S+)$": [
        ("create_subagent", 'task = "hang {gate}", name = "left"'),
        ("create_subagent", 'task = "hang {gate}", name = "right"'),
        ("wait_for_subagents", ""),
    ],
    r"^ask (?P<name>\S+): (?P<task>[^;]+); and look up$": [
        ("create_subagent", 'task = "{task}", name = "{name}"'),
        ("wait_for_subagents", ""),
        ("lookup_order", 'order_id = "A-1042"'),
    ],
}


def _rule(matches: str, calls: list[tuple[str, str]]) -> str:
    made = ", ".join(f'{{ call = "{name}", arguments = {{ {arguments} }} }}' for name, arguments in calls)
    return f"""
[[rule]]
when = {{ agent = "", step = 0, user_matches = '{matches}' }}
answer = [{made}]
usage = {{ input_tokens = 10, output_tokens = 1 }}
"""


def _acts() -> str:
    rules = []
    for matches, calls in _ACTS.items():
        if "{act}" in calls[0][0]:
            for act in ("interrupt", "close", "resume"):
                name, arguments = calls[0]
                rules.append(
                    _rule(
                        matches.replace("(?P<act>interrupt|close|resume)", act),
                        [(name.format(act=act), arguments)],
                    )
                )
        else:
            rules.append(_rule(matches, calls))
    return "".join(rules)


CREW = f"""
{_acts()}

[[rule]]
when = {{ agent = "", user_matches = '^remember ' }}
answer = [{{ text = "I remember." }}]
usage = false

[[rule]]
when = {{ agent = "", step = 0, user_matches = '^work (?P<gate>[0-9a-f]+)$' }}
answer = [
    {{ text = "I work." }},
    {{ wait_for_file = "gates/{{gate}}" }},
    {{ call = "wait_for_subagents", arguments = {{ }} }},
]

# The root answers with the result of its last call.
[[rule]]
when = {{ agent = "" }}
answer = [{{ text = "{{result|Nothing was called.}}" }}]
usage = {{ input_tokens = 10, output_tokens = 1 }}

[[rule]]
when = {{ agent = "?*", user_matches = 'create below: (?P<task>.+)', step = 0 }}
answer = [
    {{ call = "create_subagent", arguments = {{ task = "{{task}}", name = "below" }} }},
    {{ call = "wait_for_subagents", arguments = {{ }} }},
]

[[rule]]
when = {{ agent = "?*", after_result_of = "wait_for_subagents" }}
answer = [{{ text = "It is done below." }}]

[[rule]]
when = {{ agent = "?*", user_matches = 'hang (?P<gate>[0-9a-f]+)' }}
answer = [{{ chunks = ["Before, ", {{ wait_for_file = "gates/{{gate}}" }}, "after."] }}]
usage = {{ input_tokens = 100, output_tokens = 10 }}

[[rule]]
when = {{ agent = "?*", user_contains = "spawn", step = 0 }}
answer = [{{ call = "create_subagent", arguments = {{ task = "More of it.", name = "below" }} }}]
usage = {{ input_tokens = 100, output_tokens = 10 }}

[[rule]]
when = {{ agent = "?*", user_contains = "look up", step = 0 }}
answer = [{{ call = "lookup_order", arguments = {{ order_id = "A-1042" }} }}]
usage = {{ input_tokens = 100, output_tokens = 10 }}

[[rule]]
when = {{ agent = "?*", user_contains = "break" }}
answer = [
    {{ chunks = [
        "The first half, ",
        {{ fault = "server_error", retryable = false, message = "It broke." }},
    ] }},
]

[[rule]]
when = {{ agent = "?*", user_contains = "be silent" }}
answer = []
usage = {{ input_tokens = 100, output_tokens = 10 }}

[[rule]]
when = {{ agent = "?*", newest = "result" }}
answer = [{{ text = "I was told: {{result}}" }}]
usage = {{ input_tokens = 100, output_tokens = 10 }}

[[rule]]
when = {{ agent = "?*" }}
answer = [{{ text = "Done: {{user}}" }}]
usage = {{ input_tokens = 100, output_tokens = 10 }}
"""
