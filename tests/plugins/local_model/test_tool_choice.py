"""Which tools are on the menu of a question, and that the menus keep the prompt's prefix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_agent.contracts.model_client import ModelRequest
from hermes_agent.core.messages import Message
from hermes_agent.testing import plugin_host
from local_model import MENU_MAX, SMALL_OFFER, build_prompt, other_ways, rank_tools, services, split_steps, tool_name

CALCULATOR = Path(__file__).parents[3] / "examples" / "plugins" / "calculator"


def tool(name: str, description: str = "", **properties: str) -> dict[str, Any]:
    shaped = {key: {"type": kind} for key, kind in properties.items()}
    parameters = {"type": "object", "properties": shaped, "required": list(shaped)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


@pytest.fixture(scope="module")
def shipped() -> list[dict[str, Any]]:
    """The tools that the model of a fresh home with the guide's calculator is sent."""
    with plugin_host(CALCULATOR, model=["Hello."]) as host:
        host.ask("Hello!")
        [request] = host.model.requests
        return list(request["tools"])


def menu(tools: list[dict[str, Any]], question: str, **more: Any) -> list[str]:
    return [tool_name(each) for each in rank_tools(tools, question, **more)]


def test_the_shipped_tools_are_more_than_are_ever_on_a_menu(shipped: list[dict[str, Any]]) -> None:
    names = set(map(tool_name, shipped))
    assert len(shipped) == len(names) > MENU_MAX
    assert {"calculate", "unit_convert", "terminal", "read_file", "web_search", "cronjob"} <= names


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("What is 15% of 240?", "calculate"),
        ("How much is 3 to the power of 11?", "calculate"),
        ("What does len(os.listdir()) give here?", "execute_code"),
        ("Convert 100 fahrenheit to celsius", "unit_convert"),
        ("How many gigabytes is 1.5 terabytes?", "unit_convert"),
        ("What is the date today?", "terminal"),
        ("Run the command uname -a", "terminal"),
        ("Search the web for news about owls", "web_search"),
        ("What is on https://example.com/news ?", "web_extract"),
        ("Remind me every day at nine", "cronjob"),
    ],
)
def test_the_tool_that_a_question_needs_is_first(shipped: list[dict[str, Any]], question: str, first: str) -> None:
    assert menu(shipped, question)[0] == first


def test_the_calculator_does_not_attract_code_and_dates(shipped: list[dict[str, Any]]) -> None:
    for question in ("What does len(os.listdir()) give?", "Which day of the week was 2000-01-01?"):
        assert "calculate" not in menu(shipped, question)


def test_a_tool_made_for_the_question_stands_alone_and_a_vague_question_gets_the_general_ones(
    shipped: list[dict[str, Any]],
) -> None:
    assert menu(shipped, "What is 417 times 23?") == ["calculate"]
    assert menu(shipped, "Hm?") == ["terminal", "read_file", "search_files", "write_file"]


