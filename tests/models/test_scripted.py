from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.models.script_requests import (
    LOOKUP_ORDER,
    answer,
    as_history,
    call,
    calls,
    play,
    request,
    result,
    scripted,
    user,
)

from perdure.models.errors import ModelError
from perdure.models.messages import (
    AssistantMessage,
    CallDone,
    Entry,
    Finished,
    FunctionCall,
    FunctionSpec,
    ImagePart,
    MessageDone,
    Native,
    Reasoning,
    ReasoningDelta,
    ReasoningDone,
    ServerNote,
    TextDelta,
    TextPart,
    UserMessage,
)

SHIPPED = {"order_id": "A-1042", "status": "shipped", "items": [{"name": "lamp", "count": 2}], "note": None}
LOOKED_UP = (user("Where is A-1042?"), call("c1", order_id="A-1042"), result("c1", SHIPPED))


def rule(when: str, says: str = "yes") -> str:
    return f'[[rule]]\nwhen = {{ {when} }}\nanswer = [{{ text = "{says}" }}]\n'


OTHERWISE = '[otherwise]\nanswer = [{ text = "no" }]\n'


NOTE = ServerNote((TextPart("The result of call c7 came late."),))
OLDER = (user("first"), AssistantMessage("hello"))


@pytest.mark.parametrize(
    ("when", "holds", "holds_not"),
    [
        ("", request(user("x")), None),
        ('user_contains = "order"', request(user("my order")), request(user("Order"))),
        ('user_contains = "order"', request(*OLDER, user("order")), request(user("order"), user("x"))),
        ("user_matches = '[A-Z]-\\d{4}$'", request(user("it is A-1042")), request(user("A-1042 it is"))),
        ('instructions_contains = "brief"', request(user("x")), request(user("x"), instructions="Be long.")),
        ('context_contains = "hello"', request(*OLDER, user("x")), request(user("x"))),
        ('context_contains = "shipped"', request(*LOOKED_UP), request(user("x"))),
        ('note_contains = "came late"', request(user("x"), NOTE), request(user("came late"))),
        ('has_tool = "lookup_order"', request(user("x"), tools=(LOOKUP_ORDER,)), request(user("x"))),
        (
            'has_tool = ["lookup_order", "refund"]',
            request(user("x"), tools=(LOOKUP_ORDER, replace(LOOKUP_ORDER, name="refund"))),
            request(user("x"), tools=(LOOKUP_ORDER,)),
        ),
        (
            "has_output_schema = true",
            request(user("x"), output_schema={"type": "object"}),
            request(user("x")),
        ),
        (
            "has_output_schema = false",
            request(user("x")),
            request(user("x"), output_schema={"type": "object"}),
        ),
        ('newest = "user"', request(user("x")), request(user("x"), NOTE)),
        ('newest = "note"', request(user("x"), NOTE), request(NOTE, user("x"))),
        ('newest = "result"', request(*LOOKED_UP), request(*LOOKED_UP, NOTE)),
        ('newest = "assistant"', request(*OLDER), request(user("x"))),
        ('after_result_of = "lookup_order"', request(*LOOKED_UP), request(*LOOKED_UP, user("and?"))),
        (
            'after_result_of = "lookup_order"',
            request(*LOOKED_UP, NOTE),
            request(*LOOKED_UP, AssistantMessage("ok")),
        ),
        ('after_result_of = "lookup_*"', request(*LOOKED_UP), request(user("x"))),
        (
            'after_result_of = "refund"',
            request(user("x"), call("c1"), call("c2", "refund"), result("c1", ""), result("c2", "")),
            request(user("x"), call("c1", "refund"), call("c2"), result("c1", ""), result("c2", "")),
        ),
        ('result_contains = "shipped"', request(*LOOKED_UP), request(*LOOKED_UP, user("shipped?"))),
        (
            "result_failed = true",
            request(user("x"), call("c1"), result("c1", "", failed=True)),
            request(*LOOKED_UP),
        ),
        ("result_failed = false", request(*LOOKED_UP), request(user("x"))),
        ("turn = 2", request(*OLDER, user("x")), request(user("x"))),
        ("turn = { min = 2 }", request(*OLDER, user("x"), user("y")), request(user("x"))),
        ("step = 0", request(*LOOKED_UP, user("x")), request(*LOOKED_UP)),
        ("step = 1", request(*LOOKED_UP), request(user("x"))),
        ("step = { max = 1 }", request(*LOOKED_UP), request(*LOOKED_UP, AssistantMessage("so"), NOTE)),
        ("call_count = 1", request(*LOOKED_UP, user("x")), request(user("x"))),
        ('model = "small-*"', request(user("x"), model="small-1"), request(user("x"))),
        ('effort = "high"', request(user("x"), effort="high"), request(user("x"))),
        ('user_contains = "a", turn = 1', request(user("a")), request(*OLDER, user("a"))),
    ],
)
async def test_a_rule_answers_when_all_its_conditions_hold(
    tmp_path: Path, when: str, holds: Any, holds_not: Any
) -> None:
    model = scripted(tmp_path, rule(when) + OTHERWISE)
    assert await answer(model, holds) == "yes"
    if holds_not is not None:
        assert await answer(model, holds_not) == "no"


