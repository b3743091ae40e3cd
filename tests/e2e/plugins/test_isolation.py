"""Plugins in a process of their own: `plugins.isolation: host`, with real processes in the real sandbox."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from hermes_agent.contracts.context_engine import copy_engine
from hermes_agent.plugins.isolation.process_state import read_state, record_of
from hermes_agent.plugins.plugin_data import FOLDER, state_namespace
from hermes_agent.testing import PluginHost, plugin_host
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox

DATA = Path(__file__).parent / "isolated"
SECRET = "sk-many-0123456789abcdef"
PROBLEM = BubblewrapSandbox(PathRules("/nonexistent", str(Path.home())), path=os.environ.get("PATH")).problem
pytestmark = [
    pytest.mark.skipif(bool(PROBLEM), reason=f"no sandbox works here: {PROBLEM}"),
    pytest.mark.xdist_group("isolation"),
]
HOST = {"plugins": {"isolation": "host", "host": {"memory_mb": 256, "call_timeout_s": 6, "stall_s": 3}}}


def call(host: PluginHost, key: str, tool: str, **args: Any) -> str:
    """Call a tool as the plugin does."""
    return host.host.plugins.contexts[key].dispatch_tool(tool, args)


def ask(host: PluginHost, *what: Any) -> Any:
    """Have the plugin call a member of its context; return the answer, or the exception in a dict."""
    answer = json.loads(call(host, "many", "ask", x=list(what)))
    return answer.get("answer", answer)


@pytest.fixture(scope="module")
def faulty() -> Iterator[PluginHost]:
    with plugin_host(DATA / "faulty", config=HOST) as host:
        yield host


MANY_CONFIG = {
    **HOST,
    "plugins": {
        **HOST["plugins"],
        "entries": {"many": {"granted_capabilities": ["secret:OTHER_KEY"], "settings": {"url": "https://a.example"}}},
    },
    "context": {"engine": "many-engine"},
}
ENVIRON = {"MANY_KEY": SECRET, "OTHER_KEY": "other-0123456789", "THIRD_KEY": "third-0123456789"}


@pytest.fixture(scope="module")
def many() -> Iterator[PluginHost]:
    with plugin_host(DATA / "many", config=MANY_CONFIG, env=ENVIRON, model=["four"]) as host:
        yield host


# -- the four faults, and a fifth ----------------------------------------------------------------------------------


@pytest.mark.attack("isolated plugins")
@pytest.mark.parametrize(
    ("tool", "cause"),
    [
        ("leave", "exit status 3"),
        ("crash", "segmentation fault (SIGSEGV)"),
        ("hold", "it gave no sign of life for 3 s"),
        ("leak", "memory"),
        ("spin", "it gave no answer within 6 s"),
    ],
)
def test_a_fault_of_a_plugin_harms_its_own_process_alone(faulty: PluginHost, tool: str, cause: str) -> None:
    (record,) = [r for r in faulty.host.plugins.records if r.manifest.key == "faulty"]
    process = record.process
    assert process is not None
    before = process.state

    result = json.loads(call(faulty, "faulty", tool))

    assert "plugin `faulty`" in result["error"] or "MemoryError" in result["error"]
    assert cause in result["error"]
    until(lambda: process.state.restarts > before.restarts and process.state.status == "running", "a restart")
    assert process.state.pid != before.pid
    assert call(faulty, "faulty", "add", a=20, b=22) == "42"


def test_a_process_that_is_killed_is_started_again_without_a_call(faulty: PluginHost) -> None:
    (record,) = [r for r in faulty.host.plugins.records if r.manifest.key == "faulty"]
    assert record.process is not None
    before = record.process.state
    os.kill(before.pid, signal.SIGKILL)
    until(lambda: record.process is not None and record.process.state.restarts > before.restarts, "a restart")
    until(lambda: record.process is not None and record.process.state.status == "running", "a running process")
    kept = read_state(record_of(faulty.host.home, "faulty"))
    assert kept is not None and kept.pid == record.process.state.pid and kept.restarts > before.restarts
    assert kept.memory_bytes > 2**20


def test_the_commands_show_the_process(faulty: PluginHost) -> None:
    (record,) = [r for r in faulty.host.plugins.records if r.manifest.key == "faulty"]
    assert record.process is not None
    pid = record.process.state.pid
    home = str(faulty.host.home)
    for command in (["info", "faulty"], ["doctor"], ["list"], ["list", "--json"], ["info", "faulty", "--json"]):
        ran = subprocess.run(
            [sys.executable, "-m", "hermes_agent", "plugins", *command],
            env={**os.environ, "HERMES_HOME": home}, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        shown = ran.stdout
        if command == ["list", "--json"]:
            assert {row["key"]: row["isolation"] for row in json.loads(shown)}["faulty"] == "host"
        elif "--json" in command:
            assert json.loads(shown)["isolation"]["process"]["pid"] == pid
        else:
            assert "in a process of its own" in shown and (command == ["list"] or f"running, pid {pid}" in shown)
    assert f"own process: running, pid {pid}" in faulty.host.plugins.plugin_text("faulty")


@pytest.mark.attack("isolated plugins")
def test_a_plugin_that_floods_the_log_is_cut_short(tmp_path: Path) -> None:
    body = """
