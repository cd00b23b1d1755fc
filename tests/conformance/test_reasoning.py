from __future__ import annotations

from typing import Any

from openai import OpenAI

from .inputs import NONE
from .sessions import create_idle, items, kinds

PREFIX = "agent.session.turn."


def follow(client: OpenAI, **reasoning: Any) -> list[Any]:
    agent: Any = {"model": "reasoning", "reasoning": reasoning}
    return list(
        client.beta.agents.sessions.create(agent=agent, environment=NONE, input="Think.", stream=True)
    )


def test_summaries_are_streamed_part_by_part_before_the_answer(client: OpenAI) -> None:
    events = follow(client, summary="auto")
    own = [event for event in events if getattr(event, "output_index", None) == 0]
    types = [event.type.removeprefix(PREFIX) for event in own]
    collapsed = [kind for kind, before in zip(types, ["", *types], strict=False) if kind != before]
    part = [
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
    ]
    assert collapsed == ["item.added", *part, *part, "item.done"]
    assert [event.summary_index for event in own if event.type.endswith("part.added")] == [0, 1]
    texts = [event.text for event in own if event.type.endswith("reasoning_summary_text.done")]
    assert texts == ["First part.", "Second part."]
    deltas = [event for event in own if event.type.endswith("reasoning_summary_text.delta")]
    for index, text in enumerate(texts):
        assert "".join(event.delta for event in deltas if event.summary_index == index) == text
    assert (own[0].item.type, own[0].item.summary) == ("reasoning", [])
    assert [part.text for part in own[-1].item.summary] == texts
    assert own[-1].item.status == "completed"
    answer = next(e for e in events if e.type == f"{PREFIX}item.added" and kinds([e.item]) == ["assistant"])
    assert answer.output_index == 1


def test_the_item_is_listed_as_it_was_done(client: OpenAI) -> None:
    events = follow(client, summary="detailed")
    done = next(e.item for e in events if e.type == f"{PREFIX}item.done" and e.item.type == "reasoning")
    saved = items(client, events[0].session.id)
    assert kinds(saved) == ["user", "reasoning", "assistant"]
    assert saved[1].to_dict() == done.to_dict()


def test_without_a_summary_setting_no_reasoning_is_shown(client: OpenAI) -> None:
    events = follow(client)
    assert not [event.type for event in events if "reasoning" in event.type]
    assert kinds(items(client, events[0].session.id)) == ["user", "assistant"]


def test_the_conversation_goes_on_after_reasoning(client: OpenAI) -> None:
    session = create_idle(client, "reasoning", reasoning={"summary": "auto"})
    with client.beta.agents.sessions.stream(session.id, input="Again.") as stream:
        assert stream.get_final_result().output_text == "Thought through."