async def test_the_first_rule_that_holds_answers(tmp_path: Path) -> None:
    model = scripted(
        tmp_path, rule('user_contains = "b"', "b") + rule("", "any") + rule('user_contains = "a"', "a")
    )
    assert await answer(model, request(user("a b"))) == "b"
    assert await answer(model, request(user("a"))) == "any"


async def test_a_request_without_a_rule_fails_for_good(tmp_path: Path) -> None:
    model = scripted(tmp_path, rule("turn = 2"))
    with pytest.raises(ModelError, match="No rule of the script of scripted") as caught:
        await play(model, request(user("x")))
    assert (caught.value.code, caught.value.retryable) == ("invalid_request", False)


async def test_parallel_calls_are_one_step_however_their_results_are_ordered(tmp_path: Path) -> None:
    model = scripted(
        tmp_path,
        """
        [[rule]]
        when = { step = 0 }
        answer = [{ call = "lookup_order" }, { call = "lookup_order" }]
        [otherwise]
        answer = [{ text = "step {step}" }]
        """,
    )
    first, second = as_history(await play(model, request(user("x"))))
    assert isinstance(first, FunctionCall)
    assert isinstance(second, FunctionCall)
    results = [result(first.call_id, "1"), result(second.call_id, "2")]
    assert await answer(model, request(user("x"), first, second, *results)) == "step 1"
    assert await answer(model, request(user("x"), first, results[0], second, results[1])) == "step 1"


async def test_answers_stay_apart_when_the_past_was_cut_off(tmp_path: Path) -> None:
    model = scripted(tmp_path, '[otherwise]\nanswer = [{ text = "step {step}" }]')
    history: list[Entry] = [user("x")]
    for _ in range(3):
        history += as_history(await play(model, request(*history)))
    kept = [user("x"), history[-1]]  # the second and third answer, of which the first is gone
    kept += as_history(await play(model, request(*kept)))
    assert await answer(model, request(*kept)) == "step 2"


async def test_times_limits_a_rule_for_the_life_of_the_process(tmp_path: Path) -> None:
    model = scripted(tmp_path, rule("times = 2") + OTHERWISE)
    heard = [await answer(model, request(user("x"), cache_key=str(n))) for n in range(3)]
    assert heard == ["yes", "yes", "no"]


async def test_times_per_conversation_counts_each_conversation(tmp_path: Path) -> None:
    model = scripted(tmp_path, rule("times_per_conversation = 1") + OTHERWISE)
    heard = [await answer(model, request(user("x"), cache_key=key)) for key in ("a", "b", "a", "b")]
    assert heard == ["yes", "yes", "no", "no"]