import logging
def shout(raw):
    for number in range(5000):
        logging.getLogger(__name__).warning("line %d", number)
    return "done"
def register(ctx):
    ctx.register_command("shout", shout)
"""
    with plugin_host(write(tmp_path, body), config=HOST) as host:
        command = host.host.commands.get("shout")
        assert command is not None and command.handler is not None and command.handler("") == "done"
        assert sum("line " in str(line) for line in host.log) <= 400
        assert any("more lines are left out" in str(line) for line in host.log)


# -- registrations -------------------------------------------------------------------------------------------------


def test_a_plugin_registers_the_same_in_both_modes(many: PluginHost) -> None:
    config = {**MANY_CONFIG, "plugins": {**MANY_CONFIG["plugins"], "isolation": "in_process"}}
    with plugin_host(DATA / "many", config=config, env=ENVIRON) as inside:
        (mine,) = [r for r in inside.host.plugins.records if r.manifest.key == "many"]
        (apart,) = [r for r in many.host.plugins.records if r.manifest.key == "many"]
        assert mine.process is None and apart.process is not None and apart.module is None
        assert apart.registers() == mine.registers() != {}
        for name in mine.tools_registered:
            here, there = inside.host.tools.get(name), many.host.tools.get(name)
            assert here is not None and there is not None
            assert (here.schema, here.toolset, here.is_async) == (there.schema, there.toolset, there.is_async)
        assert inside.host.extensions.prompt_sections.names() == many.host.extensions.prompt_sections.names()
        assert inside.host.extensions.context_references.names() == many.host.extensions.context_references.names()


def test_tools_hooks_and_middleware_work_over_the_socket(many: PluginHost) -> None:
    assert call(many, "many", "later", x=1) == "later 1"
    assert call(many, "many", "direct") == "direct"
    assert call(many, "many", "chain", x=2) == "later 2"
    blocked = json.loads(call(many, "many", "later", x="forbidden"))
    assert "not today" in blocked["error"]


def test_commands_and_skills_work(many: PluginHost) -> None:
    commands = many.host.commands
    folds, unfolds = commands.get("fold"), commands.get("unfold")
    assert folds is not None and folds.handler is not None and folds.handler("paper") == "many folds paper"
    assert unfolds is not None and unfolds.handler is not None and unfolds.handler("paper") == "unfolds paper"
    skill = many.host.plugin_skills.get("many:fold")
    assert skill is not None and "In three." in skill.path.read_text()


def test_providers_and_the_context_engine_are_objects_of_the_agent(many: PluginHost) -> None:
    providers = many.host.providers
    search, painter = providers["web_search"].get("many-search"), providers["image_gen"].get("many-image")
    assert search.display_name == "Many" and search.is_available() is True
    assert search.search("hermes", limit=1)["data"]["web"][0]["title"] == "hermes"
    with pytest.raises(ValueError, match=r"answers with the file /tmp/cat\.png, which it does not have"):
        painter.generate("cat")
    engine = copy_engine(providers["context_engine"].get("many-engine"))
    engine.threshold_tokens = 100
    assert engine.should_compress(101) and not engine.should_compress(99)
    assert engine.compress([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]) == [
        {"role": "user", "content": "b"}
    ]
    assert engine.compression_count == 1
    engine.update_from_response({"prompt_tokens": 7, "completion_tokens": 1})
    assert engine.last_prompt_tokens == 7


MEMORY = """
from agent.memory_provider import MemoryProvider

