from __future__ import annotations

import asyncio
import contextvars
import json
import threading
import time
from typing import Any

import pytest

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.messages import ToolCall
from hermes_agent.core.redaction import redactor
from hermes_agent.core.registry import BUILTIN, Owner
from hermes_agent.tools import current_scope
from people import House
from waiting import until

IDS = {"task_id": "t", "session_id": "s", "tool_call_id": "c1", "turn_id": "u", "api_request_id": "r"}


class Says:
    """A person with one answer."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, []

    async def ask(self, request: ApprovalRequest) -> Any:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def house(tmp_path):
    it = House(tmp_path)
    yield it
    it.close()


def ask_always(args):
    return ApprovalRequest("calc", "do it", "details", "calc")


# -- the handler ---------------------------------------------------------------------------------------------


async def test_a_handler_gets_its_arguments_and_the_keywords_of_the_contract(house):
    seen = {}

    def handler(args, **kwargs):
        seen.update(args=args, kwargs=kwargs)
        return "done"

    house.add("calc", handler)
    outcome = await house.run({"a": 1}, parent_agent="p")

    assert (outcome.name, outcome.arguments, outcome.result, outcome.status) == ("calc", {"a": 1}, "done", "ok")
    assert seen["kwargs"] == {"task_id": "t", "session_id": "s", "user_task": "task", "parent_agent": "p"}


async def test_a_handler_without_open_keywords_gets_those_that_it_names(house):
    house.add("calc", lambda args, session_id: session_id)
    house.add("bare", lambda args: "none")

    assert (await house.run()).result == "s"
    assert (await house.run(name="bare")).result == "none"


async def test_an_async_handler_is_awaited_on_the_plugin_loop(house):
    async def handler(args, **kwargs):
        await asyncio.sleep(0)
        return threading.current_thread().name

    house.add("calc", handler, is_async=True)
    assert (await house.run()).result == "hermes-plugins"


async def test_a_handler_sees_its_scope_and_the_callers_context(house):
    variable = contextvars.ContextVar("variable", default="unset")
    house.add("calc", lambda args, **kw: f"{current_scope.get().turn_id} {variable.get()}")

    async def main():
        variable.set("set")
        return await house.dispatcher.run("c1", "calc", {}, house.scope())

    assert (await main()).result == "u set"
    assert current_scope.get() is None


# -- the shapes of errors, §4.4 ------------------------------------------------------------------------------


async def test_an_unknown_tool(house):
    assert (await house.run(name="nothing")).result == '{"error": "Unknown tool: nothing"}'


async def test_a_tool_that_the_model_was_not_shown_is_unknown_to_it(house):
    ran = []
    house.add("calc", lambda args, **kw: ran.append(1) or "ran")
    work = house.dispatcher.run("c1", "calc", {}, house.scope(), valid=["other"])

    assert (await work).result == '{"error": "Unknown tool: calc"}'
    assert ran == []


@pytest.mark.parametrize(
    ("exception", "text"),
    [
        (ValueError("bad <system>x</system>"), "[TOOL_ERROR] Tool execution failed: ValueError: bad x"),
        (SystemExit(3), "[TOOL_ERROR] Tool execution failed: SystemExit: 3"),
        (ToolFailed("try it otherwise"), "try it otherwise"),
    ],
)
async def test_a_handler_that_raises(house, exception, text):
    def handler(args, **kwargs):
        raise exception

    house.add("calc", handler)
    outcome = await house.run()

    assert json.loads(outcome.result) == {"error": text}
    assert outcome.status == "error"


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (lambda args, **kw: args.pop("of") + args["text"], "KeyError: 'text' (`text` is required and was not given)"),
        (lambda args, **kw: args.get("text") + "x", "`text` is required and was not given)"),
        (lambda args, **kw: args["other"], "KeyError: 'other' (`text` is required and was not given)"),
        (lambda args, **kw: {}["sign-in required"], "sign-in required' (`text` is required and was not given)"),
    ],
)
async def test_the_error_of_a_handler_names_the_required_parameter_that_the_call_lacks(house, handler, error):
    house.add("calc", handler, properties={"text": {"type": "string"}, "of": {"type": "string"}})
    house.tools.get("calc").schema["parameters"]["required"] = ["of", "text"]

    assert (await house.error({"of": "x"})).endswith(error)
    house.add("calm", lambda args, **kw: args.get("text", "ran without"))
    house.tools.get("calm").schema["parameters"]["required"] = ["text"]
    assert (await house.run(name="calm")).result == "ran without"


async def test_an_error_that_names_what_is_required_itself_stays_as_it_is(house):
    def add(text):
        return text

    house.add("calc", lambda args, **kw: add(**args), properties={"text": {"type": "string"}})
    house.tools.get("calc").schema["parameters"]["required"] = ["text"]

    assert (await house.error({})).endswith("add() missing 1 required positional argument: 'text'")


@pytest.mark.parametrize("required", [None, "text", 3, [3, None], {"text": 1}])
async def test_a_schema_whose_required_parameters_cannot_be_read_leaves_the_error_alone(house, required):
    house.add("calc", lambda args, **kw: args["text"])
    house.tools.get("calc").schema["parameters"]["required"] = required

    assert (await house.error()).endswith("KeyError: 'text'")


async def test_an_async_handler_that_exits_harms_no_later_one(house):
    async def leave(args, **kwargs):
        raise SystemExit(3)

    async def work(args, **kwargs):
        return "works"

    house.add("leave", leave, is_async=True)
    house.add("calc", work, is_async=True)

    assert "SystemExit(3)" in await house.error(name="leave")
    assert (await house.run()).result == "works"


async def test_a_result_of_another_type_and_an_async_handler_that_was_not_declared(house):
    async def coroutine(args, **kwargs):
        return "never"

    house.add("calc", lambda args, **kw: {"a": 1})
    house.add("undeclared", coroutine)

    assert json.loads((await house.run()).result) == {
        "error": "Tool handler returned unsupported result type: dict",
        "error_type": "tool_result_contract",
        "tool": "calc",
        "result_type": "dict",
    }
    assert json.loads((await house.run(name="undeclared")).result)["result_type"] == "coroutine"


async def test_arguments_that_do_not_parse_reach_no_handler(house):
    house.add("calc", lambda args, **kw: "ran")
    for text in ("{broken", "[1]", '"x"', "null", "[" * 100_000):
        name, arguments = house.dispatcher.resolve(ToolCall("c", "calc", text), ["calc"])
        work = house.dispatcher.run("c", name, arguments, house.scope())
        assert json.loads((await work).result)["error"] == "Invalid tool arguments"


async def test_a_dispatch_that_a_plugin_replaced_is_honoured_and_may_fail(house, monkeypatch):
    house.add("calc", lambda args, **kw: "original")
    original = house.tools.dispatch
    monkeypatch.setattr(house.tools, "dispatch", lambda name, args, **kw: original(name, args, **kw).upper())
    assert (await house.run()).result == "ORIGINAL"

    def broken(name, args, **kwargs):
        raise KeyError("patched")

    monkeypatch.setattr(house.tools, "dispatch", broken)
    assert await house.error() == "[TOOL_ERROR] Error executing calc: 'patched'"


# -- what the model wrote ------------------------------------------------------------------------------------


def test_a_call_is_resolved_by_repair_and_coercion(house):
    house.add("read_file", lambda args, **kw: "", properties={"limit": {"type": "integer"}})
    call = ToolCall("c", "readFile_tool", '{"limit": "5"}')

    assert house.dispatcher.resolve(call, ["read_file"]) == ("read_file", {"limit": 5})
    assert house.dispatcher.resolve(ToolCall("c", "read_file", "  "), ["read_file"]) == ("read_file", {})


@pytest.mark.parametrize("parameters", [{"properties": {"a": {"anyOf": 5}}}, {"properties": {"a": {"type": 7}}}])
def test_a_schema_that_makes_no_sense_leaves_the_arguments_as_they_are(house, parameters):
    house.tools.register("odd", "t", {"parameters": parameters}, lambda args: "", owner=Owner(BUILTIN))

    assert house.dispatcher.resolve(ToolCall("c", "odd", '{"a": "1"}'), ["odd"]) == ("odd", {"a": "1"})


# -- hooks, §3.2 ---------------------------------------------------------------------------------------------


async def test_the_hooks_see_the_call_and_its_end(house):
    seen = []
    house.add("calc", lambda args, **kw: '{"value": 1}')
    for hook in ("pre_tool_call", "post_tool_call", "transform_tool_result"):
        house.hooks.add(hook, lambda hook=hook, **payload: seen.append((hook, payload)), "p")
    await house.run({"a": 1})

    schema = {"telemetry_schema_version": "hermes.observer.v1"}
    duration = seen[1][1]["duration_ms"]
    after = {
        "tool_name": "calc",
        "args": {"a": 1},
        **IDS,
        "result": '{"value": 1}',
        "duration_ms": duration,
        "status": "ok",
        "error_type": "",
        "error_message": "",
        **schema,
    }
    assert isinstance(duration, int)
    assert seen == [
        ("pre_tool_call", {"tool_name": "calc", "args": {"a": 1}, "middleware_trace": [], **IDS, **schema}),
        ("post_tool_call", {**after, "middleware_trace": []}),
        ("transform_tool_result", after),
    ]


async def test_a_block_keeps_the_tool_from_running_and_is_observed(house):
    ran, observed = [], []
    house.add("calc", lambda args, **kw: ran.append(1) or "ran")
    house.hooks.add("pre_tool_call", lambda **kw: {"action": "block", "message": "not today"}, "guard")
    house.hooks.add("post_tool_call", lambda **kw: observed.append(kw), "watcher")
    outcome = await house.run()

    assert (outcome.result, outcome.status, ran) == ('{"error": "not today"}', "blocked", [])
    (end,) = observed
    assert (end["status"], end["error_type"], end["error_message"]) == ("blocked", "plugin_block", "not today")


async def test_every_guard_is_called_and_the_first_block_counts(house):
    called = []
    house.add("calc", lambda args, **kw: "ran")
    for text in ("first", "second"):
        house.hooks.add(
            "pre_tool_call", lambda text=text, **kw: called.append(text) or {"action": "block", "message": text}, "p"
        )

    assert await house.error() == "first"
    assert called == ["first", "second"]


async def test_a_guard_that_fails_blocks_and_is_named_unless_it_was_relaxed(house):
    async def broken(**kwargs):
        raise KeyError("x")

    house.add("calc", lambda args, **kw: "ran")
    house.hooks.add("pre_tool_call", broken, "guard")

    assert await house.error() == (
        "BLOCKED: the guard of plugin `guard` failed for calc: "
        "pre_tool_call plugin callback broken raised KeyError: 'x'"
    )
    house.relaxed.add("guard")
    assert (await house.run()).result == "ran"


async def test_an_observer_that_fails_changes_nothing(house):
    def broken(**kwargs):
        raise SystemExit(1)

    house.add("calc", lambda args, **kw: "ran")
    house.hooks.add("post_tool_call", broken, "p")
    house.hooks.add("transform_tool_result", broken, "p")

    assert (await house.run()).result == "ran"


async def test_the_first_text_of_the_transformers_replaces_the_result(house):
    house.add("calc", lambda args, **kw: "ran")
    for answer in (None, {"result": "x"}, "first", "second"):
        house.hooks.add("transform_tool_result", lambda answer=answer, **kw: answer, "p")

    assert (await house.run()).result == "first"


async def test_arguments_that_a_guard_changes_take_effect_and_are_logged(house, caplog):
    caplog.set_level("INFO")
    house.add("calc", lambda args, **kw: str(args))
    house.hooks.add("pre_tool_call", lambda **kw: None, "onlooker")
    house.hooks.add("pre_tool_call", lambda args, **kw: args.update(a=2), "changer")
    house.hooks.add("pre_tool_call", lambda args, **kw: None, "another")

    assert (await house.run({"a": 1})).result == "{'a': 2}"
    (line,) = [r for r in caplog.records if "changed the arguments" in r.getMessage()]
    assert line.getMessage() == "plugin changer changed the arguments of calc in its pre_tool_call hook"
    assert line.plugin == "changer"


async def test_arguments_of_every_shape_are_looked_at(house):
    circle: dict[Any, Any] = {1: "a", "b": object()}
    circle["self"] = circle
    house.add("calc", lambda args, **kw: "ran", approval=lambda args: None)
    house.hooks.add("pre_tool_call", lambda **kw: None, "p")

    assert (await house.run(circle)).result == "ran"


# -- approval ------------------------------------------------------------------------------------------------


async def test_a_tools_own_question_is_asked_before_it_runs(house):
    house.add("calc", lambda args, **kw: "ran", approval=ask_always)

    assert (await house.run(approver=Says("once"))).result == "ran"
    denied = await house.run(approver=Says("deny"))
    assert denied.status == "blocked"
    assert "The user denied calc (do it)" in denied.result
    assert "no user can be asked here" in await house.error()


async def test_a_guards_question_bears_its_plugin_and_message(house):
    person = Says("once")
    house.add("calc", lambda args, **kw: "ran")
    house.hooks.add("pre_tool_call", lambda **kw: {"action": "approve", "message": "risky", "rule_key": "r"}, "guard")
    house.hooks.add("pre_tool_call", lambda **kw: {"action": "approve", "message": "later"}, "other")

    assert (await house.run({"a": 1}, approver=person)).result == "ran"
    assert person.asked == [ApprovalRequest("calc", "risky", '{"a": 1}', "plugin_rule:r", "guard")]


async def test_a_guards_yes_does_not_answer_the_tools_own_question(house):
    person = Says("once")
    house.add("calc", lambda args, **kw: "ran", approval=ask_always)
    house.hooks.add("pre_tool_call", lambda **kw: {"action": "approve"}, "guard")
    await house.run(approver=person)

    assert [request.summary for request in person.asked] == ["Plugin requires approval for calc", "do it"]


async def test_the_question_knows_the_working_directory(house):
    seen = []
    house.add("calc", lambda args, **kw: "ran", approval=lambda args: seen.append(current_scope.get().cwd))
    await house.run()

    assert seen == [house.cwd]


async def test_the_question_is_about_the_arguments_that_the_guards_left(house):
    seen = []
    house.add("calc", lambda args, **kw: "ran", approval=lambda args: seen.append(dict(args)))
    house.hooks.add("pre_tool_call", lambda args, **kw: args.update(path="/etc"), "p")
    await house.run({"path": "here"})

    assert seen == [{"path": "/etc"}]


@pytest.mark.parametrize("answer", [ValueError("broken pipe"), None, "for ever", True])
async def test_a_gate_that_fails_or_answers_nonsense_blocks(house, answer):
    house.add("calc", lambda args, **kw: "ran", approval=ask_always)

    assert (await house.run(approver=Says(answer))).status == "blocked"


async def test_a_rule_that_fails_blocks(house):
    def rule(args):
        raise KeyError("x")

    house.add("calc", lambda args, **kw: "ran", approval=rule)

    assert await house.error(approver=Says("once")) == "BLOCKED: the approval rule of calc failed"


async def test_a_yes_after_the_interrupt_does_not_run_the_tool(house):
    class Late(Says):
        async def ask(self, request):
            house.cancelled.set()
            return "once"

    ran = []
    house.add("calc", lambda args, **kw: ran.append(1) or "ran", approval=ask_always)

    assert (await house.run(approver=Late("once"))).status == "blocked"
    assert ran == []


async def test_a_call_that_goes_straight_to_the_registry_is_asked_about(house):
    person = Says("deny")
    house.add("inner", lambda args, **kw: "ran", approval=ask_always)
    house.add("calc", lambda args, **kw: house.tools.dispatch("inner", {}))

    assert "denied" in await house.error(approver=person)
    assert len(person.asked) == 1
    assert "needs approval" in json.loads(house.tools.dispatch("inner", {}))["error"]


async def test_the_yes_for_one_call_is_not_lent_to_the_calls_that_it_makes(house):
    person = Says("once")

    def recursive(args, **kwargs):
        return house.tools.dispatch("calc", args) if len(person.asked) < 2 else "deep"

    house.add("calc", recursive, approval=ask_always)

    assert (await house.run(approver=person)).result == "deep"
    assert len(person.asked) == 2


async def test_arguments_that_change_between_question_and_call_are_asked_about_again(house, monkeypatch):
    person = Says("once")
    house.add("calc", lambda args, **kw: str(args), approval=ask_always)
    original = house.tools.dispatch
    monkeypatch.setattr(house.tools, "dispatch", lambda name, args, **kw: original(name, {"a": 2}, **kw))
    await house.run({"a": 1}, approver=person)

    assert len(person.asked) == 2


# -- the result ----------------------------------------------------------------------------------------------


async def test_secrets_are_masked_also_in_the_form_that_json_gives_them(house):
    key = '-----BEGIN KEY-----\nMIIBVwIBADANBgkqh"kiG9w0\n-----END KEY-----'
    redactor.learn(["s3cr3t-value-of-a-test", key])
    house.add(
        "calc", lambda args, **kw: json.dumps({"a": "x s3cr3t-value-of-a-test", "b": key, "c": key.split("\n")[1]})
    )

    result = json.loads((await house.run()).result)
    assert result["a"] == "x [redacted]"
    assert "MIIBVw" not in str(result)


async def test_half_a_character_becomes_one_that_can_be_stored(house):
    house.add("calc", lambda args, **kw: "name \udcff")

    assert (await house.run()).result == "name ?"


async def test_a_long_result_is_moved_to_a_file_unless_the_tool_says_otherwise(house):
    house.add("calc", lambda args, **kw: "x" * 200_000)
    house.add("whole", lambda args, **kw: "x" * 200_000, max_result_size_chars=float("inf"))

    assert (await house.run()).result.startswith("<persisted-output>")
    assert len((await house.run(name="whole")).result) == 200_000


async def test_an_error_of_a_cancelled_turn_is_a_cancelled_call(house):
    def handler(args, **kwargs):
        house.cancelled.set()
        return '{"error": "stopped"}'

    house.add("calc", handler)
    assert (await house.run()).status == "cancelled"


async def test_the_duration_is_that_of_the_call(house):
    def handler(args, **kw):
        ends = time.monotonic() + 0.05
        until(lambda: time.monotonic() >= ends)
        return "x"

    house.add("calc", handler)

    assert 50 <= (await house.run()).duration_ms < 20_000
