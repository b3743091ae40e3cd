"""Acceptance list of the plugin contract of 0.23, B15 to B23 and D8 to D12: actions, transports, references, texts."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compat.guides import plugin
from hermes_agent.adapters.events import build_session_key
from hermes_agent.compat import import_hook
from hermes_agent.plugins.subagent_lifecycle import SubagentHandle, SubagentLifecycleError
from hermes_agent.policy.approval_transport import TransportRequest, invoke_approval_transport
from hermes_agent.skills import SkillLibrary
from hermes_agent.testing import call, plugin_host
from hermes_agent.testing.chat import MemoryAdapter, chat_host, memory_platform


@pytest.fixture(autouse=True)
def debug_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG, "hermes_agent")
    yield


@pytest.fixture
def upstream_names() -> Iterator[None]:
    import_hook.install()
    yield
    import_hook.uninstall()


def warnings(host: Any, part: str) -> list[str]:
    return [line.text for line in host.log if line.level == "WARNING" and part in line.text]


def key_of(ctx: Any) -> str:
    return str(ctx.plugin_id)


class Reacting(MemoryAdapter):
    """An adapter whose service has reactions and no threads."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.reactions: list[tuple[str, str, str]] = []

    async def add_reaction(self, chat_id: str, message_id: str, emoji: str) -> None:
        if emoji == "💥":
            raise RuntimeError("the service refuses it")
        self.reactions.append((chat_id, message_id, emoji))


# -- B15: actions on chats -------------------------------------------------------------------------------------


def test_b15_an_action_without_a_grant_is_refused_and_with_one_done() -> None:
    contexts: list[Any] = []
    with chat_host(contexts.append, platform=memory_platform(Reacting)) as chat:
        act = contexts[0].platform_actions
        run = chat.host.host.bridge.wait_plugin
        assert contexts[0].platform_actions is act
        refused = run(act.add_reaction("memorychat", "room", "m1", "👍"))
        assert (refused["ok"], refused["error"]) == (False, "capability_not_granted")
    config = {"plugins": {"entries": {key_of(contexts[0]): {"granted_capabilities": ["gateway.platform_actions"]}}}}
    contexts.clear()
    with chat_host(contexts.append, platform=memory_platform(Reacting), config=config) as chat:
        act = contexts[0].platform_actions
        run = chat.host.host.bridge.wait_plugin
        assert run(act.add_reaction("memorychat", "room", "m1", "👍")) == {"ok": True, "action": "add_reaction"}
        assert chat.adapter.reactions == [("room", "m1", "👍")]
        codes = {
            run(act.add_reaction("memorychat", "room", "m1", ""))["error"],
            run(act.add_reaction("nowhere", "room", "m1", "👍"))["error"],
            run(act.add_reaction("memorychat", "room", "m1", "💥"))["error"],
            run(act.set_thread_title("memorychat", "room", "t", "title"))["error"],
        }
        assert codes == {"invalid_argument", "unknown_platform", "action_failed", "unsupported_platform_action"}
        assert "platform action add_reaction" in chat.host.log_text


def test_b15_without_a_gateway_the_action_says_so() -> None:
    contexts: list[Any] = []
    config = {"plugins": {"entries": {"under-test": {"allow_platform_actions": True}}}}
    with plugin_host(contexts.append, config=config) as host:
        act = contexts[0].platform_actions
        found = host.host.bridge.wait_plugin(act.add_reaction("telegram", "1", "2", "👍"))
        assert found["error"] == "gateway_unavailable"


# -- B16: messages into chats ----------------------------------------------------------------------------------