async def test_text_is_streamed_in_pieces_and_ends_with_the_whole(tmp_path: Path) -> None:
    model = scripted(
        tmp_path, '[otherwise]\nanswer = [{ text = "abcde", delta_size = 2, phase = "commentary" }]'
    )
    events = await play(model, request(user("x")))
    assert events[:3] == [TextDelta(0, "ab"), TextDelta(0, "cd"), TextDelta(0, "e")]
    native = Native("scripted", "scripted", {"answer": 1, "output": 0})
    assert events[3] == MessageDone(0, "abcde", phase="commentary", native=native)


async def test_text_without_options_is_one_delta_and_leaves_the_phase_open(tmp_path: Path) -> None:
    events = await play(scripted(tmp_path, OTHERWISE), request(user("x")))
    assert events[0] == TextDelta(0, "no")
    assert isinstance(events[1], MessageDone)
    assert events[1].phase is None
    assert len(events) == 3


async def test_an_empty_text_has_no_delta(tmp_path: Path) -> None:
    events = await play(scripted(tmp_path, '[otherwise]\nanswer = [{ text = "" }]'), request(user("x")))
    assert [type(event) for event in events] == [MessageDone, Finished]


async def test_an_empty_answer_is_only_finished(tmp_path: Path) -> None:
    events = await play(scripted(tmp_path, "[otherwise]\nanswer = []"), request(user("x")))
    assert [type(event) for event in events] == [Finished]


async def test_a_refusal_is_marked(tmp_path: Path) -> None:
    model = scripted(tmp_path, '[otherwise]\nanswer = [{ text = "I will not.", refusal = true }]')
    events = await play(model, request(user("x")))
    assert isinstance(events[1], MessageDone)
    assert events[1].refusal


async def test_outputs_are_numbered_in_order(tmp_path: Path) -> None:
    model = scripted(
        tmp_path,
        """
        [otherwise]
        answer = [
          { reasoning = ["Look it up.", "Twice."], delta_size = 8, native = { secret = "s1" } },
          { text = "Looking." },
          { call = "lookup_order", arguments = { order_id = "A-1042" } },
          { call = "lookup_order", arguments = { order_id = "A-1043" } },
        ]
        """,
    )
    events = await play(model, request(user("x")))
    assert events[:5] == [
        ReasoningDelta(0, 0, "Look it "),
        ReasoningDelta(0, 0, "up."),
        ReasoningDelta(0, 1, "Twice."),
        ReasoningDone(
            0,
            ("Look it up.", "Twice."),
            Native("scripted", "scripted", {"answer": 1, "output": 0, "data": {"secret": "s1"}}),
        ),
        TextDelta(1, "Looking."),
    ]
    done = [event for event in events if isinstance(event, CallDone)]
    assert [(event.output, event.arguments) for event in done] == [
        (2, '{"order_id":"A-1042"}'),
        (3, '{"order_id":"A-1043"}'),
    ]
    assert [event.native.data["output"] for event in done if event.native] == [2, 3]


async def test_replayed_reasoning_is_seen_and_comes_with_its_follower(tmp_path: Path) -> None:
    model = scripted(
        tmp_path,
        """
        [[rule]]
        when = { step = 0 }
        answer = [{ reasoning = "Hm.", native = { secret = "s1" } }, { call = "lookup_order" }]
        [[rule]]
        when = { reasoning_contains = "s1" }
        answer = [{ text = "replayed" }]
        [otherwise]
        answer = [{ text = "forgotten" }]
        """,
    )
    reasoning, asked = as_history(await play(model, request(user("x"))))
    assert isinstance(asked, FunctionCall)
    done = result(asked.call_id, "ok")
    assert await answer(model, request(user("x"), reasoning, asked, done)) == "replayed"
    assert await answer(model, request(user("x"), asked, done)) == "forgotten"


