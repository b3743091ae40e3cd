"""Acceptance list of the plugin contract of 0.23, part D: memory providers. One test a sentence, with its number."""

from __future__ import annotations

import contextvars
import sys
from pathlib import Path
from typing import Any

import pytest

from compat.guides import plugin
from hermes_agent.testing import call, plugin_host
from hermes_agent.testing.chat import chat_host

PROVIDER = """
from agent.memory_provider import MemoryProvider
class Memory(MemoryProvider):
    name = "remembers"
    def is_available(self): return True
    def initialize(self, session_id, **kwargs): self.facts = kwargs
    def prefetch(self, query, *, session_id=""): return "FROM {}"
"""
FORMS = {
    "instance": ("memory = Memory()\n", ":memory"),
    "subclass": ("", ":Memory"),
    "module": ("def register(ctx): ctx.register_memory_provider(Memory())\n", ""),
    "factory": ("def make(): return Memory()\n", ":make"),
    "function": ("def start(ctx): ctx.register_memory_provider(Memory())\n", ":start"),
    "namespace": ("class Space:\n    Inner = Memory\nspace = Space\n", ":space"),
}


def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, attribute: str = "") -> None:
    (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    metadata = tmp_path / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text(
        f"[hermes_agent.memory_providers]\nremembers = {name}{attribute}\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


def recalled(host: Any) -> str:
    """What the memory added to the last model request."""
    host.ask("please tell me something")
    return str(host.model.requests[-1]["messages"])


CONFIG: dict[str, Any] = {"memory": {"provider": "remembers"}}


@pytest.mark.parametrize("form", FORMS)
def test_d1_a_package_with_the_memory_entry_point_alone_is_selectable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    more, attribute = FORMS[form]
    package(tmp_path, monkeypatch, f"packaged_{form}", PROVIDER.format("PACKAGE") + more, attribute)
    with plugin_host(config=CONFIG, model=["hello"]) as host:
        assert "FROM PACKAGE" in recalled(host)
    sys.modules.pop(f"packaged_{form}", None)


def test_d2_bundled_comes_before_user_project_and_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register = "def register(ctx): ctx.register_memory_provider(Memory())\n"
    package(tmp_path, monkeypatch, "packaged_rival", PROVIDER.format("PACKAGE") + register)
    user = plugin(tmp_path / "remembers", PROVIDER.format("USER") + register)
    env = {"HERMES_ENABLE_PROJECT_PLUGINS": "1"}
    with plugin_host(user, config=CONFIG, model=["hello"]) as host:
        assert "FROM USER" in recalled(host)
        (host.home / "plugins" / "remembers").unlink()
    project = tmp_path / "project"
    plugin(project / ".hermes" / "plugins" / "remembers", PROVIDER.format("PROJECT") + register)
    monkeypatch.chdir(project)
    with plugin_host(config=CONFIG, env=env, model=["hello"]) as host:
        monkeypatch.chdir(project)
        host.host.plugins.unload()
        host.host.plugins.discover_and_load()
        assert "FROM PROJECT" in recalled(host)
    with plugin_host(user, config=CONFIG, env=env, model=["hello"]) as host:
        monkeypatch.chdir(project)
        host.host.plugins.unload()
        host.host.plugins.discover_and_load()
        assert "FROM USER" in recalled(host)
    rival = plugin(tmp_path / "notebook", PROVIDER.format("USER").replace("remembers", "notebook") + register)
    with plugin_host(rival, config={"memory": {"provider": "notebook"}}, strict=False) as host:
        chosen = [r.manifest.source for r in host.host.plugins.records if r.enabled and r.manifest.kind == "exclusive"]
        assert chosen == ["bundled"]
    sys.modules.pop("packaged_rival", None)


SCHEMA = "{'name': 'mine', 'description': 'x', 'parameters': {'type': 'object', 'properties': {}}}"


def test_d3_a_provider_registers_tools_and_commands_beside_and_has_no_model(tmp_path: Path) -> None:
    register = f"""
seen = {{}}
def register(ctx):
    ctx.register_memory_provider(Memory())
    ctx.register_tool("mine", None, {SCHEMA}, lambda args, **kw: "done")
    ctx.register_command("mine", lambda args: "ran")
    ctx.register_tool("bad", None, [], lambda args: "")
    seen["names"] = [n for n in ("llm", "get_config", "manifest", "register_hook") if hasattr(ctx, n)]
"""
    folder = plugin(tmp_path / "remembers", PROVIDER.format("USER") + register)
    with plugin_host(folder, config=CONFIG, model=["hello"]) as host:
        assert host.dispatch_tool("mine") == "done"
        assert "mine" in host.commands
        assert host.module.seen["names"] == ["register_hook"]
        assert [line.text for line in host.log if "register_tool() raised ValueError" in line.text]
        assert "FROM USER" in recalled(host)


def test_a_memory_that_registers_under_the_name_of_upstream_s_loader_alone_is_loaded(tmp_path: Path) -> None:
    inner = PROVIDER.format("USER") + "def register(ctx): ctx.register_memory_provider(Memory())\n"
    code = 'if __name__.startswith("_hermes_user_memory"):\n    from .inner import register\n'
    folder = plugin(tmp_path / "remembers", code + "# a MemoryProvider\n")
    (folder / "inner.py").write_text(inner)
    with plugin_host(folder, config=CONFIG, model=["hello"]) as host:
        assert "FROM USER" in recalled(host)
    with plugin_host(
        plugin(tmp_path / "none" / "remembers", "# a MemoryProvider\n"), config=CONFIG, strict=False
    ) as host:
        assert host.host.plugins.find("remembers").error == "no register() function"


PROBES = """
def register(ctx):
    if hasattr(ctx, "register_memory_provider"):
        ctx.register_memory_provider(Memory())
    if hasattr(ctx, "register_command"):
        ctx.register_command("mine", lambda args: "ran")
"""


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("register", [PROBES, "def register(ctx): ctx.register_memory_provider(Memory())\n"])
def test_a_folder_that_calls_itself_standalone_is_the_memory_that_the_config_names(
    tmp_path: Path, register: str, enabled: bool
) -> None:
    manifest = "name: remembers\nkind: standalone\n"
    folder = plugin(tmp_path / "remembers", PROVIDER.format("USER") + register, manifest)
    config = CONFIG | {"plugins": {"enabled": ["remembers"] if enabled else []}}
    with plugin_host(folder, config=config, model=["hello"]) as host:
        assert "FROM USER" in recalled(host)
        assert ("mine" in host.commands) is (register == PROBES)
    with plugin_host(folder, config={"plugins": config["plugins"]}, model=["hello"], strict=False) as host:
        assert "FROM USER" not in recalled(host)


@pytest.mark.parametrize(
    "register",
    [
        "def register(ctx):\n    ctx.register_memory_provider(Memory())\n    raise RuntimeError('late')\n",
        "def register(ctx):\n    raise RuntimeError('early')\n",
    ],
)
def test_d4_a_provider_is_kept_when_register_raises(tmp_path: Path, register: str) -> None:
    with plugin_host(
        plugin(tmp_path / "remembers", PROVIDER.format("USER") + register), config=CONFIG, model=["hello"]
    ) as host:
        assert "FROM USER" in recalled(host)
        assert [line.text for line in host.log if "its provider is used all the same" in line.text]


def test_a_memory_whose_register_registers_none_is_its_first_class(tmp_path: Path) -> None:
    register = "def register(ctx): ctx.register_command('mine', lambda args: 'ran')\n"
    folder = plugin(tmp_path / "remembers", PROVIDER.format("USER") + register)
    with plugin_host(folder, config=CONFIG, model=["hello"]) as host:
        assert "FROM USER" in recalled(host)
        assert "mine" in host.commands


def test_d5_the_helpers_of_memory_plugins_are_importable_and_behave(tmp_path: Path) -> None:
    code = """
from agent.memory_provider import RecallStatus, ctx_bound, is_trivial_prompt, spawn_context_thread
from agent.memory_provider import CORE_MEMORY_PROVIDER_SENTINELS, INDICATOR_GLYPH, is_core_memory_provider
def register(ctx): pass
"""
    with plugin_host(plugin(tmp_path / "p", code)) as host:
        module = host.module
        trivial = ["thanks!", "", "  ", "/help me", "YES", "thank you...", "go ahead!!", "k", "Ok 👍", "do it"]
        assert [module.is_trivial_prompt(text) for text in trivial] == [True] * len(trivial)
        meant = ["thanks, now sort the list", "yes please", "knife", "okay then", "???", "next one"]
        assert [module.is_trivial_prompt(text) for text in meant] == [False] * len(meant)
        status = module.RecallStatus("Mine", 3)
        assert (status.provider_label, status.count, status.glyph) == ("Mine", 3, module.INDICATOR_GLYPH)
        with pytest.raises(AttributeError):
            status.count = 4
        names = [module.is_core_memory_provider(name) for name in ("", "none", "Built-In", "mine")]
        assert names == [True, True, True, False]
        variable = contextvars.ContextVar("variable", default=0)
        seen: list[int] = []
        variable.set(7)
        thread = module.spawn_context_thread(lambda n: seen.append(variable.get() + n), name="mine", args=(1,))
        bound = module.ctx_bound(variable.get)
        variable.set(9)
        assert not thread.is_alive()
        thread.start()
        thread.join(30)
        assert (seen, bound(), thread.daemon, thread.name) == ([8], 7, True, "mine")


def test_d6_a_provider_is_sent_only_what_its_sync_turn_takes(tmp_path: Path) -> None:
    narrow = (
        PROVIDER.format("USER")
        + "    def sync_turn(self, user, assistant): self.turn = (user, assistant); self.synced.set()\n"
        + "    from threading import Event; synced = Event()\n"
        + "    def on_turn_start(self, number, message): self.started = number\n"
        + "def register(ctx): ctx.register_memory_provider(Memory())\n"
    )
    with plugin_host(plugin(tmp_path / "remembers", narrow), config=CONFIG, model=["hello"]) as host:
        recalled(host)
        provider = host.providers["memory"]["remembers"]
        assert provider.synced.wait(30)
        assert provider.started == 1
        assert provider.turn == ("please tell me something", "hello")
        assert not [line.text for line in host.log if "failed" in line.text and "memory provider" in line.text]


def test_d7_a_plugin_that_asks_for_the_memory_method_has_its_tools_on_the_general_path(tmp_path: Path) -> None:
    code = (
        PROVIDER.format("USER")
        + f"""
def register(ctx):
    if hasattr(ctx, "register_memory_provider"):
        ctx.register_memory_provider(Memory())
        return
    ctx.register_tool("mine", None, {SCHEMA}, lambda args, **kw: "done")
"""
    )
    with plugin_host(plugin(tmp_path / "p", code, "name: p\nkind: standalone\n")) as host:
        assert host.dispatch_tool("mine") == "done"
    asks_nothing = code.replace('hasattr(ctx, "register_memory_provider")', "True")
    with plugin_host(plugin(tmp_path / "q", asks_nothing, "name: q\nkind: standalone\n")) as host:
        assert list(host.providers["memory"]) == ["remembers"]


RECORDER = """
from agent.memory_provider import MemoryProvider, RecallStatus
calls = []
class Memory(MemoryProvider):
    name = "remembers"
    ready = True
    separates_people = True
    def is_available(self): return self.ready
    def unavailable_reason(self): return "the kettle is cold"
    def initialize(self, session_id, **kwargs): pass
    def on_turn_start(self, turn_number, message, **kwargs): calls.append(("start", kwargs))
    def prefetch(self, query, *, session_id=""): return "FROM KETTLE"
    def recall_status(self): return RecallStatus("Kettle", 3, glyph="K")
    def sync_turn(self, user, assistant, *, session_id="", turn_author=None): calls.append(("sync", turn_author))
    def on_memory_write(self, action, target, content, metadata=None): calls.append((action, metadata))
def register(ctx): ctx.register_memory_provider(Memory())
"""


def test_a_provider_is_told_who_wrote_and_what_a_note_was_and_says_what_it_recalled(tmp_path: Path) -> None:
    folder = plugin(tmp_path / "remembers", RECORDER)
    change = {"action": "replace", "target": "memory", "old_text": "tea", "content": "Ann drinks coffee."}
    add = {"action": "add", "target": "memory", "content": "Ann drinks tea."}
    script = [call("memory", **add), call("memory", **change), "noted"]
    with chat_host(folder, config=CONFIG, model=script) as chat:
        assert chat.ask("I drink coffee now.", user="ann") == "noted"
        calls = sys.modules["hermes_plugins.remembers"].calls if "hermes_plugins.remembers" in sys.modules else None
        calls = chat.host.module.calls if calls is None else calls
        chat.wait(lambda: any(name == "sync" for name, _ in calls))
        found = dict(calls)
        assert (found["start"]["author_id"], found["start"]["author_is_bot"]) == ("ann", False)
        assert found["sync"] == {"id": "ann", "name": found["start"]["author_name"], "is_bot": False}
        assert found["replace"]["previous_content"] == "Ann drinks tea."
        assert any("K Kettle recalled for session" in line.text and "(3)" in line.text for line in chat.host.log)


def test_a_provider_that_is_not_available_says_why(tmp_path: Path) -> None:
    folder = plugin(tmp_path / "remembers", RECORDER.replace("ready = True", "ready = False"))
    with plugin_host(folder, config=CONFIG, model=["hello"]) as host:
        host.ask("hi")
        assert any("the kettle is cold" in line.text for line in host.log if line.level == "WARNING")