class Memory(MemoryProvider):
    name = "small-memory"
    def is_available(self): return True
    def initialize(self, session_id, **kwargs): self.session = session_id
    def get_tool_schemas(self): return []
    def prefetch(self, query, *, session_id=""): return f"{self.session} about {query}"

def register(ctx):
    ctx.register_memory_provider(Memory())
"""


def test_a_memory_of_a_directory_runs_in_its_own_process(tmp_path: Path) -> None:
    with plugin_host(write(tmp_path, MEMORY), config=HOST) as host:
        memory = host.host.providers["memory"].get("small-memory")
        memory.initialize("s1")
        assert memory.prefetch("letters", session_id="s1") == "s1 about letters"
        assert host.host.providers.choose("memory", host.host.config.values).provider is memory


async def test_an_async_reference_and_a_prompt_section_are_called(many: PluginHost) -> None:
    expanded, _ = await many.host.references.expand("see @ticket:7")
    assert expanded == "see ticket 7"
    assert "seen by cli" in many.host.plugin_sections({"platform": "cli"})


# -- what a plugin asks of the agent -------------------------------------------------------------------------------


def test_the_members_of_the_context_are_calls_of_the_agent(many: PluginHost) -> None:
    assert ask(many, "get_config", "url") == "'https://a.example'"
    assert ask(many, "set_config", "depth", 3) == "None"
    assert many.host.config.values["plugins"]["entries"]["many"]["settings"]["depth"] == 3
    assert ask(many, "has_plugin", "many") == "True"
    assert ask(many, "state.set", "seen", {"a": [1, 2]}) == "None"
    assert ask(many, "state.get", "seen") == "{'a': [1, 2]}"
    assert "ValueError: plugin state key" in ask(many, "state.get", "../x")["raised"]
    assert "PermissionError: Plugin 'many' may not call MCP server" in ask(many, "call_mcp", "s", "t")["raised"]
    assert ask(many, "current_cron_execution") == "None"
    assert "SubagentLifecycleError" in ask(many, "subagent_lifecycle.launch", {"goal": "x"})["raised"]


def test_the_model_answers_a_plugin_in_its_own_process(many: PluginHost) -> None:
    assert "text='four'" in ask(many, "llm.complete", [{"role": "user", "content": "2 + 2?"}])


def test_events_reach_a_plugin_in_its_own_process(many: PluginHost) -> None:
    assert ask(many, "emit", "done", {"n": 5}) == "1"
    until(lambda: ask(many, "state.get", "done") == "{'n': 5}", "the event")


@pytest.mark.attack("isolated plugins")
def test_a_tool_that_is_not_granted_is_refused(many: PluginHost) -> None:
    refused = ask(many, "dispatch_tool", "read_file", {"path": "/etc/hostname"})
    assert "may not call the tool `read_file`" in refused and "plugins.entries.many.granted_capabilities" in refused


# -- what a plugin sees --------------------------------------------------------------------------------------------


@pytest.mark.attack("isolated plugins", at="bubblewrap")
def test_the_process_sees_no_secret_but_those_granted_by_name(many: PluginHost, tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("private")
    home = many.host.home
    state = next(r.process for r in many.host.plugins.records if r.manifest.key == "many" and r.process).state
    assert SECRET not in Path(f"/proc/{state.pid}/environ").read_text()  # it is passed over the socket
    wanted = [str(tmp_path / "letter"), str(home / "config.yaml"), str(home / "state.db"), f"/proc/{os.getpid()}"]
    seen = json.loads(call(many, "many", "look", x=wanted))
    assert seen["files"] == dict.fromkeys(wanted, False)
    assert seen["sockets"] == []
    environment = seen["environment"]
    assert environment["HERMES_PLUGIN_HOST_PROCESS"] == "1"
    assert {"MANY_KEY", "OTHER_KEY"} < set(environment) and "THIRD_KEY" not in environment


PROBING = """
import json, os, urllib.request