async def test_raw_arguments_go_out_as_they_stand(tmp_path: Path) -> None:
    model = scripted(
        tmp_path,
        """[otherwise]\nanswer = [{ call = "lookup_order", arguments_text = '{"order_id": {user}' }]""",
    )
    assert await calls(model, request(user("x"))) == [("lookup_order", '{"order_id": {user}')]


async def test_a_call_without_arguments_sends_an_empty_object(tmp_path: Path) -> None:
    model = scripted(tmp_path, '[otherwise]\nanswer = [{ call = "now" }]')
    assert await calls(model, request(user("x"))) == [("now", "{}")]


async def test_a_file_holds_an_answer_open_in_mid_message(tmp_path: Path) -> None:
    model = scripted(
        tmp_path,
        """
        [[rule]]
        when = { user_matches = 'gate (?P<gate>\\S+)' }
        answer = [{ chunks = ["before ", { wait_for_file = "{gate}" }, "after"] }]
        """,
    )
    async with aclosing(model.stream(request(user("gate here.txt")))) as stream:
        assert await anext(stream) == TextDelta(0, "before ")
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.03)
        assert not waiting.done()
        (tmp_path / "here.txt").touch()
        assert await asyncio.wait_for(waiting, 5) == TextDelta(0, "after")
        done = await anext(stream)
    assert isinstance(done, MessageDone)
    assert done.text == "before after"


async def test_a_file_that_does_not_come_ends_the_call(tmp_path: Path) -> None:
    model = scripted(tmp_path, '[otherwise]\nanswer = [{ wait_for_file = "never", timeout = 0.02 }]')
    with pytest.raises(ModelError, match="never") as caught:
        await play(model, request(user("x")))
    assert caught.value.code == "request_timeout"


async def test_a_held_answer_can_be_cancelled(tmp_path: Path) -> None:
    model = scripted(tmp_path, '[otherwise]\nanswer = [{ text = "a" }, { wait_for_file = "never" }]')
    heard = asyncio.Event()

    async def listen() -> None:
        async for event in model.stream(request(user("x"))):
            if isinstance(event, MessageDone):
                heard.set()

    task = asyncio.create_task(listen())
    await heard.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_pauses_take_their_time(tmp_path: Path) -> None:
    model = scripted(
        tmp_path, '[otherwise]\nanswer = [{ pause = 0.02 }, { text = "abc", delta_size = 1, pause = 0.02 }]'
    )
    loop = asyncio.get_running_loop()
    began = loop.time()
    await play(model, request(user("x")))
    assert loop.time() - began >= 0.055  # three pauses, less the clock's grain


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ('fault = "cut"', ("connection_failed", True, None, None)),
        (
            'fault = "rate_limit_exceeded", retry_after = 0.5, status = 429',
            ("rate_limit_exceeded", True, 0.5, 429),
        ),
        ('fault = "server_error", retryable = false', ("server_error", False, None, None)),
        ('fault = "usage_limit_exceeded"', ("usage_limit_exceeded", False, None, None)),
    ],
)
async def test_a_fault_ends_the_call_with_its_code(
    tmp_path: Path, fault: str, expected: tuple[Any, ...]
) -> None:
    model = scripted(tmp_path, f"[otherwise]\nanswer = [{{ {fault} }}]")
    with pytest.raises(ModelError) as caught:
        await play(model, request(user("x")))
    error = caught.value
    assert (error.code, error.retryable, error.retry_after, error.status) == expected


