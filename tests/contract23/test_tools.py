"""Acceptance list of the plugin contract of 0.23, E1 to E4 and D10 to D15: tools and providers."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compat.guides import plugin
from hermes_agent.contracts.context_engine import ContextEngine
from hermes_agent.contracts.model_provider import ProviderProfile
from hermes_agent.contracts.terminal_env import TerminalEnvironmentProvider
from hermes_agent.models.providers import provider_from_profile
from hermes_agent.models.selection import is_selected_by_key
from hermes_agent.testing import call, plugin_host

PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


def registering(name: str, handler: Any) -> Any:
    def register(ctx: Any) -> None:
        schema = {"name": name, "description": "x", "parameters": PARAMETERS}
        ctx.register_tool(name, schema=schema, handler=handler)

    return register


def test_e1_a_handler_without_keywords_and_one_that_names_some_both_work() -> None:
    def plain(args: dict[str, Any]) -> str:
        return "plain"

    def named(args: dict[str, Any], task_id: str) -> str:
        return f"task {task_id}"

    with plugin_host(registering("plain", plain), registering("named", named)) as host:
        assert host.dispatch_tool("plain") == "plain"
        assert host.dispatch_tool("named") == f"task {host.conversation.session_id}"


def test_e2_a_result_that_is_a_dict_does_not_end_the_turn() -> None:
    with plugin_host(registering("odd", lambda args, **kw: {"a": 1}), model=[call("odd"), "done"]) as host:
        answer = host.ask("go")
        assert answer.text == "done"
        result = json.loads(answer.tool_calls[0].result)
        assert (result["error_type"], result["result_type"]) == ("tool_result_contract", "dict")


def test_e3_a_long_text_of_an_exception_reaches_the_model_cut() -> None:
    def fail(args: dict[str, Any], **kwargs: Any) -> str:
        raise RuntimeError("x" * 5000)

    with plugin_host(registering("fails", fail), model=[call("fails"), "done"]) as host:
        host.ask("go")
        (said,) = [m["content"] for m in host.model.messages if m["role"] == "tool"]
        assert "RuntimeError" in said
        cut = json.loads(said)["error"]
        assert "x" * 1900 in cut and "x" * 2049 not in cut
        assert cut.endswith("...") and len(cut) <= 2048 + len("… [truncated]")


@pytest.mark.parametrize(
    ("name", "arguments", "found"),
    [
        ("cronjob", {"action": "list"}, {"success": True, "jobs": []}),
        ("cronjob_manage", {"action": "list"}, {"success": True, "jobs": []}),
        ("process", {"action": "list"}, {"processes": []}),
        ("process_manage", {"action": "list"}, {"processes": []}),
        ("todo", {}, {"todos": []}),
        ("todo_list", {}, {"todos": []}),
    ],
)
def test_e4_a_tool_is_called_by_its_old_and_its_new_name(
    name: str, arguments: dict[str, Any], found: dict[str, Any]
) -> None:
    with plugin_host(lambda ctx: None, model=[call(name, **arguments), "done"]) as host:
        answer = host.ask("go")
        assert found.items() <= json.loads(answer.tool_calls[0].result).items()
        assert found.items() <= json.loads(host.ctx.dispatch_tool(name, arguments)).items()


# -- D10: terminal providers -----------------------------------------------------------------------------------


class Acme(TerminalEnvironmentProvider):
    """A place where commands are only noted."""

    def __init__(self, name: str = "acme") -> None:
        self._name = name
        self.ran: list[str] = []

    @property
    def name(self) -> str:
        return self._name

    def is_available(self) -> bool:
        return True

    def create_environment(self, *, cwd: str, timeout: int, task_id: str = "default", **kwargs: Any) -> Any:
        def execute(command: str, *args: Any, **more: Any) -> dict[str, Any]:
            self.ran.append(command)
            return {"output": "from acme\n", "returncode": 0}

        return SimpleNamespace(execute=execute, cleanup=lambda: None)


def test_d10_a_built_in_name_is_refused_and_another_place_runs_the_commands() -> None:
    acme = Acme()

    def register(ctx: Any) -> None:
        assert ctx.register_terminal_environment_provider(Acme("docker")) is None
        assert ctx.register_terminal_environment_provider(acme).key == "acme"

    with plugin_host(register, config={"terminal": {"backend": "acme"}}, approvals=lambda request: "once") as host:
        assert "`docker` belongs to the agent" in " ".join(host.problems)
        result = json.loads(host.dispatch_tool("terminal", {"command": "uname -a"}))
        assert "from acme" in result["output"]
        assert any("uname -a" in command for command in acme.ran)


# -- D13: context engines --------------------------------------------------------------------------------------


class Counting(ContextEngine):
    """An engine with a state of its own."""

    made = 0

    @property
    def name(self) -> str:
        return "counting"

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return False

    def compress(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        return messages


class Cloned(Counting):
    """An engine that cannot be copied and makes its instances itself."""

    def __init__(self) -> None:
        super().__init__()
        self.clones: list[Cloned] = []

    def clone_for_agent(self) -> ContextEngine:
        made = Cloned()
        self.clones.append(made)
        return made

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("no copy")


@pytest.mark.parametrize("engine", [Counting(), Cloned()], ids=["copied", "cloned"])
def test_d13_each_conversation_has_an_instance_of_its_own(engine: Any) -> None:
    seen: list[Any] = []

    def register(ctx: Any) -> None:
        ctx.register_context_engine(engine)

    with plugin_host(register, config={"context": {"engine": "counting"}}, model=["one", "two"]) as host:
        for _ in range(2):
            host.ask("hi")
            engines = host.host.agent.context_engines
            seen.append(host._run(engines.for_session(host.conversation._new_context())))
            host.new_session()
        instances = [vars(each).get("engine") or vars(each).get("_engine") for each in seen]
        assert "cannot be copied" not in host.log_text
    assert all(isinstance(each, Counting) for each in instances)
    assert instances[0] is not instances[1]
    assert engine not in instances
    if isinstance(engine, Cloned):
        assert len(engine.clones) == 2


# -- D14, D15: model providers ---------------------------------------------------------------------------------

PROVIDER = """
from providers import register_provider
from providers.base import ProviderProfile

register_provider(ProviderProfile(name="acme-models", base_url="https://models.acme.test/v1", env_vars=("ACME_KEY",)))
"""


def test_d14_a_flat_folder_of_kind_model_provider_is_a_provider(tmp_path: Path) -> None:
    folder = plugin(tmp_path / "acme", PROVIDER, "name: acme\nkind: model-provider\n")
    with plugin_host(folder) as host:
        found = host.host.model_providers.get("acme-models")
        assert found is not None
        assert host.host.model_providers.owner("acme-models") == "acme"


def test_d15_the_fields_of_the_later_profile_are_accepted_and_a_hidden_one_is_not_offered() -> None:
    profile = ProviderProfile(
        name="secret-models",
        base_url="https://models.acme.test/v1",
        env_vars=("ACME_KEY",),
        hidden=True,
        supports_model_listing=False,
        process_command="acme-model-server",
        classify_api_error=lambda error, **details: None,
        model_aliases={"fast": "acme-1"},
    )
    provider = provider_from_profile(profile)
    assert is_selected_by_key(provider) is False
    assert is_selected_by_key(provider_from_profile(ProviderProfile("seen", env_vars=("ACME_KEY",)))) is True
    with plugin_host(lambda ctx: ctx.register_model_provider(profile)) as host:
        assert host.host.model_providers.get("secret-models") is not None
        assert host.notes == [
            "model provider `secret-models`: process_command, model_aliases, classify_api_error have no effect here"
        ]