def test_b16_a_message_for_a_chat_needs_the_operator_s_switch() -> None:
    contexts: list[Any] = []
    with chat_host(contexts.append, model=["hello"]) as chat:
        chat.ask("hi")
        assert contexts[0].inject_message("build done", session_key=_key_of(chat)) is False
        assert warnings(chat.host, "allow_gateway_injection: true")
        plugin_key = key_of(contexts[0])
    contexts.clear()
    config = {"plugins": {"entries": {plugin_key: {"allow_gateway_injection": True}}}}
    with chat_host(contexts.append, model=["hello", "noted", "fresh", "/new is only text"], config=config) as chat:
        chat.ask("hi")
        inject = contexts[0].inject_message
        assert inject("both", session_key=_key_of(chat), origin={}) is False
        assert inject("unknown", session_key="agent:main:memorychat:dm:nobody") is False
        assert inject("stranger", origin={"platform": "memorychat", "chat_id": "x", "user_id": "mallory"}) is False
        assert inject("malformed", origin={"chat_id": "x"}) is False
        assert inject("the build is done", session_key=_key_of(chat)) is True
        chat.wait(lambda: "noted" in chat.texts)
        assert inject("hello", origin={"platform": "memorychat", "chat_id": "other", "user_id": "ann"}) is True
        chat.wait(lambda: "fresh" in chat.texts)
        assert chat.adapter.sent[-1].chat == "other"
        assert inject("/new", session_key=_key_of(chat)) is True
        chat.wait(lambda: "/new is only text" in chat.texts)
        assert chat.host.model.messages[-1]["content"] == "/new"


def _key_of(chat: Any) -> str:
    source = chat.adapter.build_source(chat_id="room", user_id="ann")
    return build_session_key(source)


# -- B19: skills -----------------------------------------------------------------------------------------------