async def test_a_fault_after_partial_text_leaves_the_message_open(tmp_path: Path) -> None:
    model = scripted(
        tmp_path, '[otherwise]\nanswer = [{ chunks = ["half", { fault = "cut", message = "gone" }, "!"] }]'
    )
    stream = aiter(model.stream(request(user("x"))))
    assert await anext(stream) == TextDelta(0, "half")
    with pytest.raises(ModelError, match="gone"):
        await anext(stream)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{user}", "Where is A-1042?"),
        ("{letter}/{number}", "A/1042"),
        ("<{nothing}>", "<>"),
        ("{nothing|something}", "something"),
        ("{result.status}", "shipped"),
        ("{result.items.0.name} x {result.items.0.count}", "lamp x 2"),
        ("{result.items}", '[{"name":"lamp","count":2}]'),
        ("<{result.nope}{result.items.7.name}{result.status.deep}{result.note}>", "<>"),
        ("{result.nope|unknown}", "unknown"),
        ("{model} {turn} {step}", "scripted 1 1"),
        ("{{user}} }}{{", "{user} }{"),
    ],
)
async def test_templates_are_filled_in(tmp_path: Path, template: str, text: str) -> None:
    script = f"""
    [[rule]]
    when = {{ user_matches = '(?P<letter>[A-Z])-(?P<number>\\d+)(?P<nothing>!)?' }}
    answer = [{{ text = '{template}' }}, {{ call = "echo", arguments = {{ said = ['{template}'] }} }}]
    """
    model = scripted(tmp_path, script)
    assert await answer(model, request(*LOOKED_UP)) == text
    ((_, arguments),) = await calls(model, request(*LOOKED_UP))
    assert json.loads(arguments)["said"][0] in (text, 1, SHIPPED["items"])


async def test_a_lone_placeholder_keeps_its_json_type_in_arguments(tmp_path: Path) -> None:
    script = """
    [otherwise]
    answer = [{ call = "f", arguments = { n = "{result.items.0.count}", text = "n={turn}", t = "{turn}" } }]
    """
    ((_, arguments),) = await calls(scripted(tmp_path, script), request(*LOOKED_UP))
    assert json.loads(arguments) == {"n": 2, "text": "n=1", "t": 1}


async def test_a_result_that_is_no_json_has_no_members(tmp_path: Path) -> None:
    model = scripted(tmp_path, '[otherwise]\nanswer = [{ text = "{result}/{result.status|none}" }]')
    assert await answer(model, request(user("x"), call("c1"), result("c1", "plain"))) == "plain/none"


async def test_no_lone_surrogate_leaves_the_model(tmp_path: Path) -> None:
    model = scripted(
        tmp_path,
        '[otherwise]\nanswer = [{ text = "{result.a}" }, { call = "e", arguments = { a = "{result.a}" } }]',
    )
    asked = request(user("x"), call("c1"), result("c1", '{"a": "\\ud83d \\ud83d\\ude00"}'))
    events = await play(model, asked)
    assert isinstance(events[1], MessageDone)
    assert events[1].text == "\ufffd 😀"
    assert isinstance(events[2], CallDone)
    events[2].arguments.encode()


async def test_usage_is_estimated_from_the_length_of_the_texts(tmp_path: Path) -> None:
    model = scripted(tmp_path, '[otherwise]\nanswer = [{ reasoning = "12345678" }, { text = "1234567" }]')
    usages = []
    for asked in (
        request(user("12345678"), instructions="1234"),
        request(user("12345678"), instructions="1234"),
    ):
        finished = (await play(model, asked))[-1]
        assert isinstance(finished, Finished)
        usages.append(finished.usage)
    assert usages[0] == usages[1]
    usage = usages[0]
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (3, 4, 7)
    assert usage.output_tokens_details.reasoning_tokens == 2


async def test_everything_that_is_sent_counts_as_input(tmp_path: Path) -> None:
    model = scripted(tmp_path, "[otherwise]\nanswer = []")
    sizes = []
    for asked in (
        request(user("x")),
        request(user("x"), tools=(LOOKUP_ORDER,)),
        request(user("x"), tools=(LOOKUP_ORDER,), output_schema={"type": "object"}),
        request(*LOOKED_UP, tools=(LOOKUP_ORDER,), output_schema={"type": "object"}),
        request(UserMessage((ImagePart("data:image/png;base64,AA=="),)), *LOOKED_UP, tools=(LOOKUP_ORDER,)),
    ):
        finished = (await play(model, asked))[-1]
        assert isinstance(finished, Finished)
        assert finished.usage is not None
        sizes.append(finished.usage.input_tokens)
    assert sizes == sorted(set(sizes))


