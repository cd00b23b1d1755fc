"""Calls that a model writes as text are recognised in the markup of every known family, and only there."""

from __future__ import annotations

import pytest

from perdure.models.call_markup import call_meant, is_call_markup

ORDER = '{"order_id": "A-1042"}'

LEAKS = {
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.lookup_order:0"
    f"<|tool_call_argument_begin|>{ORDER}",
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>lookup_order"
    f"\n```json\n{ORDER}\n```",
    "qwen": f'<tool_call>\n{{"name": "lookup_order", "arguments": {ORDER}}}\n</tool_call>',
    "behind words": f'Sure. <tool_call>\n{{"name": "lookup_order", "arguments": {ORDER}}}</tool_call>',
    "qwen coder": "<function=lookup_order>\n<parameter=order_id>\nA-1042\n</parameter>\n</function>",
    "llama": f"<function=lookup_order>{ORDER}</function>",
    "llama tag": f'<|python_tag|>{{"name": "lookup_order", "parameters": {ORDER}}}',
    "glm": "<tool_call>lookup_order\n<arg_key>order_id</arg_key>\n<arg_value>A-1042</arg_value></tool_call>",
    "mistral": f'[TOOL_CALLS] [{{"name": "lookup_order", "arguments": {ORDER}}}]',
    "mistral, newer": f"[TOOL_CALLS]lookup_order{ORDER}",
    "granite": f'<|tool_call|>[{{"name": "lookup_order", "arguments": {ORDER}}}]',
    "claude": '<function_calls>\n<invoke name="lookup_order">\n<parameter name="order_id">A-1042</parameter>',
    "minimax": '<minimax:tool_call>\n<invoke name="lookup_order">',
    "gpt-oss": f"<|channel|>commentary to=functions.lookup_order <|constrain|>json<|message|>{ORDER}",
    "gpt-oss, stripped": f"assistantcommentary to=functions.lookup_order json{ORDER}",
    "command": f'<|START_ACTION|>[{{"name": "lookup_order", "arguments": {ORDER}}}]',
    "jamba": f'<tool_calls>[{{"name": "lookup_order", "arguments": {ORDER}}}]</tool_calls>',
}


@pytest.mark.parametrize("text", LEAKS.values(), ids=LEAKS)
def test_a_call_written_as_text_is_recognised(text: str) -> None:
    assert is_call_markup(text)


@pytest.mark.parametrize("family", [name for name in LEAKS if name != "command"])
def test_the_name_of_the_function_is_found(family: str) -> None:
    assert call_meant(LEAKS[family])[0] == "lookup_order"


@pytest.mark.parametrize("family", ["kimi", "deepseek", "qwen", "llama", "mistral", "gpt-oss", "command"])
def test_whole_arguments_are_found(family: str) -> None:
    assert call_meant(LEAKS[family])[1] == {"order_id": "A-1042"}


@pytest.mark.parametrize(
    "text", ['<tool_call>{"name": "lookup_order", "arg', "<|tool_call_begin|>{{{{", "[TOOL_CALLS]"]
)
def test_what_is_broken_off_has_no_arguments(text: str) -> None:
    assert is_call_markup(text)
    assert call_meant(text)[1] == {}


@pytest.mark.parametrize(
    "text",
    [
        "Hello.",
        "",
        "Qwen writes `<tool_call>{...}</tool_call>` around a call.",
        "It looks like this:\n```\n<|tool_calls_section_begin|>\n```\nand ends so.",
        "~~~xml\n<function_calls><invoke name='x'>",
        "1 < 2 and 3 > 2; a <b>bold</b> tag; <tool> and <function> alone.",
        "I would call functions.lookup_order next.",
        "Send it to=me.",
    ],
)
def test_a_text_about_such_markup_is_an_answer(text: str) -> None:
    assert not is_call_markup(text)
