"""`ctx.dispatch_tool`: every part of the pipeline, one by one, through a real host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.policy import NoApprover
from hermes_agent.testing import call, plugin_host
from hermes_agent.tools import current_scope

SCHEMA = {
    "name": "probe",
    "description": "d",
    "parameters": {"type": "object", "properties": {"n": {"type": "integer"}, "flag": {"type": "boolean"}}},
}


class Probe:
    """A plugin with a tool that keeps what it is called with."""

    def __init__(self, answer: Any = "ran", **hooks: Any) -> None:
        self.answer, self.hooks = answer, hooks
        self.calls: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def __call__(self, ctx: Any) -> None:
        self.ctx = ctx
        ctx.register_tool("probe", schema=SCHEMA, handler=self.handle)
        for name, callback in self.hooks.items():
            ctx.register_hook(name, callback)

    def handle(self, args: dict[str, Any], **kwargs: Any) -> Any:
        self.calls.append((dict(args), kwargs))
        return self.answer(self) if callable(self.answer) else self.answer


def test_the_arguments_are_coerced_and_parent_agent_is_passed_through() -> None:
    probe, parent = Probe(), object()
    with plugin_host(probe) as host:
        given = {"n": "42", "flag": "true"}
        assert host.ctx.dispatch_tool("probe", given, parent_agent=parent) == "ran"

    ((args, keywords),) = probe.calls
    assert (args, given) == ({"n": 42, "flag": True}, {"n": "42", "flag": "true"})
    assert keywords["parent_agent"] is parent


def test_outside_a_conversation_a_call_works_where_the_config_says_and_so_do_those_that_it_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[Any] = []

    def works(probe: Probe) -> str:
        scope = current_scope.get()
        assert scope is not None
        places.append((scope.cwd, type(scope.approvals.approver)))
        return probe.ctx.dispatch_tool("probe", {}, more=1) if len(places) % 2 else "ran"  # type: ignore[no-any-return]

    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    for cwd in ("there", str(tmp_path / "there")):
        with plugin_host(Probe(works), config={"terminal": {"cwd": cwd}}) as host:
            assert host.ctx.dispatch_tool("probe", {}) == "ran"

    assert places == [(tmp_path / "there", NoApprover)] * 4


def test_middleware_and_hooks_see_it_once() -> None:
    seen: list[str] = []
    hooks = {name: lambda name=name, **kw: seen.append(name) for name in ("pre_tool_call", "post_tool_call")}
    probe = Probe(**hooks, transform_tool_result=lambda result, **kw: result.upper())

    def register(ctx: Any) -> None:
        probe(ctx)
        ctx.register_middleware("tool_request", lambda args, **kw: {"args": {**args, "n": 7}})
        ctx.register_middleware("tool_execution", lambda next_call, **kw: seen.append("execution") or next_call())

    with plugin_host(register) as host:
        assert host.ctx.dispatch_tool("probe", {"n": 1}) == "RAN"

    assert seen == ["pre_tool_call", "execution", "post_tool_call"]
    assert probe.calls[0][0] == {"n": 7}


def raises(**kwargs: Any) -> None:
    raise ValueError("broken")


async def blocks_async(**kwargs: Any) -> Any:
    return {"action": "block", "message": "not so fast"}


def blocks_without_open_keywords(tool_name: str) -> Any:
    return {"action": "block", "message": f"no {tool_name}"}


@pytest.mark.parametrize(
    ("guard", "said"),
    [
        (
            raises,
            "BLOCKED: the guard of plugin `under-test` failed for probe: "
            "pre_tool_call plugin callback raises raised ValueError: broken",
        ),
        (lambda **kw: {"action": "block"}, "BLOCKED: plugin `under-test` blocks probe and gives no message"),
        (blocks_async, "not so fast"),
        (blocks_without_open_keywords, "no probe"),
    ],
)
def test_a_guard_blocks_whatever_its_shape_and_a_failing_one_is_named(guard: Any, said: str) -> None:
    probe = Probe(pre_tool_call=guard)
    with plugin_host(probe) as host:
        assert json.loads(host.ctx.dispatch_tool("probe", {})) == {"error": said}

    assert probe.calls == []


def test_outside_a_conversation_approval_is_refused() -> None:
    probe = Probe(pre_tool_call=lambda **kw: {"action": "approve", "message": "sure?"})
    with plugin_host(probe) as host:
        error = json.loads(host.ctx.dispatch_tool("probe", {}))["error"]

    assert "no user can be asked" in error
    assert probe.calls == []


def test_secrets_are_masked_and_a_long_result_goes_to_a_file() -> None:
    with plugin_host(Probe("key sk-proj-abcdefghijklmnopqrstuvwxyz"), env={}) as host:
        assert host.ctx.dispatch_tool("probe", {}) == "key [redacted]"
    with plugin_host(Probe("x" * 100_001)) as host:
        assert host.ctx.dispatch_tool("probe", {}).startswith("<persisted-output>\n")


@pytest.mark.parametrize(("value", "kind"), [({"a": 1}, "dict"), (None, "NoneType"), (3, "int"), (b"x", "bytes")])
def test_a_result_that_is_no_text_is_the_contract_error(value: Any, kind: str) -> None:
    with plugin_host(Probe(value)) as host:
        assert json.loads(host.ctx.dispatch_tool("probe", {})) == {
            "error": f"Tool handler returned unsupported result type: {kind}",
            "error_type": "tool_result_contract",
            "tool": "probe",
            "result_type": kind,
        }


def test_a_tool_that_calls_itself_ends() -> None:
    probe = Probe(lambda probe: probe.ctx.dispatch_tool("probe", {}))
    with plugin_host(probe) as host:
        assert "more than 8 deep" in host.ctx.dispatch_tool("probe", {})

    assert len(probe.calls) == 8


def test_what_a_plugin_calls_in_a_turn_counts_against_the_steps_of_the_turn() -> None:
    answers: list[str] = []
    probe = Probe(lambda probe: answers.append(probe.ctx.dispatch_tool("other", {})) or "ran")

    def register(ctx: Any) -> None:
        probe(ctx)
        ctx.register_tool("other", schema={**SCHEMA, "name": "other"}, handler=lambda args, **kw: "other ran")

    script = [call("probe", n=1), call("probe", n=2), "the last word"]
    with plugin_host(register, config={"agent": {"max_turns": 3}}, model=script) as host:
        assert host.ask("go").reason == "budget"

    assert answers[0] == "other ran"
    assert "the turn has spent all its steps" in answers[1]
