"""What a run does about each way in which a turn can go, against a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from openai import NotFoundError
from tests.server import ServerProcess

from perdure import (
    ActionRequired,
    Agent,
    Approve,
    AsynchronousValidator,
    Failure,
    FunctionCall,
    InvalidFinalOutput,
    SdkError,
    SessionBusy,
    Sessions,
    Success,
    ToolContext,
    ToolError,
    ToolFinished,
    TurnCancelled,
    TurnFailed,
    UnknownAgent,
    tool,
)
from perdure.sdk.answering import Answers

from .conftest import Gate
from .orders import Resolution

NAME = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}


def caller(*tools: Any, **options: Any) -> Agent[Any]:
    return Agent(name="caller", model="caller", tools=tools, **options)


RUNS: list[str] = []


@tool(parameters=NAME, name="work")
def work(given: Any, context: ToolContext) -> str:
    """Work."""
    RUNS.append(context.session_id)
    return "done"


@tool
def elsewhere() -> str:
    """Runs elsewhere."""
    return "there"


def runs_of(session_id: str) -> int:
    return RUNS.count(session_id)


async def final(sessions: Sessions, agent: Agent[Any], text: str) -> str:
    return str((await sessions.start(agent).run(text)).final_output)


async def test_a_failed_turn_is_an_error_although_the_session_is_idle(sessions: Sessions) -> None:
    session = sessions.start(caller())
    with pytest.raises(TurnFailed, match="The provider refused the key") as failed:
        await session.run("Please fail.")
    assert failed.value.code == "authentication_error"
    assert failed.value.session_id == session.id
    assert (await session.retrieve()).status == "idle"
    with pytest.raises(TurnFailed):
        await sessions.resume(session.id)
    assert (await session.run("Hello")).final_output == "You said: Hello"


async def test_an_answer_that_does_not_match_is_an_error_with_the_text_and_the_rules(
    sessions: Sessions,
) -> None:
    # The saved agent asks for no structure, so that the server lets the answer pass.
    saved = await sessions.save(caller())
    agent = Agent(name="caller", agent_id=saved.agent_id, output_type=Resolution)
    with pytest.raises(InvalidFinalOutput) as invalid:
        await sessions.start(agent).run("Hello")
    assert invalid.value.text == "You said: Hello"
    assert len(invalid.value.issues) == 1
    assert "Hello" not in str(invalid.value)


async def test_a_saved_agent_answers_with_local_functions(sessions: Sessions) -> None:
    @tool(parameters=NAME)
    def work(given: dict[str, str]) -> str:
        """Work."""
        return given["name"]

    saved = await sessions.save(caller(work))
    assert saved.agent_id is not None
    result = await sessions.start(saved).run("work")
    assert result.final_output == "It is one."
    assert (await result.session.retrieve()).agent.id == saved.agent_id


async def test_a_busy_session_is_refused_and_can_be_steered(sessions: Sessions, gate: Gate) -> None:
    session = sessions.start(caller())
    async with session.stream(gate.text) as events:
        async for event in events:
            if event.type == "agent.session.turn.output_text.delta":
                break
        with pytest.raises(SessionBusy, match="Use send"):
            await sessions.attach(session.id, session.agent).run("Now?")
        await session.send("And another thing.")
        gate.release()
        result = await events.result()
    assert result.final_output == "You said: And another thing."
    texts = [item.content[0].text for item in await session.items() if item.type == "message"]  # type: ignore[union-attr]
    assert texts == [gate.text, "Before, after.", "And another thing.", "You said: And another thing."]


async def test_a_cancelled_turn_is_an_error_of_its_own(sessions: Sessions, gate: Gate) -> None:
    session = sessions.start(caller())
    async with session.stream(gate.text) as events:
        async for event in events:
            if event.type == "agent.session.turn.output_text.delta":
                await session.cancel()
        with pytest.raises(TurnCancelled):
            await events.result()
    assert (await session.run("Hello")).final_output == "You said: Hello"
    await session.delete()


async def test_a_cancel_reaches_a_running_function(sessions: Sessions) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    @tool(parameters=NAME)
    async def work(given: dict[str, str]) -> str:
        """Work."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    session = sessions.start(caller(work))
    running = asyncio.create_task(session.run("work"))
    await begun.wait()
    await session.cancel()
    with pytest.raises(TurnCancelled):
        await running
    assert stopped.is_set()