def test_b19_a_plugin_s_skill_is_listed_while_the_plugin_is_enabled(tmp_path: Path) -> None:
    folder = plugin(
        tmp_path / "tea",
        "from pathlib import Path\n\ndef register(ctx):\n"
        "    ctx.register_skill('brew', Path(__file__).parent / 'SKILL.md', description='How to brew')\n",
    )
    (folder / "SKILL.md").write_text("---\nname: brew\ndescription: How to brew\n---\nBoil.\n", encoding="utf-8")
    with plugin_host(folder) as host:
        listed = json.loads(host.host.tools.dispatch("skills_list", {}))
        assert {"name": "tea:brew", "description": "How to brew", "category": "tea"} in listed["skills"]
        assert "tea:brew: How to brew" in str(host.conversation.system_prompt)
        config = json.loads((host.home / "config.yaml").read_text(encoding="utf-8"))
        config["plugins"]["disabled"] = ["tea"]
        (host.home / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
        host.host.plugins.reload()
        host.new_session()
        assert "tea:brew" not in host.host.tools.dispatch("skills_list", {})
        assert "tea:brew" not in str(host.conversation.system_prompt)
        assert host.host.service(SkillLibrary).plugin_rows() == []


# -- B21: texts in other languages -----------------------------------------------------------------------------


def test_b21_plugins_win_over_the_user_s_file_which_wins_over_the_shipped_text(
    tmp_path: Path, upstream_names: None
) -> None:
    contexts: list[Any] = []
    config = {"display": {"language": "de"}}
    with plugin_host(contexts.append, contexts.append, config=config) as host:
        from agent.i18n import get_language, t  # type: ignore[import-not-found]

        texts = host.host.extensions.texts()
        texts.ship({"greeting": "Hello {name}", "bye": "Bye"})
        assert get_language() == "de"
        assert t("greeting", name="Ann") == "Hello Ann"
        (host.home / "locales").mkdir()
        (host.home / "locales" / "de.yaml").write_text("greeting: 'Hallo {name}'\na: {b: tief}\n", encoding="utf-8")
        assert t("greeting", name="Ann") == "Hallo Ann"
        assert (t("a.b"), t("bye"), t("no.such")) == ("tief", "Bye", "no.such")
        contexts[0].register_locale("de", {"greeting": "Servus {name}"})
        handle = contexts[1].register_locale("DE", {"greeting": "Moin {name}"}, endonym="Deutsch")
        assert (handle.kind, handle.key) == ("locale", "de/core")
        assert t("greeting", name="Ann") == "Moin Ann"
        host.host.plugins.unload(contexts[1].plugin_id)
        assert t("greeting", name="Ann") == "Servus Ann"
        for wrong in ("x", "de_", 3):
            with pytest.raises(ValueError):
                contexts[0].register_locale(wrong, {})
        with pytest.raises(FileNotFoundError):
            contexts[0].register_locale("de", tmp_path / "none.yaml")
        with pytest.raises(ValueError):
            contexts[0].register_locale("de", {}, surface="moon")


def test_b21_a_notice_of_the_gateway_comes_in_the_language_of_the_config() -> None:
    def register(ctx: Any) -> None:
        ctx.register_locale("de", {"gateway": {"pairing": "Dein Code: {code} ({platform})"}})

    with chat_host(register, config={"display": {"language": "de", "tool_progress": "off"}}) as chat:
        assert chat.ask("hello", user="stranger", chat_type="dm").startswith("Dein Code: ")


def test_b21_a_folder_and_a_manifest_bring_files_and_a_broken_one_is_skipped(tmp_path: Path) -> None:
    folder = plugin(
        tmp_path / "pack",
        "from pathlib import Path\n\ndef register(ctx):\n    global handles\n"
        "    handles = ctx.register_locale_dir(Path(__file__).parent / 'more')\n",
        "name: pack\nprovides_locales: [fr, it]\n",
    )
    (folder / "locales").mkdir()
    (folder / "more").mkdir()
    (folder / "locales" / "fr.yaml").write_text("x: oui\n", encoding="utf-8")
    (folder / "more" / "es.yaml").write_text("x: sí\n", encoding="utf-8")
    (folder / "more" / "pl.yaml").write_text("- a list\n", encoding="utf-8")
    with plugin_host(folder) as host:
        texts = host.host.extensions.texts()
        assert (texts.find("x", "fr"), texts.find("x", "es"), texts.find("x", "pl")) == ("oui", "sí", None)
        assert [handle.key for handle in host.module.handles] == ["es/core"]
        assert warnings(host, "declares the locale it")


# -- B22: blueprints -------------------------------------------------------------------------------------------

BLUEPRINT: dict[str, Any] = {
    "title": "Morning news",
    "description": "News at a time",
    "schedule_template": "every day at {time}",
    "prompt_template": "Tell me the news about {topic}.",
    "slots": [{"name": "time", "type": "time", "default": "08:00"}, {"name": "topic", "label": "What about"}],
}


def test_b22_a_blueprint_becomes_a_job_and_a_second_one_of_its_key_is_refused(tmp_path: Path) -> None:
    contexts: list[Any] = []
    with plugin_host(contexts.append) as host:
        ctx = contexts[0]
        handle = ctx.register_automation_blueprint("news", **BLUEPRINT)
        name = f"{ctx.manifest.name}:news"
        assert (handle.kind, handle.key) == ("automation_blueprint", name)
        assert ctx.register_automation_blueprint("news", **BLUEPRINT) is None
        assert warnings(host, "is registered already")
        assert ctx.register_automation_blueprint("bad", **{**BLUEPRINT, "prompt_template": "{nothing}"}) is None
        assert ctx.register_automation_blueprint("Bad key", **BLUEPRINT) is None
        assert ctx.register_automation_blueprint("bad", **{**BLUEPRINT, "slots": [{"type": "moon"}]}) is None
        assert name in str(host.run_command("/blueprint"))
        assert "topic: What about (text)" in str(host.run_command(f"/bp {name}"))
        assert "`topic` is missing" in str(host.run_command(f"/blueprint {name} time=07:30"))
        assert "expected a time" in str(host.run_command(f"/blueprint {name} topic=tea time=late"))
        made = str(host.run_command(f"/blueprint {name} topic='green tea' time=07:30"))
        assert made.startswith("Created job ")
        jobs = json.loads(host.host.tools.dispatch("cronjob", {"action": "list"}))["jobs"]
        assert [(job["name"], job["prompt"]) for job in jobs] == [("Morning news", "Tell me the news about green tea.")]
        handle.dispose()
        assert "No plugin offers" in str(host.run_command("/blueprint"))


# -- B23: subagents --------------------------------------------------------------------------------------------


def test_b23_a_subagent_is_started_in_a_turn_and_a_changed_handle_reads_unknown() -> None:
    handles: list[SubagentHandle] = []
    contexts: list[Any] = []

    def register(ctx: Any) -> None:
        contexts.append(ctx)

        def start(args: dict[str, Any], **kwargs: Any) -> str:
            handles.append(ctx.subagent_lifecycle.launch({"goal": "count to three", "correlation_id": "c1"}))
            return "started"

        ctx.register_tool(
            "start_work", schema={"name": "start_work", "description": "x", "parameters": {}}, handler=start
        )

    def answer(request: dict[str, Any]) -> Any:
        text = json.dumps(request["messages"])
        if "count to three" in text and "start it" not in text:
            return "one two three"
        return "done" if '"tool"' in text else call("start_work")

    with plugin_host(register, model=[answer] * 6) as host:
        lifecycle = contexts[0].subagent_lifecycle
        with pytest.raises(SubagentLifecycleError, match=r"No active Hermes parent session is available\."):
            lifecycle.launch({"goal": "x"})
        host.ask("start it")
        (handle,) = handles
        assert lifecycle.wait(handle, timeout_seconds=60).state == "SUCCEEDED"
        result = lifecycle.result(handle)
        assert (result.ready, result.summary, result.error_message) == (True, "one two three", None)
        assert handle.parent_session_id == host.conversation.session_id
        copy = json.loads(json.dumps(handle.to_dict()))
        assert lifecycle.status(SubagentHandle.from_dict(copy)).state == "SUCCEEDED"
        assert lifecycle.status({**copy, "subagent_id": "subagent_other"}).state == "UNKNOWN"
        assert lifecycle.status({**copy, "depth": 0}).state == "UNKNOWN"
        assert lifecycle.reconnect({**copy, "capability": "x"}).connected is False
        assert lifecycle.cancel(handle, reason="late").accepted is False
        assert lifecycle.steer(handle, "more") is False


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"goal": ""},
        {"goal": "x" * 16_001},
        {"goal": "x", "role": "king"},
        {"goal": "x", "timeout_seconds": 3},
        {"goal": "x", "metadata": {"a": "b" * 9000}},
        {"goal": "x", "colour": "red"},
        {"goal": "x", "allowed_toolsets": "web"},
        3,
    ],
)
def test_b23_a_malformed_request_raises(request_: Any) -> None:
    contexts: list[Any] = []
    with plugin_host(contexts.append), pytest.raises(SubagentLifecycleError):
        contexts[0].subagent_lifecycle.launch(request_)