async def test_usage_can_be_given_or_withheld(tmp_path: Path) -> None:
    model = scripted(
        tmp_path,
        """
        [[rule]]
        when = { user_contains = "given" }
        answer = []
        usage = { input_tokens = 10, output_tokens = 5, cached_tokens = 4, reasoning_tokens = 3 }
        [otherwise]
        answer = []
        usage = false
        """,
    )
    given = (await play(model, request(user("given"))))[-1]
    assert isinstance(given, Finished)
    assert given.usage is not None
    assert given.usage.model_dump() == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 15,
    }
    withheld = (await play(model, request(user("x"))))[-1]
    assert isinstance(withheld, Finished)
    assert withheld.usage is None


async def test_a_request_larger_than_the_context_window_is_refused(tmp_path: Path) -> None:
    window = {"context_window": 50, "model": {"big": {"context_window": 5000, "upstream": "big-1"}}}
    model = scripted(tmp_path, OTHERWISE, **window)
    long = user("x" * 400)
    with pytest.raises(ModelError) as caught:
        await play(model, request(long))
    assert caught.value.code == "context_length_exceeded"
    assert await answer(model, request(long, model="big-1")) == "no"


def reasoning(
    provider: str = "scripted", model: str = "scripted", answer: int = 1, output: int = 0
) -> Reasoning:
    return Reasoning(("Hm.",), Native(provider, model, {"answer": answer, "output": output}))


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([], "no entries"),
        ([UserMessage(())], "without content"),
        ([user("x"), call("c1")], "has no result"),
        ([user("x"), result("c1", "y")], "no open call"),
        ([user("x"), result("c1", "y"), call("c1")], "no open call"),
        ([user("x"), call("c1"), result("c1", "y"), result("c1", "y")], "no open call"),
        ([user("x"), call("c1"), call("c1"), result("c1", "y")], "repeated call id"),
        ([user("x"), call(""), result("", "y")], "empty or repeated call id"),
        ([user("x"), call("c1"), user("y"), result("c1", "y")], "no result yet"),
        ([user("x"), call("c1"), NOTE, result("c1", "y")], "no result yet"),
        ([user("x"), reasoning("other"), AssistantMessage("y")], "reasoning of other/scripted"),
        ([user("x"), reasoning(model="other"), AssistantMessage("y")], "reasoning of scripted/other"),
        ([user("x"), reasoning()], "without the output"),
        ([user("x"), reasoning(), user("y")], "without the output"),
        (
            [
                user("x"),
                reasoning(),
                AssistantMessage("y", native=Native("scripted", "scripted", {"answer": 2, "output": 1})),
            ],
            "did not follow",
        ),
    ],
)
async def test_a_malformed_history_is_refused(tmp_path: Path, entries: list[Entry], problem: str) -> None:
    with pytest.raises(ModelError, match=problem) as caught:
        await play(scripted(tmp_path, OTHERWISE), request(*entries))
    assert (caught.value.code, caught.value.retryable, caught.value.status) == ("invalid_request", False, 400)


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ((LOOKUP_ORDER, LOOKUP_ORDER), "repeats the name"),
        ((FunctionSpec("shop.lookup", "", {"type": "object"}),), "has the name 'shop.lookup'"),
        ((FunctionSpec("lookup", "", {"type": "string"}),), "object root"),
    ],
)
async def test_malformed_tools_are_refused(
    tmp_path: Path, tools: tuple[FunctionSpec, ...], problem: str
) -> None:
    with pytest.raises(ModelError, match=problem):
        await play(scripted(tmp_path, OTHERWISE), request(user("x"), tools=tools))