async def test_leaving_a_stream_ends_no_turn(sessions: Sessions, gate: Gate) -> None:
    session = sessions.start(caller())
    async with session.stream(gate.text) as events:
        async for event in events:
            if event.type == "agent.session.turn.output_text.delta":
                break
    assert (await session.retrieve()).status == "in_progress"
    gate.release()
    assert (await sessions.resume(session.id)).final_output == "Before, after."


class TestFunctions:
    async def test_wrong_arguments_go_back_with_the_rule_and_without_the_value(
        self, sessions: Sessions
    ) -> None:
        ran = []

        def check(value: Any, /) -> Any:
            from perdure import Issue

            return Failure([Issue("must be known", ("name",))]) if value["name"] != "one" else Success(value)

        @tool(parameters=standard(check))
        def work(given: Any) -> str:
            """Work."""
            ran.append(given)
            return "done"

        said = await final(sessions, caller(work), "wrong")
        assert "The arguments of work do not match its schema:" in said
        assert "name: must be known" in said
        assert "SECRET-VALUE" not in said
        assert ran == []
        assert await final(sessions, caller(work), "work") == "It is done."

    async def test_an_asynchronous_validator_ends_the_run_and_no_fallback_runs(
        self, sessions: Sessions
    ) -> None:
        fallbacks: list[Exception] = []

        @tool(parameters=awaited(), on_failure=note(fallbacks))
        def work(given: Any) -> str:
            """Work."""
            raise AssertionError("it must not run")

        session = sessions.start(caller(work))
        with pytest.raises(AsynchronousValidator):
            await session.run("work")
        assert fallbacks == []
        # Nothing was submitted: the call is still owed, and a repaired program can answer it.
        owed = (await session.retrieve()).required_actions
        assert [action.type for action in owed] == ["function_call"]

        @tool(parameters=NAME, name="work")
        def repaired(given: Any) -> str:
            """Work."""
            return "repaired"

        assert (await sessions.resume(session.id, caller(repaired))).final_output == "It is repaired."

    async def test_an_asynchronous_validator_of_the_answer_ends_the_run(self, sessions: Sessions) -> None:
        agent = Agent(name="desk", model="structured", output_type=awaited())
        with pytest.raises(AsynchronousValidator):
            await sessions.start(agent).run("Hello")

    async def test_a_broken_validator_fails_the_call_with_a_fixed_text(self, sessions: Sessions) -> None:
        @tool(parameters=standard(lambda value: 1 / 0))
        def work(given: Any) -> str:
            """Work."""
            raise AssertionError("it must not run")

        said = await final(sessions, caller(work), "work")
        assert said == "It failed: The arguments of work could not be checked, so it was not run."

    async def test_an_exception_is_told_by_name_alone(self, sessions: Sessions) -> None:
        @tool(parameters=NAME)
        def work(given: Any) -> str:
            """Work."""
            raise KeyError("SECRET-VALUE")

        assert await final(sessions, caller(work), "work") == "It failed: work failed: KeyError."

    async def test_a_tool_error_is_told_in_its_words(self, sessions: Sessions) -> None:
        @tool(parameters=NAME)
        async def work(given: Any) -> str:
            """Work."""
            raise ToolError("Order A-1042 is archived.")

        assert await final(sessions, caller(work), "work") == "It failed: Order A-1042 is archived."

    async def test_a_hook_words_the_failure(self, sessions: Sessions) -> None:
        seen: list[Exception] = []

        @tool(parameters=NAME, on_failure=note(seen))
        def work(given: Any) -> str:
            """Work."""
            raise KeyError("name")

        assert await final(sessions, caller(work), "work") == "It failed: Try later."
        assert [type(error) for error in seen] == [KeyError]

    async def test_a_raising_tool_ends_the_run_and_a_resume_tells_the_model(self, sessions: Sessions) -> None:
        runs = []

        @tool(parameters=NAME, on_failure="raise")
        def work(given: Any) -> str:
            """Work."""
            runs.append(given)
            raise KeyError("name")

        session = sessions.start(caller(work))
        with pytest.raises(KeyError):
            await session.run("work")
        assert (await sessions.resume(session.id)).final_output == "It failed: work failed: KeyError."
        assert len(runs) == 1

    async def test_a_result_that_cannot_be_sent_is_a_failed_call(self, sessions: Sessions) -> None:
        @tool(parameters=NAME)
        def work(given: Any) -> object:
            """Work."""
            return object()

        said = await final(sessions, caller(work), "work")
        assert said == "It failed: The tool work returned something that has no JSON form."

    async def test_a_result_that_breaks_its_schema_is_a_failed_call(self, sessions: Sessions) -> None:
        @tool(parameters=NAME, output_schema=Resolution)
        def work(given: Any) -> object:
            """Work."""
            return {"order_id": "SECRET-VALUE"}

        said = await final(sessions, caller(work), "work")
        assert "The result of work does not match its output schema:" in said
        assert "message: is required" in said
        assert "SECRET-VALUE" not in said

    async def test_an_object_becomes_text(self, sessions: Sessions) -> None:
        @tool(parameters=NAME)
        def work(given: Any) -> dict[str, Any]:
            """Work."""
            return {"order_id": "A-1042"}

        assert await final(sessions, caller(work), "work") == 'It is {"order_id":"A-1042"}.'

    async def test_the_context_names_the_call(self, sessions: Sessions) -> None:
        seen: list[ToolContext] = []

        @tool
        def work(name: str, context: ToolContext) -> str:
            """Work."""
            seen.append(context)
            return name

        result = await sessions.start(caller(work)).run("work")
        (context,) = seen
        call = next(item for item in result.items if item.type == "function_call")
        assert (context.session_id, context.turn_id, context.call_id) == (
            result.session_id,
            result.turn_id,
            call.call_id,
        )
        assert (context.tool, context.agent, context.is_repeat) == ("work", "caller", False)