@pytest.mark.parametrize(
    "question",
    [
        *("Hello!", "Thanks, that helped a lot.", "What is the capital of France?", "And of Italy?", "Who wrote it?"),
        *("In one sentence: who looks after a lighthouse?", "Briefly, in 20 words: how far is the moon?"),
        *("How tall is the Eiffel tower?", "Please, in one sentence: translate good night into French."),
    ],
)
def test_a_greeting_and_a_question_of_general_knowledge_have_an_empty_menu(
    shipped: list[dict[str, Any]], question: str
) -> None:
    assert menu(shipped, question) == []
    given = ModelRequest("m", [Message("user", question)], shipped)
    prompt = build_prompt(given, 8192, services().mask_message)
    schema = prompt.body()["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["action"] == {"const": "final"}
    assert prompt.messages[-1]["content"] == f"{question}\n[Tools for this: none]"


def test_a_question_that_names_a_file_gets_the_tools_of_files(shipped: list[dict[str, Any]]) -> None:
    chosen = menu(shipped, "Summarise report.txt in one sentence", names_file=True)
    assert chosen[0] == "read_file"
    assert not {"session_search", "calculate", "web_search"} & set(chosen)


def test_the_tool_of_an_enabled_plugin_is_found_by_its_own_words(shipped: list[dict[str, Any]]) -> None:
    weather = tool("get_forecast", "Tell the weather of a city.", city="string")
    assert menu([*shipped, weather], "What will the weather be in the city of Oslo?")[0] == "get_forecast"


def test_few_tools_are_all_on_the_menu_and_many_never_more_than_the_limit() -> None:
    few = [tool(f"other_{n}") for n in range(SMALL_OFFER)]
    assert sorted(menu(few, "anything")) == sorted(map(tool_name, few))
    many = [tool(f"weather_{n}", "weather") for n in range(30)]
    assert len(menu(many, "the weather")) == MENU_MAX


def test_a_short_question_continues_with_the_tool_of_the_turn_before(shipped: list[dict[str, Any]]) -> None:
    assert menu(shipped, "And 50?", recent=["unit_convert"])[0] == "unit_convert"


def test_after_a_failed_tool_the_nearest_others_are_named(shipped: list[dict[str, Any]]) -> None:
    assert other_ways(shipped, "search_files", "Which file contains the word x?", names_file=False)[0] == "read_file"


def test_a_tool_that_the_question_says_to_use_is_called_before_an_answer(shipped: list[dict[str, Any]]) -> None:
    question = "How many letters r are in the word strawberry? Use calculate."
    assert menu(shipped, question) == ["calculate"]
    given = ModelRequest("m", [Message("user", question)], shipped)
    schema = build_prompt(given, 8192, services().mask_message).body()["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["action"] == {"const": "calculate"}


def test_what_could_not_be_converted_is_not_calculated_with_a_factor_of_the_model(
    shipped: list[dict[str, Any]],
) -> None:
    assert "calculate" not in other_ways(shipped, "unit_convert", "Convert 3 furlongs to kilobytes", names_file=False)


def request(shipped: list[dict[str, Any]], *messages: Message) -> list[dict[str, Any]]:
    given = ModelRequest("m", messages, shipped, session_id="s")
    return list(build_prompt(given, 8192, services().mask_message).messages)


def test_the_prompt_of_the_next_turn_begins_with_the_prompt_and_answer_of_this_one(
    shipped: list[dict[str, Any]],
) -> None:
    turn = [Message("system", "Working directory: /srv"), Message("user", "What is 15% of 240?")]
    first = request(shipped, *turn)
    answered = [*turn, Message("assistant", "36")]
    second = request(shipped, *answered, Message("user", "Read plan.txt"))
    assert first[-1]["content"] == "What is 15% of 240?\n[Tools for this: calculate]"
    assert second[: len(first)] == first
    assert second[-1]["content"] == "Read plan.txt\n[Tools for this: read_file]"


def test_the_grammar_takes_the_tools_of_the_menu_alone(shipped: list[dict[str, Any]]) -> None:
    given = ModelRequest("m", [Message("user", "What is 15% of 240?")], shipped)
    prompt = build_prompt(given, 8192, services().mask_message)
    assert [each.name for each in prompt.tools] == ["calculate"]


def test_a_tool_beyond_those_described_before_the_conversation_is_described_on_the_menu(
    shipped: list[dict[str, Any]],
) -> None:
    more = [tool(f"extra_{n}") for n in range(10)]
    forecast = tool("get_forecast", "Tell the weather.", city="string")
    given = ModelRequest("m", [Message("user", "How is the weather?")], [*shipped, *more, forecast])
    text = build_prompt(given, 8192, services().mask_message).messages[-1]["content"]
    assert text.endswith("- get_forecast(city: string): Tell the weather.")


@pytest.mark.parametrize(
    ("question", "steps"),
    [
        ("What is in plan.txt?", ["What is in plan.txt?"]),
        (
            "Write hello.py that prints Hi, and then run it",
            ["Write hello.py that prints Hi", "run it"],
        ),
        ("Copy a to b and delete a; list all. Show c.txt", ["Copy a to b", "delete a", "list all. Show c.txt"]),
        ('Write "milk and add sugar" into x.txt', ['Write "milk and add sugar" into x.txt']),
        ("Compare salt and pepper", ["Compare salt and pepper"]),
    ],
)
def test_a_question_is_divided_into_at_most_three_steps(question: str, steps: list[str]) -> None:
    assert split_steps(question, 3) == steps
