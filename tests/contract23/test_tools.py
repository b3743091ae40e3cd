"""Acceptance list of the plugin contract of 0.23, E1 to E4 and D10 to D15: tools and providers."""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compat.guides import plugin
from hermes_agent.app.setup.discovery import discover
from hermes_agent.contracts.context_engine import ContextEngine
from hermes_agent.contracts.model_provider import ProviderProfile
from hermes_agent.contracts.terminal_env import TerminalEnvironmentProvider
from hermes_agent.core.errors import ConfigError, ModelError
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


def test_b17_the_name_of_a_tool_of_upstream_that_is_absent_here_is_free_for_a_plugin() -> None:
    def register(ctx: Any) -> None:
        for name in ("discord_admin", "discord_pin"):
            schema = {"name": name, "description": "x", "parameters": PARAMETERS}
            ctx.register_tool(name, toolset="discord", schema=schema, handler=lambda args, **kw: "the plugin")

    with plugin_host(register) as host:
        assert host.notes == []
        assert host.dispatch_tool("discord_admin") == "the plugin"
        assert host.host.toolsets.resolve("discord") == ["discord_admin", "discord_pin"]
        assert "discord_pin" not in host.visible_tools  # as upstream's, this toolset is off until it is selected


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


class QuotaServer(ThreadingHTTPServer):
    """A model server that refuses each first request in its own words."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Quota)
        self.code = "quota_exhausted"
        self.asked = 0
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        threading.Thread(target=self.serve_forever, args=(0.01,)).start()

    def __exit__(self, *args: Any) -> None:
        self.shutdown()
        self.server_close()


class Quota(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, QuotaServer)
        self.rfile.read(int(self.headers["Content-Length"]))
        server.asked += 1
        value: dict[str, Any]
        if server.asked % 2:
            status, value = 403, {"error": {"code": server.code, "message": f"Busy: {self.headers['Authorization']}"}}
        else:
            status, value = (
                200,
                {"choices": [{"message": {"role": "assistant", "content": "after all"}, "finish_reason": "stop"}]},
            )
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


PROGRAM = """
import json, os, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def say(text, kind="agent_message_chunk"):
    update = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
    send(method="session/update", params={"sessionId": "s-1", "update": update})