# -- D8, D9: approval transports -------------------------------------------------------------------------------


def asks(name: str, present: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return `register` of a plugin whose tool needs approval, and whose transport answers."""

    def register(ctx: Any) -> None:
        ctx.register_approval_transport(name, present)
        ctx.register_tool(
            "danger",
            schema={"name": "danger", "description": "x", "parameters": {}},
            handler=lambda args, **kwargs: "it ran",
        )
        ctx.register_hook("pre_tool_call", guard)

    def guard(tool_name: str, **kwargs: Any) -> Any:
        return {"action": "approve", "message": "really?", "rule_key": "r"} if tool_name == "danger" else None

    return register


def selecting(name: str, fallback: str = "deny") -> dict[str, Any]:
    return {
        "security": {"approval": {"transport": name, "transport_fallback": fallback}},
        "approvals": {"timeout": 1, "mode": "manual"},
    }


def test_d8_a_transport_that_says_once_lets_the_call_run() -> None:
    seen: list[TransportRequest] = []
    fired: list[dict[str, Any]] = []

    async def present(request: TransportRequest) -> Any:
        seen.append(request)
        return request.respond("once")

    def register(ctx: Any) -> None:
        asks("Pager", present)(ctx)
        ctx.register_hook("pre_approval_request", lambda **kwargs: fired.append(kwargs))
        ctx.register_hook("post_approval_response", lambda **kwargs: fired.append(kwargs))

    with plugin_host(register, config=selecting("pager")) as host:
        assert host.dispatch_tool("danger") == "it ran"
        (request,) = seen
        assert (request.description, request.allowed_choices) == ("really?", ("once", "session", "deny"))
        assert (len(request.request_id), len(request.digest), request.schema_version) == (32, 64, 1)
        assert host.approval_requests == []
        host.host.hooks.wait_idle(10)
        assert {(f["surface"], f["request_id"]) for f in fired} == {("transport:pager", request.request_id)}
        assert fired[-1]["choice"] == "once"


def foreign(request: Any) -> Any:
    other = TransportRequest.create(
        command="x",
        description="x",
        pattern_key="x",
        pattern_keys=(),
        session_key="",
        surface="cli",
        allow_session=False,
        allow_permanent=False,
    )
    return other.respond("once")


def raising(request: Any) -> Any:
    raise RuntimeError("no pager")


FAILING: list[tuple[str, Callable[[Any], Any]]] = [
    ("stale", foreign),
    ("timeout", lambda request: threading.Event().wait(5)),
    ("error", raising),
    ("invalid", lambda request: request.respond("always")),
    ("invalid", lambda request: "once"),
]


@pytest.mark.parametrize(("kind", "present"), FAILING)
def test_d8_a_transport_that_fails_denies_with_the_kind_of_failure(kind: str, present: Callable[[Any], Any]) -> None:
    with plugin_host(asks("pager", present), config=selecting("pager"), approvals=["once"]) as host:
        text = host.dispatch_tool("danger")
        assert f"Selected approval transport failed ({kind}); the user has NOT consented" in text
        assert host.approval_requests == []


def test_d8_a_selected_transport_that_nobody_registers_denies() -> None:
    with plugin_host(asks("pager", raising), config=selecting("other"), approvals=["once"]) as host:
        assert "(unavailable)" in host.dispatch_tool("danger")


def test_d8_with_the_fallback_the_user_is_asked_in_the_usual_way() -> None:
    with plugin_host(asks("pager", raising), config=selecting("pager", "builtin"), approvals=["once"]) as host:
        assert host.dispatch_tool("danger") == "it ran"
        assert len(host.approval_requests) == 1


@pytest.mark.parametrize("name", ["builtin", "", "Has Space", "-x", "a" * 65])
def test_d8_a_name_that_cannot_be_used_raises(name: str) -> None:
    contexts: list[Any] = []
    with plugin_host(contexts.append):
        with pytest.raises(ValueError):
            contexts[0].register_approval_transport(name, raising)
        contexts[0].register_approval_transport("pager", raising)
        with pytest.raises(ValueError):
            contexts[0].register_approval_transport("PAGER", raising)
        with pytest.raises(TypeError):
            contexts[0].register_approval_transport("other", None)


def test_d8_plugins_call_the_host_s_functions_themselves(upstream_names: None) -> None:
    contexts: list[Any] = []
    with plugin_host(contexts.append):
        from hermes_cli.approval_transport import (  # type: ignore[import-not-found]
            ApprovalRequest,
        )
        from hermes_cli.approval_transport import (
            invoke_approval_transport as invoke,
        )
        from hermes_cli.plugins import get_plugin_manager  # type: ignore[import-not-found]

        contexts[0].register_approval_transport("pager", lambda request: request.respond("deny"))
        found = get_plugin_manager().get_approval_transport("pager")
        assert (found.name, found.plugin_id) == ("pager", contexts[0].plugin_id)
        request = ApprovalRequest.create(
            command="rm x",
            description="remove",
            pattern_key="k",
            pattern_keys=["k"],
            session_key="s",
            surface="cli",
            allow_session=True,
            allow_permanent=False,
        )
        assert invoke(found.present, request, timeout_seconds=5).choice == "deny"
        assert invoke is invoke_approval_transport
        assert get_plugin_manager().get_approval_transport("none") is None


def test_d9_a_command_that_is_always_refused_is_refused_although_the_transport_says_yes() -> None:
    asked: list[Any] = []

    def present(request: Any) -> Any:
        asked.append(request)
        return request.respond("once")

    with plugin_host(asks("pager", present), config=selecting("pager")) as host:
        text = host.dispatch_tool("terminal", {"command": "rm -rf /"})
        assert asked == []
        assert "error" in json.loads(text)


# -- D11: handlers of platforms --------------------------------------------------------------------------------


class WithApplication(MemoryAdapter):
    """An adapter that keeps the object of its service's SDK."""

    native = object()

    @property
    def native_object(self) -> Any:
        return self.native if self.is_connected else None


def test_d11_a_platform_handler_gets_the_native_object_once_and_a_raising_one_stops_nothing() -> None:
    got: list[Any] = []

    def broken(native: Any) -> None:
        raise RuntimeError("no luck")

    def register(ctx: Any) -> None:
        ctx.register_platform_handler("memorychat", broken)
        ctx.register_platform_handler("MemoryChat", got.append)
        for wrong in (("", got.append), ("memorychat", None)):
            with pytest.raises(ValueError):
                ctx.register_platform_handler(*wrong)

    with chat_host(register, platform=memory_platform(WithApplication), model=["hello"]) as chat:
        assert chat.ask("hi") == "hello"
        assert got == [WithApplication.native]
        chat.host._run(chat.gateway.reload())
        assert got == [WithApplication.native]
        assert warnings(chat.host, "platform handler")


def test_d11_telegram_gives_handlers_the_application_of_its_sdk(tmp_path: Path) -> None:
    ext = pytest.importorskip("telegram.ext", reason="python-telegram-bot is not installed (requirements/dev.txt)")
    from peers.telegram import ANN, TOKEN, BotApi

    got: list[Any] = []
    seen: list[str] = []
    came = threading.Event()

    async def handle(update: Any, context: Any) -> None:
        seen.append(update.message.text)
        came.set()

    def add(application: Any) -> None:
        got.append(application)
        application.add_handler(ext.CommandHandler("ping", handle))

    with BotApi() as api:
        settings = {"enabled": True, "token": TOKEN, "base_url": api.url, "poll_timeout": 1}
        config = {"platforms": {"telegram": settings}}
        env = {"HERMES_GATEWAY_LOCK_DIR": str(tmp_path)}
        with chat_host(lambda ctx: ctx.register_telegram_handler(add), config=config, env=env) as chat:
            link = chat.gateway.session_store.connections["telegram"]
            chat.host._run(link.wait_connected(30))
            assert [isinstance(each, ext.Application) for each in got] == [True]
            api.say(100, ANN, "/ping")
            assert came.wait(30)
            assert seen == ["/ping"]


# -- D12: context references -----------------------------------------------------------------------------------


class Notes:
    prefix, description = "note", "Notes"

    async def expand(self, target: str) -> str | None:
        if target == "none":
            return None
        if target == "bad":
            raise RuntimeError("no luck")
        return f"<{target}>"


def test_d12_a_reference_is_expanded_and_at_most_sixteen_of_a_message() -> None:
    def register(ctx: Any) -> None:
        assert ctx.register_context_reference(Notes()).key == "note"
        taken, reserved = Notes(), Notes()
        reserved.prefix = "file"  # type: ignore[misc]
        assert ctx.register_context_reference(taken) is None
        assert ctx.register_context_reference(reserved) is None

    with plugin_host(register, model=["ok"] * 3) as host:
        assert warnings(host, "prefix 'file' belongs to the agent")
        host.ask("see @note:tea, @note:none, @note:bad and @other:x or me@note:mail.")
        assert host.model.messages[-1]["content"] == "see <tea>, @note:none, @note:bad and @other:x or me@note:mail."
        host.ask(" ".join(f"@note:n{number}" for number in range(17)))
        words = host.model.messages[-1]["content"].split()
        assert words[:16] == [f"<n{number}>" for number in range(16)]
        assert words[16] == "@note:n16"
        host.ask([{"type": "text", "text": "@note:'part'"}])
        assert "<'part'>" in json.dumps(host.model.messages[-1]["content"])


# -- the run of a scheduled job --------------------------------------------------------------------------------


def test_the_run_of_a_job_is_known_to_its_tools_and_not_outside() -> None:
    seen: list[Any] = []
    contexts: list[Any] = []

    def register(ctx: Any) -> None:
        contexts.append(ctx)

        def look(args: dict[str, Any], **kwargs: Any) -> str:
            seen.append(ctx.current_cron_execution())
            return "seen"

        ctx.register_tool("look", schema={"name": "look", "description": "x", "parameters": {}}, handler=look)

    with chat_host(register, model=[call("look"), "done"]) as chat:
        assert contexts[0].current_cron_execution() is None
        created = json.loads(
            chat.host.dispatch_tool(
                "cronjob",
                {"action": "create", "schedule": "in 2h", "prompt": "look", "name": "tea", "deliver": "local"},
            )
        )
        chat.host.dispatch_tool("cronjob", {"action": "run", "job_id": created["job"]["id"]})
        chat.wait(lambda: seen)
        (run,) = seen
        assert (run.job_id, run.job_name, run.source) == (created["job"]["id"], "tea", "manual")
        assert run.profile == contexts[0].profile_name
        assert run.started_at.endswith("+00:00")