def reach(args, **_):
    for name in ("no_proxy", "NO_PROXY"):
        os.environ.pop(name, None)
    try:
        return urllib.request.urlopen(args["url"], timeout=20).read().decode()
    except Exception as exc:
        return f"refused: {exc}"

def read(args, **_):
    try:
        with open(args["path"], "a" if args.get("write") else "r") as file:
            return "written" if args.get("write") and file.write("x") else file.read()
    except OSError as exc:
        return f"refused: {exc.strerror}"

def register(ctx):
    for name, handler in (("reach", reach), ("read", read)):
        ctx.register_tool(name, None, {"name": name, "parameters": {"type": "object", "properties": {}}}, handler)
"""


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"a page")

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def pages() -> Iterator[list[str]]:
    """The addresses of two servers."""
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), _Page) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield [f"127.0.0.1:{server.server_port}" for server in servers]
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.attack("isolated plugins", at="bubblewrap")
def test_only_granted_hosts_are_reached(tmp_path: Path, pages: list[str]) -> None:
    granted = {"entries": {"small": {"granted_capabilities": [f"network:{pages[0]}"]}}}
    config = {"plugins": {**HOST["plugins"], "host": {"call_timeout_s": 60}, **granted}}
    with plugin_host(write(tmp_path, PROBING), config=config) as host:
        assert call(host, "small", "reach", url=f"http://{pages[0]}/") == "a page"
        assert call(host, "small", "reach", url=f"http://{pages[1]}/").startswith("refused: ")


@pytest.mark.attack("isolated plugins", at="bubblewrap")
def test_only_granted_files_are_seen(tmp_path: Path) -> None:
    for name in ("shown", "changed", "hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "letter").write_text(name)
    grants = [f"files.read:{tmp_path}/shown", f"files.write:{tmp_path}/changed"]
    entry = {"granted_capabilities": [*grants, "files.read:~"]}
    with plugin_host(
        write(tmp_path, PROBING), config={"plugins": {**HOST["plugins"], "entries": {"small": entry}}}
    ) as host:

        def read(name: str, **how: bool) -> str:
            return call(host, "small", "read", path=f"{tmp_path}/{name}/letter", **how)

        assert (read("shown"), read("changed")) == ("shown", "changed")
        assert read("changed", write=True) == "written"
        assert read("shown", write=True) == "refused: Read-only file system"
        assert read("hidden") == "refused: No such file or directory"
        assert any("granted path is not shown" in str(line) for line in host.log)


@pytest.mark.attack("isolated plugins")
def test_changed_files_are_not_loaded_after_a_restart(tmp_path: Path) -> None:
    plugin = write(tmp_path, PROBING)
    with plugin_host(plugin, config=HOST) as host:
        (record,) = [r for r in host.host.plugins.records if r.manifest.key == "small"]
        assert record.process is not None
        (plugin / "__init__.py").write_text(PROBING + "\nopen('/planted', 'w')\n")
        os.kill(record.process.state.pid, signal.SIGKILL)
        until(lambda: record.process is not None and record.process.state.status == "ended", "the end of the process")
        assert "changed since it was granted" in call(host, "small", "read", path="/etc/hostname")


REFUSED = """
def register(ctx):
    for name in ("register_platform", "register_platform_handler", "register_telegram_handler",
                 "register_slack_action_handler", "register_dashboard_auth_provider", "register_approval_transport",
                 "register_cron_scheduler", "register_model_provider"):
        try:
            getattr(ctx, name)("x")
        except RuntimeError as exc:
            ctx.state.set(name, f"{type(exc).__name__}: {exc}")
    raise ValueError(*[ctx.state.get(name) for name in ("register_platform",)])
