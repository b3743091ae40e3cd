"""The client against a child process that answers from a script: real process, real HTTP, no weights."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.contracts.model_client import ModelAnswer, ModelRequest, RequestOptions, TextPart
from hermes_agent.core.errors import ModelError
from hermes_agent.core.messages import Message, ToolCall, Usage
from local_model import STRING_MAX, LocalModelClient, LocalModelServer, LocalServerSettings, services

CHILD = Path(__file__).with_name("scripted_child.py")
CALCULATE = {
    "type": "function",
    "function": {
        "name": "calculate",
        "description": "Evaluate.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}
ASKED = [Message("user", "What's 2**16?")]
CALLED = Message("assistant", "", (ToolCall("c1", "calculate", '{"expression": "2**16"}'),))
RESULT = Message("tool", '{"result": 65536}', tool_call_id="c1", tool_name="calculate")


def call(expression: str) -> dict[str, Any]:
    return {"pieces": [json.dumps({"action": "calculate", "arguments": {"expression": expression}})]}


def final(text: str) -> dict[str, Any]:
    whole = json.dumps({"action": "final", "text": text})
    return {"pieces": [whole[:20], whole[20:30], whole[30:]]}


class ScriptedModel:
    """One conversation with a scripted model."""

    def __init__(self, tmp_path: Path, *script: dict[str, Any]) -> None:
        self.file = tmp_path / "weights.gguf"
        self.file.write_text(json.dumps(script))
        self.settings = LocalServerSettings(self.file, "tiny", threads=1)

    def run(self, *requests: ModelRequest) -> list[list[Any]]:
        """Ask one after another; return what each yielded, a ModelError at its end where it raised one."""

        async def main() -> list[list[Any]]:
            client = LocalModelClient(services(), self.settings, server=LocalModelServer(self.settings, program=CHILD))
            out = []
            for request in requests:
                got: list[Any] = []
                try:
                    async for delta in client.stream(request):
                        got.append(delta)
                except ModelError as exc:
                    got.append(exc)
                out.append(got)
            await client.aclose()
            return out

        return asyncio.run(main())

    @property
    def asked(self) -> list[dict[str, Any]]:
        lines = Path(f"{self.file}.asked").read_text().splitlines()
        return [json.loads(line) for line in lines]


def request(*messages: Message, tools: tuple[dict[str, Any], ...] = (CALCULATE,), **more: Any) -> ModelRequest:
    return ModelRequest("tiny", messages or ASKED, tools, **more)


def test_a_call_comes_as_a_tool_call(tmp_path: Path) -> None:
    [[answer]] = ScriptedModel(tmp_path, call("2**16")).run(request())
    assert isinstance(answer, ModelAnswer)
    [made] = answer.message.tool_calls
    assert (made.name, json.loads(made.arguments)) == ("calculate", {"expression": "2**16"})
    assert made.id
    assert answer.message.text == ""
    assert (answer.finish_reason, answer.model, answer.usage) == ("tool_calls", "tiny", Usage(10, 5, 4))


def test_a_final_text_is_streamed_without_its_json(tmp_path: Path) -> None:
    [got] = ScriptedModel(tmp_path, final('It is "65536".\nDone.')).run(request())
    *pieces, answer = got
    assert len(pieces) > 1
    assert all(isinstance(p, TextPart) and p.text for p in pieces)
    assert "".join(p.text for p in pieces) == answer.message.text == 'It is "65536".\nDone.'
    assert answer.finish_reason == "stop"


@pytest.mark.parametrize(
    ("asked", "tools"), [((*ASKED, CALLED, RESULT), (CALCULATE,)), (ASKED, (CALCULATE,)), (ASKED, ())]
)
def test_an_answer_that_only_repeats_itself_ends_at_its_first_repetition(
    tmp_path: Path, asked: Any, tools: Any
) -> None:
    opening = '{"action": "final", "text": "' if tools else ""
    endless = {"pieces": [f"{opening}It is 65536. "], "endless": "The lamp is lit, and ships see it. "}
    [[*pieces, answer]] = ScriptedModel(tmp_path, endless).run(request(*asked, tools=tools))
    assert answer.message.text == "It is 65536. The lamp is lit, and ships see it."
    assert "".join(piece.text for piece in pieces) == answer.message.text
    assert answer.finish_reason == "stop"


def test_an_answer_after_a_call_is_checked_before_it_goes_out_and_asked_for_once_more(tmp_path: Path) -> None:
    model = ScriptedModel(tmp_path, final("It is 65537."), final("It is 65536."))
    [[piece, answer]] = model.run(request(*ASKED, CALLED, RESULT))
    assert piece.text == answer.message.text == "It is 65536."
    *_, wrong, asked = model.asked[1]["body"]["messages"]
    assert "65537" in wrong["content"] and "65537" in asked["content"]


def test_a_deed_that_no_tool_did_is_denied(tmp_path: Path) -> None:
    model = ScriptedModel(tmp_path, final("Mail sent to Bob."), final("The mail was sent."))
    [[piece, answer]] = model.run(request(Message("user", "Mail 2**16 to Bob"), CALLED, RESULT))
    assert piece.text == answer.message.text == "I could not do that: no tool did it. The result of calculate: 65536"


def test_if_the_second_answer_is_unfounded_too_the_plain_result_is_shown(tmp_path: Path) -> None:
    model = ScriptedModel(tmp_path, final("It is 65537."), final("Ask Mr Achterberg, it is 65538."))
    [[piece, answer]] = model.run(request(*ASKED, CALLED, RESULT))
    assert piece.text == answer.message.text == "The result of calculate: 65536"
    assert len(model.asked) == 2


def test_a_failed_call_without_a_usable_answer_ends_in_the_failure_itself(tmp_path: Path) -> None:
    failed = Message("tool", '{"error": "brackets do not match"}', tool_call_id="c1", tool_name="calculate")
    [got] = ScriptedModel(tmp_path, {"pieces": ["no JSON"]}).run(request(*ASKED, CALLED, failed))
    assert got[-1].message.text == "I could not do this: calculate failed: brackets do not match"


def test_without_tools_the_text_is_plain_and_no_grammar_is_sent(tmp_path: Path) -> None:
    model = ScriptedModel(tmp_path, {"pieces": ["Good ", "day"]})
    [[first, second, answer]] = model.run(request(tools=()))
    assert (first.text, second.text, answer.message.text) == ("Good ", "day", "Good day")
    assert "response_format" not in model.asked[0]["body"]


def test_a_call_that_was_answered_already_is_not_made_again(tmp_path: Path) -> None:
    model = ScriptedModel(tmp_path, call("2**16"), final("It is 65536."))
    [got] = model.run(request(*ASKED, CALLED, RESULT))
    assert got[-1].message.text == "It is 65536."
    assert got[-1].usage == Usage(20, 10, 8)
    schemas = [a["body"]["response_format"]["json_schema"]["schema"] for a in model.asked]
    assert "oneOf" in schemas[0]
    assert schemas[1]["properties"]["action"] == {"const": "final"}


def test_a_call_with_other_arguments_is_made(tmp_path: Path) -> None:
    [[answer]] = ScriptedModel(tmp_path, call("65536+1")).run(request(*ASKED, CALLED, RESULT))
    assert json.loads(answer.message.tool_calls[0].arguments) == {"expression": "65536+1"}


def test_a_call_that_is_cut_is_asked_for_once_more_with_another_temperature(tmp_path: Path) -> None:
    cut = {"pieces": ['{"action": "calculate", "arguments": {"expression": "1+1+1+1'], "finish": "length"}
    model = ScriptedModel(tmp_path, cut, call("4"))
    [[answer]] = model.run(request())
    assert json.loads(answer.message.tool_calls[0].arguments) == {"expression": "4"}
    assert [a["body"]["temperature"] for a in model.asked] == [0, 0.4]


def test_an_argument_that_fills_the_grammar_limit_is_not_used(tmp_path: Path) -> None:
    model = ScriptedModel(tmp_path, call("1" * STRING_MAX), call("1"))
    [[answer]] = model.run(request())
    assert json.loads(answer.message.tool_calls[0].arguments) == {"expression": "1"}


def test_an_answer_with_a_number_of_its_own_after_a_failed_call_is_not_shown_and_asked_for_without_digits(
    tmp_path: Path,
) -> None:
    refused = Message("tool", '{"error": "name len is not defined"}', tool_call_id=RESULT.tool_call_id)
    model = ScriptedModel(tmp_path, final("I could not count: there are 8."), final("I could not count them."))
    [got] = model.run(request(*ASKED, CALLED, refused))
    assert [type(each) for each in got] == [TextPart, ModelAnswer]
    assert got[0].text == got[1].message.text == "I could not count them."
    assert got[1].usage == Usage(20, 10, 8)
    patterns = [
        b["properties"]["text"]["pattern"]
        for a in model.asked
        for b in [a["body"]["response_format"]["json_schema"]["schema"]]
        for b in b.get("oneOf", [b])
        if "text" in b["properties"]
    ]
    assert [bool(re.fullmatch(p, "I could not count: there are 8.")) for p in patterns] == [True, False]


def test_a_claim_about_files_after_a_failed_calculation_is_held_back_and_asked_for_once_more(tmp_path: Path) -> None:
    refused = Message("tool", '{"error": "name strawberry is not defined"}', tool_call_id=RESULT.tool_call_id)
    false, true = "I could not count: there is no file named strawberry.", "I could not count: the name is not defined."
    model = ScriptedModel(tmp_path, final(false), final(true))
    [[piece, answer]] = model.run(request(*ASKED, CALLED, refused))
    assert piece.text == answer.message.text == true
    *_, wrong, asked = model.asked[1]["body"]["messages"]
    assert "no file named" in wrong["content"] and "there is no" in asked["content"]


def test_if_the_second_answer_claims_an_absence_too_the_failure_is_stated(tmp_path: Path) -> None:
    refused = Message(
        "tool", '{"error": "[TOOL_ERROR] name strawberry is not defined"}', tool_call_id=RESULT.tool_call_id
    )
    model = ScriptedModel(
        tmp_path, final("I could not count: the folder is empty."), final("I could not find any file.")
    )
    [[piece, answer]] = model.run(request(*ASKED, CALLED, refused))
    said = "I could not do this: calculate failed: name strawberry is not defined"
    assert piece.text == answer.message.text == said
    assert len(model.asked) == 2


def test_a_model_that_never_says_anything_usable_is_an_error(tmp_path: Path) -> None:
    model = ScriptedModel(tmp_path, {"pieces": ["\n\n\n"], "finish": "length"})
    [[error]] = model.run(request())
    assert isinstance(error, ModelError)
    assert error.kind == "cut_off"
    assert len(model.asked) == 3


def test_a_final_text_that_is_cut_keeps_what_was_said(tmp_path: Path) -> None:
    [got] = ScriptedModel(tmp_path, {"pieces": ['{"action": "final", "text": "Once upon'], "finish": "length"}).run(
        request()
    )
    assert (got[-1].message.text, got[-1].finish_reason) == ("Once upon", "length")


def test_a_model_that_ignores_the_grammar_is_understood(tmp_path: Path) -> None:
    text = 'Sure: ```json\n{"name": "calculate", "arguments": {"expression": "2**16"}}\n```'
    [[answer]] = ScriptedModel(tmp_path, {"pieces": [text]}).run(request())
    assert answer.message.tool_calls[0].name == "calculate"


def test_a_crash_is_one_clear_error_and_the_next_question_is_answered(tmp_path: Path) -> None:
    model = ScriptedModel(tmp_path, {"pieces": ['{"action": "final", "text": "It'], "die": True}, final("Back."))
    first, second = model.run(request(), request())
    assert [type(x) for x in first] == [TextPart, ModelError]
    assert first[1].kind == "cut_off"
    assert first[1].message.startswith("The embedded model's process was killed (SIGKILL")
    assert "It starts again with the next request." in first[1].hint
    assert "E out of luck" in first[1].hint
    assert second[-1].message.text == "Back."
    assert model.asked[0]["key"] != model.asked[1]["key"]


def test_an_answer_without_an_end_is_noticed(tmp_path: Path) -> None:
    [got] = ScriptedModel(tmp_path, {"pieces": ['{"action": "final", "text": "It'], "cut": True}).run(request())
    assert isinstance(got[-1], ModelError)
    assert got[-1].kind == "cut_off"
    assert "cut off" in got[-1].message


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (
            {"message": "request exceeds the available context size", "type": "exceed_context_size_error"},
            "context_too_long",
        ),
        ({"message": "no such grammar", "type": "invalid_request_error"}, "refused"),
    ],
)
def test_a_refusal_says_why(tmp_path: Path, said: dict[str, str], kind: str) -> None:
    [[error]] = ScriptedModel(tmp_path, {"status": 400, "body": json.dumps({"error": said})}).run(request())
    assert error.kind == kind
    assert said["message"] in str(error)
    assert error.status == 400


def test_the_request_bears_the_key_and_the_limit(tmp_path: Path) -> None:
    model = ScriptedModel(tmp_path, final("x"))
    model.run(request(max_tokens=77))
    [asked] = model.asked
    assert asked["path"] == "/v1/chat/completions"
    assert asked["key"].startswith("Bearer ")
    assert asked["body"]["max_tokens"] == 77
    assert asked["body"]["stream"] is True


def test_a_question_that_cannot_fit_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    model = ScriptedModel(tmp_path, final("x"))
    [[error]] = model.run(request(Message("user", "x" * 100_000)))
    assert error.kind == "context_too_long"
    assert "100012 characters" in error.message
    assert not Path(f"{model.file}.asked").exists()


def test_what_the_caller_of_a_turn_sets_is_sent_also_beside_tools(tmp_path: Path) -> None:
    model = ScriptedModel(tmp_path, final("x"), final("y"))
    sampling = {"top_p": 0.5, "seed": 7, "presence_penalty": 0.5, "frequency_penalty": 0.25, "logit_bias": {"1": -5}}
    options = RequestOptions(77, 0.25, None, sampling)
    model.run(options.apply_to(request(), first=True), request())
    first, second = (asked["body"] for asked in model.asked)
    sent = {"max_tokens": 77, "temperature": 0.25, **sampling}
    assert {name: first.get(name) for name in sent} == sent
    assert second["temperature"] == 0 and not set(sampling) & set(second)


def test_a_callers_limit_that_leaves_no_room_for_a_word_is_an_answer_that_was_cut(tmp_path: Path) -> None:
    model = ScriptedModel(tmp_path, {"pieces": ['{"action": "fi'], "finish": "length"})
    [[error]] = model.run(RequestOptions(3).apply_to(request(), first=True))
    assert (error.kind, error.finish_reason, error.usage) == ("refused", "length", Usage(10, 5, 4))
    assert len(model.asked) == 1


def test_what_the_embedded_model_has_no_word_for_is_named() -> None:
    client = LocalModelClient(services(), LocalServerSettings(Path("weights.gguf"), "tiny", threads=1))
    refused = ({"stop": ["x"]}, {"reasoning_effort": "low"}, {"verbosity": "low"})
    for given in refused:
        found = client.unsupported("tiny", RequestOptions(extra=given))
        assert found is not None and found[0] in given
    forced = client.unsupported("tiny", RequestOptions(tool_choice="required"))
    assert forced is not None and forced[0] == "tool_choice"
    taken = RequestOptions(5, 0.5, "none", {"seed": 7, "parallel_tool_calls": True})
    assert client.unsupported("tiny", taken) is None