class TestActions:
    async def test_a_function_of_somebody_else_is_required_and_named(self, sessions: Sessions) -> None:
        complete, partial = caller(work, elsewhere), caller(work)
        session_id = await sessions.start(complete).create("both")
        session = sessions.attach(session_id, partial)
        with pytest.raises(ActionRequired, match="a result of elsewhere") as required:
            await session.follow()
        (action,) = required.value.actions
        assert isinstance(action, FunctionCall)
        assert (action.name, action.arguments) == ("elsewhere", {})
        # What could be answered was, and whoever knows the other function finishes the turn.
        (owed,) = (await session.retrieve()).required_actions
        assert owed.type == "function_call"
        assert owed.call_id == action.call_id
        result = await sessions.resume(session_id, complete)
        assert result.final_output == "It is there."

    async def test_an_action_may_be_left_to_others(self, sessions: Sessions) -> None:
        session_id = await sessions.start(caller(elsewhere)).create("elsewhere")
        others: list[asyncio.Task[Any]] = []

        async def leave(action: Any) -> None:
            others.append(asyncio.ensure_future(sessions.attach(session_id, caller(elsewhere)).follow()))

        result = await sessions.attach(session_id, caller()).follow(on_action=leave)
        assert result.final_output == "It is there."
        assert (await others[0]).final_output == "It is there."

    async def test_a_decision_that_does_not_fit_ends_the_run(self, sessions: Sessions) -> None:
        session_id = await sessions.start(caller(elsewhere)).create("elsewhere")
        with pytest.raises(TypeError, match="Approve does not answer a result of elsewhere"):
            await sessions.attach(session_id, caller()).follow(on_action=lambda action: Approve())


