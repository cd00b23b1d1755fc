"""The scripted model of the machine, and the same behaviour in plain Python.

The first word of the newest user message says what the model does; the second is a tag that no other
message has, and the name of the gate for those that wait for one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

SAYINGS = ("say", "think", "quiet", "mute")
CALLERS = ("weather", "two", "chain", "async", "mixed", "bad", "stubborn", "unknown")
HOLDERS = ("hold", "hush", "holdcall")
BREAKERS = ("fail", "break", "tear")
WORDS = SAYINGS + CALLERS + HOLDERS + BREAKERS

MODELS = ("machine-a", "machine-b")

SCRIPT = r"""
[[rule]]
when = { newest = "note" }
answer = [{ text = "{model}: noted", delta_size = 4 }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { newest = "result", user_matches = '^chain \S+$', step = 1 }
answer = [{ text = "{model}: on with it" }, { call = "clock", arguments = { zone = "Europe/Oslo" } }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { newest = "result", user_matches = '^stubborn \S+$', step = { max = 3 } }
answer = [{ call = "weather", arguments = { city = 5 } }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { newest = "result", user_matches = '^\S+ (?P<tag>\S+)$' }
answer = [{ text = "{model}: done {tag}", delta_size = 7 }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { user_matches = '^say (?P<tag>\S+)$' }
answer = [{ text = "{model}: said {tag}", delta_size = 3 }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { user_matches = '^think (?P<tag>\S+)$' }
answer = [{ reasoning = "thought {tag}", delta_size = 5 }, { text = "{model}: thought {tag}" }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { user_matches = '^quiet (?P<tag>\S+)$' }
answer = [{ text = "{model}: quiet {tag}" }]
usage = false

[[rule]]
when = { user_matches = '^mute \S+$' }
answer = []
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { user_matches = '^(weather|chain) (?P<tag>\S+)$' }
answer = [{ call = "weather", arguments = { city = "{tag}" } }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { user_matches = '^two (?P<tag>\S+)$' }
answer = [
    { text = "{model}: both {tag}" },
    { call = "weather", arguments = { city = "{tag}" } },
    { call = "clock", arguments = { zone = "{tag}" } },
]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { user_matches = '^async (?P<tag>\S+)$' }
answer = [{ call = "report", arguments = { topic = "{tag}" } }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { user_matches = '^mixed (?P<tag>\S+)$' }
answer = [
    { call = "report", arguments = { topic = "{tag}" } },
    { call = "weather", arguments = { city = "{tag}" } },
    { call = "weather", arguments = { town = "{tag}" } },
]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { user_matches = '^(bad|stubborn) \S+$' }
answer = [{ call = "weather", arguments = { city = 5 } }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { user_matches = '^unknown (?P<tag>\S+)$' }
answer = [{ call = "nothing", arguments = { city = "{tag}" } }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { user_matches = '^hold (?P<tag>\S+)$' }
answer = [{ chunks = ["{model}: ", "holding", { wait_for_file = "gates/{tag}" }, " {tag}"] }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { user_matches = '^hush (?P<tag>\S+)$' }
answer = [{ wait_for_file = "gates/{tag}" }, { text = "{model}: hushed {tag}" }]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { user_matches = '^holdcall (?P<tag>\S+)$' }
answer = [
    { chunks = ["{model}: ", "looking", { wait_for_file = "gates/{tag}" }, " {tag}"] },
    { call = "weather", arguments = { city = "{tag}" } },
    { call = "report", arguments = { topic = "{tag}" } },
]
usage = { input_tokens = 10, output_tokens = 1 }

[[rule]]
when = { user_matches = '^fail \S+$' }
answer = [{ fault = "authentication_error", message = "The provider refused the key." }]

[[rule]]
when = { user_matches = '^break (?P<tag>\S+)$' }
answer = [{ chunks = ["{model}: broken {tag}", { fault = "invalid_request", message = "Given up." }] }]

[[rule]]
when = { user_matches = '^tear (?P<tag>\S+)$', times_per_conversation = 1 }
answer = [{ chunks = ["{model}: torn {tag}", { fault = "cut" }] }]

[[rule]]
when = { user_matches = '^tear (?P<tag>\S+)$' }
answer = [{ text = "{model}: mended {tag}" }]
usage = { input_tokens = 10, output_tokens = 1 }
"""

INPUT_TOKENS, OUTPUT_TOKENS = 10, 1
"""What every answer reports to have used."""

SETTINGS = """
[server]
keepalive = 0.5

[work]
drain = 0.2

[retry]
attempts = 2
base_delay = 0.01
max_delay = 0.02
"""


def _function(name: str, argument: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "function",
        "name": name,
        "description": f"The {name}.",
        "parameters": {
            "type": "object",
            "properties": {argument: {"type": "string"}},
            "required": [argument],
            "additionalProperties": False,
        },
        **more,
    }


FUNCTIONS = {
    "weather": _function("weather", "city"),
    "clock": _function("clock", "zone"),
    "report": _function("report", "topic", **{"async": True}),
}
ARGUMENT = {"weather": "city", "clock": "zone", "report": "topic"}
ASYNC = frozenset({"report"})


@dataclass(frozen=True)
class Text:
    """A message or reasoning that is streamed; `held` is what is seen of it while its gate is closed."""

    kind: Literal["message", "reasoning"]
    text: str
    held: str | None = None


@dataclass(frozen=True)
class Call:
    name: str
    arguments: tuple[tuple[str, Any], ...]

    @property
    def valid(self) -> bool:
        """Whether the arguments satisfy the schema of the function."""
        ((name, value),) = self.arguments
        return name == ARGUMENT.get(self.name) and isinstance(value, str)


@dataclass(frozen=True)
class Plan:
    """One answer: texts, then calls. `gate` holds it open behind `gate_after` texts.

    end: None for a whole answer, a turn error code, or "cut" for a broken connection (tried again).
    """

    texts: tuple[Text, ...] = ()
    calls: tuple[Call, ...] = ()
    gate: str | None = None
    gate_after: int = 0
    end: str | None = None
    counts: bool = True


def play(newest: str, user: str, step: int, model: str, torn: bool) -> Plan:
    """What the script answers.

    newest: what the context ends with: "user", "result" or "note". step: answers since the newest user
    message. torn: whether an answer of this model was torn already in this conversation and process.
    """
    word, tag = user.split(" ")
    if newest == "note":
        return _said(f"{model}: noted")
    if newest == "result" and word == "chain" and step == 1:
        return Plan((Text("message", f"{model}: on with it"),), (_call("clock", "zone", "Europe/Oslo"),))
    if newest == "result" and word == "stubborn" and step <= 3:
        return Plan(calls=(_call("weather", "city", 5),))
    if newest == "result":
        return _said(f"{model}: done {tag}")
    match word:
        case "say":
            return _said(f"{model}: said {tag}")
        case "think":
            thought = Text("reasoning", f"thought {tag}")
            return Plan((thought, Text("message", f"{model}: thought {tag}")))
        case "quiet":
            return Plan((Text("message", f"{model}: quiet {tag}"),), counts=False)
        case "mute":
            return Plan()
        case "weather" | "chain":
            return Plan(calls=(_call("weather", "city", tag),))
        case "two":
            calls = (_call("weather", "city", tag), _call("clock", "zone", tag))
            return Plan((Text("message", f"{model}: both {tag}"),), calls)
        case "async":
            return Plan(calls=(_call("report", "topic", tag),))
        case "mixed":
            calls = (_call("report", "topic", tag), _call("weather", "city", tag))
            return Plan(calls=(*calls, _call("weather", "town", tag)))
        case "bad" | "stubborn":
            return Plan(calls=(_call("weather", "city", 5),))
        case "unknown":
            return Plan(calls=(_call("nothing", "city", tag),))
        case "hold":
            text = Text("message", f"{model}: holding {tag}", held=f"{model}: holding")
            return Plan((text,), gate=tag, gate_after=1)
        case "hush":
            return Plan((Text("message", f"{model}: hushed {tag}"),), gate=tag)
        case "holdcall":
            text = Text("message", f"{model}: looking {tag}", held=f"{model}: looking")
            calls = (_call("weather", "city", tag), _call("report", "topic", tag))
            return Plan((text,), calls, gate=tag, gate_after=1)
        case "fail":
            return Plan(end="authentication_error")
        case "break":
            return Plan((Text("message", f"{model}: broken {tag}"),), end="invalid_request")
        case "tear" if not torn:
            return Plan((Text("message", f"{model}: torn {tag}"),), end="cut")
        case "tear":
            return _said(f"{model}: mended {tag}")
        case _:
            raise AssertionError(user)


def _said(text: str) -> Plan:
    return Plan((Text("message", text),))


def _call(name: str, argument: str, value: Any) -> Call:
    return Call(name, ((argument, value),))