"""


def test_what_needs_the_process_of_the_agent_is_refused_by_name(tmp_path: Path) -> None:
    with plugin_host(write(tmp_path, REFUSED), config=HOST, strict=False) as host:
        (record,) = [r for r in host.host.plugins.records if r.manifest.key == "small"]
        assert "PluginHostUnsupported: register_platform() is not possible" in (record.error or "")
        assert (record.error or "").endswith("set plugins.isolation: in_process to load it")
        state = json.loads((host.host.home / FOLDER / state_namespace("small") / "state.json").read_text())
        assert len(state) == 8 and all(
            text.endswith("plugins.isolation: in_process to load it") for text in state.values()
        )


def test_a_terminal_command_is_skipped_log_lines_arrive_and_the_process_ends_with_the_host(tmp_path: Path) -> None:
    body = "import logging\ndef register(ctx):\n    ctx.register_cli_command('x', 'x', lambda parser: None)\n"
    body += "    logging.getLogger(__name__).warning('it is %s', 'here')\n"
    with plugin_host(write(tmp_path, body), config=HOST) as host:
        (record,) = [r for r in host.host.plugins.records if r.manifest.key == "small"]
        assert record.enabled and record.cli_commands_registered == []
        assert any("terminal command `hermes x` is skipped" in note for note in record.notes)
        assert any("it is here" in str(line) for line in host.log)
        assert record.process is not None
        pid = record.process.state.pid
        assert pid and record.process.state.memory_bytes > 2**20
    until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the process with the host")


BROKEN = {
    "gone": ("import os\nos._exit(4)\n", "its process ended while it loaded: exit status 4"),
    "raises": ("def register(ctx):\n    ctx.register_command('c', print)\n    raise KeyError('x')\n", "KeyError: 'x'"),
    "lacks": ("import nothing_of_that_name\n", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
    "sleeps": ("def register(ctx):\n    import time\n    time.sleep(60)\n", "load timed out after 8s"),
}


def test_a_plugin_that_does_not_load_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    plugins = [write(tmp_path, body, name) for name, (body, _) in BROKEN.items()]
    config = {"plugins": {**HOST["plugins"], "load_timeout_s": 8}}
    with plugin_host(*plugins, config=config, strict=False) as host:
        for record in host.host.plugins.records:
            if record.manifest.key in BROKEN:
                assert record.status == "failed" and BROKEN[record.manifest.key][1] in (record.error or "")
                assert record.process is None and host.host.commands.owned_by(record.manifest.key) == []


def test_an_unknown_value_is_a_warning_and_means_the_process_of_the_agent(tmp_path: Path) -> None:
    plugin = write(tmp_path, "def register(ctx): pass\n")
    with plugin_host(plugin, config={"plugins": {"isolation": "moon"}}) as host:
        (record,) = [r for r in host.host.plugins.records if r.manifest.key == "small"]
        assert record.enabled and record.process is None
        assert any("plugins.isolation: 'moon' is unknown" in str(line) for line in host.log)


def test_one_plugin_is_isolated_by_its_entry_and_a_launcher_takes_the_place_of_the_sandbox(tmp_path: Path) -> None:
    plugin = write(
        tmp_path, "def register(ctx):\n    ctx.register_command('who', lambda raw: __import__('os').environ['BY'])\n"
    )
    config = {"plugins": {"entries": {"small": {"isolation": "host"}}, "host": {"launcher": ["env", "BY=launcher"]}}}
    with plugin_host(plugin, config=config) as host:
        (record,) = [r for r in host.host.plugins.records if r.manifest.key == "small"]
        command = host.host.commands.get("who")
        assert record.process is not None and record.process.state.sandbox == "launcher"
        assert command is not None and command.handler is not None and command.handler("") == "launcher"


def write(folder: Path, body: str, name: str = "small") -> Path:
    """Write a plugin of one file."""
    plugin = folder / name
    plugin.mkdir()
    (plugin / "plugin.yaml").write_text(f"name: {name}\nversion: '1'\ndescription: small\n")
    (plugin / "__init__.py").write_text(body)
    return plugin