async def test_a_subagent_is_told_that_functions_are_not_for_it(sessions: Sessions) -> None:
    session = sessions.attach(await sessions.start(caller(work)).create("work"), caller(work))
    with pytest.raises(ActionRequired) as required:
        await sessions.attach(session.id, caller()).follow()
    (action,) = required.value.actions
    assert isinstance(action, FunctionCall)
    answers = Answers(
        session,
        await sessions.journal(),
        limit=1,
        patience=30,
        tell=lambda event: None,
        fail=lambda error: pytest.fail(str(error)),
        settled=(settled := asyncio.Event()).set,
    )
    assert answers.answer(action, from_subagent=True)
    await settled.wait()
    said = (await session.follow()).final_output
    assert said.startswith("It failed: work belongs to the main agent, and a subagent cannot call it.")
    assert runs_of(session.id) == 0


class TestResume:
    async def test_nothing_but_the_id_is_needed(
        self, sessions: Sessions, server: ServerProcess, journal_path: Path
    ) -> None:
        session_id = await sessions.start(caller(work)).create("work")
        place = {"base_url": server.url, "api_key": server.api_key, "journal": journal_path}
        async with Sessions(**place) as strangers:  # type: ignore[arg-type]
            with pytest.raises(UnknownAgent, match="was begun with the agent 'caller'"):
                await strangers.resume(session_id)
        async with Sessions(**place, agents=[caller(work)]) as colleagues:  # type: ignore[arg-type]
            assert (await colleagues.resume(session_id)).final_output == "It is done."
            # The history still has the call, and nothing is owed: nothing runs again.
            assert (await colleagues.resume(session_id)).final_output == "It is done."
        assert runs_of(session_id) == 1

    async def test_a_session_that_does_not_exist_is_told_by_the_server(self, sessions: Sessions) -> None:
        with pytest.raises(NotFoundError):
            await sessions.attach("sess_unknown", caller()).follow()

    async def test_a_session_that_was_not_created_has_no_id(self, sessions: Sessions) -> None:
        session = sessions.start(caller())
        assert not session.exists
        with pytest.raises(SdkError, match="its first run creates it"):
            await session.send("Hello")


async def test_one_result_for_each_call_is_submitted(sessions: Sessions) -> None:
    @tool(parameters=NAME)
    def slow(given: dict[str, str]) -> str:
        """Work."""
        return given["name"]

    session = sessions.start(caller(slow))
    finished = []
    async with session.stream("three") as events:
        async for event in events:
            if isinstance(event, ToolFinished):
                finished.append(event)
    outputs = [item for item in await session.items() if item.type == "function_call_output"]
    assert sorted(str(item.output) for item in outputs) == ["one", "three", "two"]
    assert all(event.is_accepted for event in finished)
    assert {event.pair.call_id for event in finished} == {item.call_id for item in outputs}
    assert await session.reconcile() == []


def note(seen: list[Exception]) -> Any:
    def told(context: ToolContext, error: Exception) -> str:
        seen.append(error)
        return "Try later."

    return told


def awaited() -> Any:
    """A StandardSchema of which nobody can see beforehand that its validator returns an awaitable."""

    async def check_later(value: Any) -> Any:
        raise AssertionError("nobody awaits it")

    def check(value: Any) -> Any:
        return check_later(value)

    return standard(check)


def standard(check: Any) -> Any:
    """A StandardSchema with this validator."""

    class Contract:
        vendor = "by hand"
        version = 1
        validate = staticmethod(check)

        def json_schema_input(self) -> dict[str, Any]:
            return NAME

        def json_schema_output(self) -> dict[str, Any]:
            return NAME

    class Standard:
        __standard_schema__ = Contract()

    return Standard()