print("a banner that is no message", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    method, result = asked.get("method"), {}
    if method == "session/new":
        result = {"sessionId": "s-1", "models": {"availableModels": [{"modelId": "big"}]}}
        where = asked["params"]["cwd"]
    elif method == "session/set_model":
        model = asked["params"]["modelId"]
    elif method == "session/prompt":
        prompt = asked["params"]["prompt"][0]["text"]
        if "BREAK OFF" in prompt:
            sys.exit("out of luck")
        if "SPEND IT" in prompt:
            send(id=asked["id"], error={"code": 7, "message": "WEEKLY LIMIT", "data": {"plan": "free"}})
            continue
        send(id=1, method="session/request_permission", params={"sessionId": "s-1", "options": []})
        outcome = json.loads(sys.stdin.readline())["result"]["outcome"]["outcome"]
        say("thinking", "agent_thought_chunk")
        if "Tool:" in prompt:
            say(f"It says {prompt.rpartition('Tool:')[2].split()[0]}; {outcome}; {model}; {os.listdir(where)}; ")
            say(" ".join(sorted(n for n in os.environ if "SECRET" in n)) or "no secret")
        else:
            say("Let me see. <tool")
            say('_call>{"name": "weather", "arguments": {"city": "Ulm"}}</tool_call>')
        result = {"stopReason": "end_turn"}
    send(id=asked["id"], result=result)
"""
"""A model's program, written from the published protocol (agentclientprotocol.com)."""
ENV = {"ACME_COMMAND": sys.executable, "OTHER_SECRET": "x"}


@pytest.fixture
def program(tmp_path: Path) -> ProviderProfile:
    (tmp_path / "acme.py").write_text(PROGRAM, encoding="utf-8")
    return ProviderProfile(
        name="acme-acp",
        display_name="Acme",
        auth_type="external_process",
        base_url="acp://acme",
        process_command="acme-model-server",
        process_args=(str(tmp_path / "acme.py"),),
        process_command_env_vars=("ACME_COMMAND",),
        process_args_env_var="ACME_ARGS",
        fallback_models=("big", "small"),
    )


def test_d15_a_profile_with_process_command_is_offered_as_external_process(
    program: ProviderProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with plugin_host(lambda ctx: ctx.register_model_provider(program), env=ENV) as host:
        (found,) = [client for client in discover(host.host).clients if client.provider.name == "acme-acp"]
        assert (found.problem, found.provider.needs_key) == ("", False)
        assert found.profile.description == "a program of this machine, `acme-model-server`"
        assert host.host.select_model().provider == "custom"  # it is asked if it is named, and only then
        assert host.host.select_model(provider="acme-acp").model == "big"
        assert host.notes == []
        monkeypatch.delenv("ACME_COMMAND")
        with pytest.raises(ConfigError, match="needs the program `acme-model-server`, which is not on the PATH") as why:
            host.host.select_model(provider="acme-acp")
        assert why.value.hint == "Install `acme-model-server`, or set ACME_COMMAND to its path."


def test_d15_the_external_process_answers_turns_and_calls_tools(program: ProviderProfile) -> None:
    asked: list[Any] = []

    def register(ctx: Any) -> None:
        ctx.register_model_provider(program)
        schema = {"name": "weather", "description": "x", "parameters": PARAMETERS}
        ctx.register_tool("weather", schema=schema, handler=forecast)

    def forecast(args: dict[str, Any], **kwargs: Any) -> str:
        asked.append(args)
        return "rain"

    with plugin_host(register, config={"model": {"provider": "acme-acp"}}, env=ENV) as host:
        answer = host.ask("How is the weather?")
    assert answer.text == "Let me see. \n\nIt says rain; cancelled; big; []; no secret"
    assert asked == [{"city": "Ulm"}]


def test_d15_a_process_that_ends_or_is_missing_says_why(program: ProviderProfile) -> None:
    config = {"model": {"provider": "acme-acp"}, "agent": {"api_max_retries": 0}}
    with plugin_host(lambda ctx: ctx.register_model_provider(program), config=config, env=ENV) as host:
        with pytest.raises(ModelError, match="Acme gave no answer: it ended with status 1: out of luck") as failed:
            host.ask("BREAK OFF")
        assert failed.value.kind == "unreachable"


def test_d15_classify_api_error_of_the_profile_decides_after_the_hooks(program: ProviderProfile) -> None:
    seen: list[dict[str, Any]] = []

    def classify(error: Any, **details: Any) -> Any:
        seen.append(details)
        return {"reason": "billing", "message": "The week is used up."}

    program.classify_api_error = classify

    def register(ctx: Any) -> None:
        ctx.register_model_provider(program)

    def overrule(ctx: Any) -> None:
        ctx.register_hook("transform_api_error_classification", lambda **kw: {"reason": "model_not_found"})

    config = {"model": {"provider": "acme-acp"}, "agent": {"api_max_retries": 0}}
    for plugins, kind in (((register,), "payment"), ((register, overrule), "unknown_model")):
        with plugin_host(*plugins, config=config, env=ENV) as host, pytest.raises(ModelError) as failed:
            host.ask("SPEND IT")
        assert failed.value.kind == kind
    given = {"code": 7, "message": "WEEKLY LIMIT", "data": {"plan": "free"}}
    expected = {"status_code": None, "error_code": "7", "message": "weekly limit", "body": given, "model": "big"}
    assert seen == [expected]


def test_d15_classify_api_error_is_given_what_a_server_sent_and_decides_on_the_retry() -> None:
    key = "acme-key-4f9a8e7c6b5d"

    def classify(error: Any, *, status_code: int, error_code: str, message: str, body: Any, model: str) -> Any:
        seen.append(f"{message} {body}")
        if status_code == 403 and error_code == "quota_exhausted" and body["error"]["message"].startswith("Busy"):
            return {"reason": "rate_limit"} if message.startswith("busy") and model == "m-1" else None
        raise RuntimeError("not this one")

    seen: list[str] = []
    with QuotaServer() as server:
        profile = ProviderProfile("acme", base_url=server.url, default_model="m-1", classify_api_error=classify)
        profile.env_vars = ("ACME_API_KEY",)
        config = {"model": {"provider": "acme"}, "agent": {"api_max_retries": 1}}
        env = {"ACME_API_KEY": key}
        with plugin_host(lambda ctx: ctx.register_model_provider(profile), config=config, env=env) as host:
            assert host.ask("hi").text == "after all"
            assert len(seen) == 1 and key not in seen[0]
            server.code = "other"
            with pytest.raises(ModelError) as failed:
                host.ask("hi")
            assert failed.value.kind == "auth"
            assert "classify_api_error of model provider `acme` failed: not this one" in host.log_text


def test_d15_a_client_of_the_plugin_answers_for_its_process() -> None:
    calls: list[dict[str, Any]] = []

    class Completions:
        def create(self, **keywords: Any) -> Any:
            calls.append(keywords)
            message = SimpleNamespace(content="from the process", tool_calls=None)
            return SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason="stop")], model="big")

    class WithClient(ProviderProfile):
        def create_client(self, **options: Any) -> Any:
            calls.append(options)
            return SimpleNamespace(chat=SimpleNamespace(completions=Completions()))

    profile = WithClient("own", process_command=sys.executable, process_args=("-u",), base_url="process://own")
    config = {"model": {"provider": "own", "default": "big"}}
    with plugin_host(lambda ctx: ctx.register_model_provider(profile), config=config) as host:
        assert host.ask("hi").text == "from the process"
    made, asked = calls[:2]
    assert made == {"api_key": "own", "base_url": "process://own", "command": sys.executable, "args": ["-u"]}
    assert (asked["model"], asked["messages"][-1]["content"]) == ("big", "hi")


