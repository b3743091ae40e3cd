"""What the small model is told: the menu, the grammar, the conversation in the form of the examples."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest

from hermes_agent.contracts.model_client import ModelRequest
from hermes_agent.core.errors import ModelError
from hermes_agent.core.messages import Message, ToolCall
from local_model import (
    RESULT_CHARS,
    STEPS_MAX,
    build_menu,
    build_prompt,
    describe_tools,
    first_sentence,
    services,
    shorten_schema,
    union_schema,
)


def tool(name: str, description: str = "Does it.", **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


LOOK_UP = tool(
    "look_up", "Look a word up. Uses three dictionaries.", word={"type": "string", "description": "The word"}
)
SHELL = tool("run_it", command={"type": "string"})


def ask(*messages: Message, tools: Any = (LOOK_UP,), context: int = 8192, **more: Any) -> Any:
    return build_prompt(ModelRequest("m", messages, tools, **more), context, services().mask_message)


def after_examples(prompt: Any) -> list[dict[str, Any]]:
    """The conversation without the system prompt and the examples."""
    shown = list(prompt.messages)
    last = next(i for i, m in enumerate(shown) if m["content"].startswith("You are great"))
    return [message for message in shown[last + 2 :] if message["role"] != "system"]


def calls(*words: str) -> list[Message]:
    out = []
    for n, word in enumerate(words):
        out.append(Message("assistant", "", (ToolCall(f"c{n}", "look_up", json.dumps({"word": word})),)))
        out.append(Message("tool", f"meaning of {word}", tool_call_id=f"c{n}", tool_name="look_up"))
    return out


def test_calls_and_results_are_retold_as_short_turns() -> None:
    prompt = ask(Message("system", "x" * 5000), Message("user", "Explain ox"), *calls("ox"))
    assert after_examples(prompt) == [
        {"role": "user", "content": "Explain ox"},
        {"role": "assistant", "content": '{"action": "look_up", "arguments": {"word": "ox"}}'},
        {"role": "user", "content": "Result of look_up:\nmeaning of ox"},
    ]


def failed_call(result: str, name: str = "look_up") -> list[Message]:
    return [
        Message("user", "Explain ox 7"),
        Message("assistant", "", (ToolCall("c0", name, '{"word": "ox"}'),)),
        Message("tool", result, tool_call_id="c0", tool_name=name),
    ]


def test_a_failed_call_is_told_in_words_with_what_the_tool_takes() -> None:
    told = after_examples(ask(*failed_call('{"error": "[TOOL_ERROR] no such word", "output": "", "code": 4}')))[-1]
    lines = told["content"].splitlines()
    assert lines[0] == "The call of look_up FAILED: no such word"
    assert lines[1] == '{"code": 4}'
    assert lines[2] == "What it takes: look_up(word: string = The word): Look a word up. Uses three dictionaries."
    assert "Nothing else is known." in lines[3]


def test_a_command_that_ended_with_another_status_than_0_is_told_in_words() -> None:
    told = after_examples(ask(*failed_call('{"output": "x", "exit_code": 3, "error": null}')))[-1]["content"]
    assert told.endswith("The command ended with exit status 3, not 0.")
    well = after_examples(ask(*failed_call('{"output": "x", "exit_code": 0, "error": null}')))[-1]["content"]
    assert "exit status" not in well


def final_of(prompt: Any, **how: bool) -> dict[str, Any] | None:
    schema = prompt.body(**how)["response_format"]["json_schema"]["schema"]
    branches = schema.get("oneOf", [schema])
    texts = [b["properties"]["text"] for b in branches if "text" in b["properties"]]
    return texts[0] if texts else None


def test_no_other_tool_is_offered_for_one_that_the_question_names() -> None:
    explain = tool("explain", "Explain a word.", word={"type": "string"})
    failed = failed_call('{"error": "no such word"}')
    assert "instead: explain" in after_examples(ask(*failed, tools=(LOOK_UP, explain)))[-1]["content"]
    named = [Message("user", "Explain ox 7. Use look_up."), *failed[1:]]
    assert "instead:" not in after_examples(ask(*named, tools=(LOOK_UP, explain)))[-1]["content"]


def test_after_a_failed_call_an_answer_can_only_begin_with_what_could_not_be_done() -> None:
    pattern = re.compile(final_of(ask(*failed_call('{"error": "no such word"}')))["pattern"])
    assert pattern.fullmatch("I could not explain ox 7: the dictionary has no such word.")
    for other in ("An ox is a bull.", "There are 0 results.", 'I could not "', "I could not a\nb"):
        assert not pattern.fullmatch(other)
    assert "pattern" not in final_of(ask(*failed_call("meaning of ox")))
    assert "pattern" not in final_of(ask(*failed_call('{"error": "no"}'), Message("user", "And now?")))
    assert "pattern" not in final_of(ask(*failed_call('{"error": "no"}'), *calls("ox", "bull")[2:]))


def test_a_number_that_no_result_has_speaks_against_an_answer_after_a_failed_call() -> None:
    prompt = ask(*failed_call('{"error": "line 1,204 is not readable"}'))
    assert prompt.find_objection("I could not explain ox 7: line 1204 is broken.") == ""
    assert "4" in prompt.find_objection("I could not count them, there are 4.")
    assert not re.fullmatch(final_of(prompt, only_final=True, without_digits=True)["pattern"], "I could not find 4 of.")
    assert ask(*failed_call("it has 4 legs")).find_objection("It has 5 legs.") == "5"


def test_a_question_that_names_a_file_is_not_answered_before_a_call() -> None:
    tools = [LOOK_UP, SHELL]
    for named in ("Summarise report.txt", "What is in /etc/hostname?", "Open src/main.c", "Run ./check", "Read ~/todo"):
        assert final_of(ask(Message("user", named), tools=tools)) is None
    for named in (
        "Show photo.JPG",
        "Unpack a.tar.gz",
        "Read notes.v2.txt.",
        "What is in ../x?",
        "List /tmp",
        "Size of /data/x",
    ):
        assert final_of(ask(Message("user", named), tools=tools)) is None
    for other in ("Hello!", "What is 1.5 TB?", "Fruit, e.g. apples", "2/3 of it", "Mail bob@example.org", "End. Then"):
        assert final_of(ask(Message("user", other), tools=tools)) is not None
    for product in (
        "What is Node.js?",
        "Who owns google.com?",
        "What does asyncio.run do?",
        "Was it 5 /10?",
        "What is /help?",
    ):
        assert final_of(ask(Message("user", product), tools=tools)) is not None
    assert final_of(ask(Message("user", "Summarise report.txt"), tools=[LOOK_UP])) is not None
    question = Message("user", "Summarise docs/report.txt")
    assert final_of(ask(question, *calls("processes"), tools=tools)) is None
    assert final_of(ask(question, *calls("report.txt"), tools=tools)) is not None
    assert final_of(ask(question, *calls("processes", "users"), tools=tools)) is not None
    path = Message("user", "What is in /etc/hostname?")
    assert final_of(ask(path, *calls("/etc/passwd"), tools=tools)) is None
    assert final_of(ask(path, *calls("/etc/hostname"), tools=tools)) is not None


def test_an_earlier_answer_is_retold_as_a_final_reply() -> None:
    prompt = ask(Message("user", "Hi"), Message("assistant", "Grüße"), Message("user", "Who?"))
    assert after_examples(prompt)[1] == {"role": "assistant", "content": '{"action": "final", "text": "Grüße"}'}


def test_parallel_calls_are_each_followed_by_their_result() -> None:
    both = Message("assistant", "", (ToolCall("a", "look_up", '{"word": "ox"}'), ToolCall("b", "look_up", "{")))
    results = [Message("tool", "B", tool_call_id="b"), Message("tool", "A", tool_call_id="a")]
    told = after_examples(ask(Message("user", "?"), both, *results))
    assert [m["content"] for m in told[1:]] == [
        '{"action": "look_up", "arguments": {"word": "ox"}}',
        "Result of look_up:\nA",
        '{"action": "look_up", "arguments": "{"}',
        "Result of look_up:\nB",
    ]


def test_of_the_system_prompt_the_last_short_paragraphs_are_kept() -> None:
    given = "LONG " * 200 + "\n\nWorking directory: /srv\nToday: 2026-12-01"
    prompt = ask(Message("system", given), Message("system", "Answer in French."), Message("user", "Hi"))
    first, own = (m["content"] for m in prompt.messages if m["role"] == "system")
    assert "LONG" not in first + own
    assert first.endswith("\n\nTools:\n- look_up(word: string = The word): Look a word up. Uses three dictionaries.")
    assert own == "Working directory: /srv\nToday: 2026-12-01\n\nAnswer in French."
    assert prompt.messages[-2]["content"] == own  # what differs between sessions follows what they share


def test_the_whole_prompt_with_the_first_tools_is_short() -> None:
    prompt = ask(
        Message("user", "Hi"), tools=[LOOK_UP, SHELL, *(tool(f"t{n}", a={"type": "string"}) for n in range(5))]
    )
    assert sum(len(m["content"]) for m in prompt.messages) < 4500


def test_the_example_with_a_command_line_bears_the_name_of_the_tool_that_takes_one() -> None:
    with_shell = json.dumps(ask(Message("user", "Hi"), tools=[LOOK_UP, SHELL]).messages)
    assert "systemctl" in with_shell
    assert "Result of run_it:" in with_shell
    assert "systemctl" not in json.dumps(ask(Message("user", "Hi")).messages)


def test_without_tools_the_conversation_is_plain() -> None:
    prompt = ask(Message("user", "Hi"), Message("assistant", "Hello"), Message("user", "Bye"), tools=())
    assert [m["content"] for m in prompt.messages[1:]] == ["Hi", "Hello", "Bye"]
    assert prompt.tools == ()
    assert "response_format" not in prompt.body()


def test_the_grammar_takes_calls_of_the_menu_and_a_final_text_and_nothing_else() -> None:
    schema = union_schema(build_menu([LOOK_UP, SHELL]))
    check = jsonschema.Draft202012Validator(schema)
    good = [
        {"action": "look_up", "arguments": {"word": "ox"}},
        {"action": "run_it", "arguments": {"command": "ls"}},
        {"action": "final", "text": "Done."},
    ]
    bad = [
        {"action": "look_up", "arguments": {}},
        {"action": "look_up", "arguments": {"word": 1}},
        {"action": "look_up", "arguments": {"word": "ox", "more": 1}},
        {"action": "look_up", "arguments": {"command": "ls"}},
        {"action": "other", "arguments": {}},
        {"action": "final", "text": ""},
        {"action": "final"},
    ]
    assert [check.is_valid(v) for v in good] == [True] * 3
    assert [check.is_valid(v) for v in bad] == [False] * 7


def failed_calls(count: int) -> list[Message]:
    messages = calls(*(f"w{n}" for n in range(count)))
    messages[1::2] = [Message("tool", '{"error": "no"}', tool_call_id=f"c{n}") for n in range(count)]
    return messages


@pytest.mark.parametrize(
    ("made", "more"),
    [(calls("a", "b"), True), (calls("a", "b", "c"), False), (failed_calls(5), True), (failed_calls(STEPS_MAX), False)],
)
def test_after_three_successful_calls_or_six_only_an_answer_is_allowed(made: list[Message], more: bool) -> None:
    schema = ask(Message("user", "?"), *made).body()["response_format"]["json_schema"]["schema"]
    assert ("oneOf" in schema) is more
    assert more or schema["properties"]["action"] == {"const": "final"}


def test_steps_of_an_earlier_turn_do_not_count() -> None:
    words = [f"w{n}" for n in range(STEPS_MAX)]
    prompt = ask(Message("user", "?"), *calls(*words), Message("assistant", "So."), Message("user", "And?"))
    assert not prompt.allows_only_text
    assert prompt.answered_calls == frozenset()


def test_the_middle_of_a_long_result_is_left_out() -> None:
    called = calls("ox")
    called[1] = Message("tool", "a" * 5000 + "z" * 5000, tool_call_id="c0")
    told = after_examples(ask(Message("user", "?"), *called))[-1]["content"]
    assert len(told) < RESULT_CHARS + 100
    assert told.startswith("Result of look_up:\naaa")
    assert "[… 7000 characters left out …]" in told
    assert told.endswith("zzz")


def test_the_oldest_turns_go_first_when_the_context_is_full() -> None:
    old = [Message("user", "old " * 900), Message("assistant", "long ago")]
    new = [Message("user", "new " * 500), Message("assistant", "lately")]
    told = after_examples(ask(*old, *new, Message("user", "Result of my exam?"), context=3000))
    assert [m["content"][:10] for m in told] == ["new new ne", '{"action":', "Result of "]


def test_of_a_turn_that_is_too_long_the_oldest_calls_go() -> None:
    told = after_examples(ask(Message("user", "?"), *calls(*(c * 900 for c in "abcdef")), context=3000))
    assert told[0]["content"] == "?"
    assert told[-1]["content"].endswith("f" * 900)
    assert len(told) < 13
    assert len(told) % 2 == 1


def test_a_question_that_is_too_long_is_refused_with_numbers() -> None:
    with pytest.raises(ModelError, match="The question has 20012 characters") as refused:
        ask(Message("user", "x" * 20_000), context=2048)
    assert refused.value.kind == "context_too_long"


def test_answers_are_limited_to_half_of_the_context() -> None:
    assert ask(Message("user", "?"), max_tokens=100).max_tokens == 100
    assert ask(Message("user", "?"), max_tokens=100_000).max_tokens == 4096


def test_a_temperature_counts_only_where_no_tool_is_chosen() -> None:
    assert ask(Message("user", "?"), temperature=0.9).temperature == 0
    assert ask(Message("user", "?"), temperature=0.9, tools=()).temperature == 0.9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Do it. Then do that.", "Do it."),
        ("Converts e.g. miles to km", "Converts e.g. miles to km"),
        ("Two\nlines", "Two"),
        ("", ""),
        ("word " * 100, "word word word word…"),
    ],
)
def test_a_description_is_cut_to_its_first_sentence(text: str, expected: str) -> None:
    assert first_sentence(text, 20 if len(text) > 100 else 160) == expected


def test_tools_made_for_one_thing_are_described_in_full_before_those_with_many_options() -> None:
    many = {f"option_{n}": {"type": "string"} for n in range(6)}
    converter = tool("convert", "Convert a value. Units: C, F, K.", unit={"type": "string", "description": "As 'F'"})
    manager = tool("manage", "Manage jobs. " + "All of them. " * 8, job={"type": "string", "description": "Its id"})
    manager["function"]["parameters"]["properties"] |= many
    shown = build_menu([manager, converter])
    both = describe_tools(shown, 1000)
    assert "Units: C, F, K." in both and "Its id" in both
    one = describe_tools(shown, len(both) - 50)
    assert "= As 'F'): Convert a value. Units: C, F, K." in one
    assert "Its id" not in one and "Manage jobs." in one
    assert describe_tools(shown, 10).splitlines()[1] == "- convert(unit: string): Convert a value."


def test_the_menu_of_many_tools_stays_within_its_limit() -> None:
    tools = build_menu(
        [tool(f"tool_{n}", "Word " * 30, a={"type": "string", "description": "Hint " * 10}) for n in range(12)]
    )
    assert len(describe_tools(tools, 10_000)) > 2500
    assert len(describe_tools(tools, 2500)) <= 2500
    assert describe_tools(tools, 2500).count("= Hint") in range(1, 12)


def test_a_schema_keeps_its_shape_and_loses_its_prose() -> None:
    schema = {
        "type": "object",
        "$defs": {"Colour": {"enum": ["red", "blue"], "description": "one"}},
        "properties": {
            "a": {"type": ["string", "null"], "description": "x", "default": "y", "pattern": "^a"},
            "b": {"type": "string", "maxLength": 10},
            "c": {"$ref": "#/$defs/Colour"},
            "d": {"type": "array", "items": {"type": "integer", "minimum": 1}},
            "e": {"type": "object", "properties": {"f": {"type": "boolean"}}, "required": ["f"]},
            "g": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "h": {"oneOf": [{"type": "number"}, {"type": "boolean"}]},
            "i": {"const": 3},
            "optional": {"type": "string"},
            "another": {"type": "integer"},
            "third": {"type": "integer"},
            "beyond": {"type": "integer"},
        },
        "required": ["a", "b", "c", "d", "e", "g", "h", "i", "missing"],
    }
    short = shorten_schema(schema)
    assert short == {
        "type": "object",
        "additionalProperties": False,
        "required": ["a", "b", "c", "d", "e", "g", "h", "i"],
        "properties": {
            "a": {"type": "string", "maxLength": 2000},
            "b": {"type": "string", "maxLength": 10},
            "c": {"enum": ["red", "blue"]},
            "d": {"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": 20},
            "e": {
                "type": "object",
                "properties": {"f": {"type": "boolean"}},
                "required": ["f"],
                "additionalProperties": False,
            },
            "g": {"type": "number"},
            "h": {"anyOf": [{"type": "number"}, {"type": "boolean"}]},
            "i": {"enum": [3]},
            "optional": {"type": "string", "maxLength": 2000},
            "another": {"type": "integer"},
            "third": {"type": "integer"},
        },
    }


def test_a_schema_that_refers_to_itself_ends() -> None:
    node: dict[str, Any] = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    schema = {"$defs": {"node": node}, "properties": {"first": {"$ref": "#/$defs/node"}}, "required": ["first"]}
    assert "next" in json.dumps(shorten_schema(schema))


@pytest.mark.parametrize("parameters", [None, {}, {"type": "object"}, {"properties": {"a": True}}])
def test_a_tool_with_a_bare_schema_is_on_the_menu(parameters: Any) -> None:
    [shown] = build_menu([{"name": "bare", "description": None, "parameters": parameters}])
    assert shown.name == "bare"
    jsonschema.Draft202012Validator.check_schema(union_schema([shown]))


def test_the_form_that_a_program_asks_for_is_the_grammar_of_a_plain_answer() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    question = Message("user", "list them")

    plain = ask(question, tools=(), extra={"response_format": form})
    with_tools = ask(question, extra={"response_format": form})

    assert plain.body()["response_format"] == form
    assert with_tools.body()["response_format"]["json_schema"]["name"] == "reply"
    assert "response_format" not in ask(question, tools=()).body()


def test_the_system_messages_of_a_question_outside_of_conversations_are_the_task_and_stay_whole() -> None:
    task = Message("system", "Translate into German. " + "Keep the names. " * 60)
    question = Message("user", "hello")

    alone = ask(task, question, tools=())
    last_of_a_turn = ask(task, question, tools=(), session_id="s-1")

    assert task.text.strip() in alone.messages[0]["content"]
    assert "Keep the names" not in last_of_a_turn.messages[0]["content"]