def test_d15_a_hidden_profile_is_not_listed_and_a_field_without_effect_is_named() -> None:
    profile = ProviderProfile(
        name="secret-models",
        base_url="https://models.acme.test/v1",
        env_vars=("ACME_KEY",),
        hidden=True,
        supports_model_listing=False,
        model_aliases={"fast": "acme-1"},
    )
    program = ProviderProfile(name="secret-program", hidden=True, process_command=sys.executable)
    provider = provider_from_profile(profile)
    assert is_selected_by_key(provider) is False
    assert is_selected_by_key(provider_from_profile(ProviderProfile("seen", env_vars=("ACME_KEY",)))) is True

    def register(ctx: Any) -> None:
        ctx.register_model_provider(profile)
        ctx.register_model_provider(program)

    with plugin_host(register) as host:
        assert host.host.model_providers.get("secret-models") is not None
        assert not [client for client in discover(host.host).clients if client.provider.name == "secret-program"]
        assert host.host.select_model(provider="secret-program").model == "secret-program"
        assert host.notes == ["model provider `secret-models`: model_aliases have no effect here"]


def test_a_list_of_names_that_is_a_single_text_is_one_name() -> None:
    """As after a forgotten comma: upstream loads such plugins and looks at single letters."""
    profile = ProviderProfile(
        "forgetful",
        aliases="forgetful-models",  # type: ignore[arg-type]
        env_vars="FORGETFUL_KEY",  # type: ignore[arg-type]
        fallback_models=None,  # type: ignore[arg-type]
    )

    def register(ctx: Any) -> None:
        ctx.register_model_provider(profile)
        schema = {"name": "look", "description": "x", "parameters": PARAMETERS}
        handler, env = lambda args, **kw: "", "FORGETFUL_KEY"
        ctx.register_tool("look", schema=schema, handler=handler, requires_env=env)
        ctx.register_platform("forgetful", "Forgetful", lambda config: None, lambda: False, required_env=env)

    with plugin_host(register) as host:
        assert host.host.model_providers.profile("forgetful-models") is profile
        assert host.host.model_providers.profile("f") is None
        assert provider_from_profile(profile).env_vars == ("FORGETFUL_KEY",)
        assert profile.fallback_models == ()
        assert host.host.tools.get_entry("look").requires_env == ["FORGETFUL_KEY"]
        assert host.host.platforms.get("forgetful").required_env == ["FORGETFUL_KEY"]
        warned = [line.text for line in host.log if line.level == "WARNING" and "taken as one name" in line.text]
        assert [text.split(": ")[1].split()[0] for text in warned] == ["env_vars", "aliases", "fallback_models"]
