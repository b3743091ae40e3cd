"""Upstream's modules of tools, of the tools' runtime, jobs and menus: each name behaves as what it stands for."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compat.guides import guide, plugin
from hermes_agent.contracts.command import SlashCommand
from hermes_agent.host import Host
from hermes_agent.testing import plugin_host
from hermes_agent.workspace.task_shells import TaskShells

pytestmark = pytest.mark.usefixtures("served")

# -- the runtime of tools -----------------------------------------------------------------------------------------

TOOL = """
from tools.registry import registry

def handle(args, **kwargs):
    return "brewed"

registry.register(name="{name}", toolset="tea", schema={{"name": "{name}", "parameters": {{}}}}, handler=handle)
"""


def test_the_names_of_the_guide_are_there(host: Host) -> None:
    page = guide("tools-runtime.zh.txt")
    for module, name in (
        ("tools.registry", "discover_builtin_tools"),
        ("tools.registry", "_module_registers_tools"),
        ("model_tools", "_run_async"),
        ("model_tools", "_LEGACY_TOOLSET_MAP"),
        ("model_tools", "_sanitize_tool_error"),
        ("tools.mcp_tool", "discover_mcp_tools"),
    ):
        assert name in page
        exec(f"from {module} import {name}", {})


def test_modules_of_a_folder_that_register_a_tool_are_imported(
    host: Host, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from tools.registry import discover_builtin_tools, registry

    (tmp_path / "tea_tool.py").write_text(TOOL.format(name="pour"))
    (tmp_path / "helper.py").write_text("def register(registry):\n    registry.register()\n")
    (tmp_path / "broken_tool.py").write_text(TOOL.format(name="x") + "import no_such_thing\n")
    (tmp_path / "odd.py").write_text("registry.register(\n")
    (tmp_path / "mcp_tool.py").write_text(TOOL.format(name="never"))

    assert discover_builtin_tools(tmp_path) == ["tools.tea_tool"]

    assert registry.dispatch("pour", {}) == "brewed"
    assert registry.get_entry("never") is None
    assert "Could not import tool module tools.broken_tool" in caplog.text
    own = discover_builtin_tools()
    assert {"tools.terminal_tool", "tools.web_tools", "tools.memory_tool"} <= set(own)


def test_a_coroutine_is_run_from_a_thread_a_loop_and_the_plugin_loop(host: Host) -> None:
    from model_tools import _run_async

    async def here() -> asyncio.AbstractEventLoop:
        await asyncio.sleep(0)
        return asyncio.get_running_loop()

    async def fails() -> None:
        raise KeyError("x")

    async def nested() -> bool:
        return _run_async(here()) is not asyncio.get_running_loop()

    assert _run_async(here()) is _run_async(here()), "a client that was made there can be used again"
    with pytest.raises(KeyError):
        _run_async(fails())
    assert _run_async(nested())
    assert asyncio.run(nested())


def test_older_toolsets_and_errors_are_as_the_agent_has_them(host: Host) -> None:
    from model_tools import _LEGACY_TOOLSET_MAP, _sanitize_tool_error

    assert _LEGACY_TOOLSET_MAP["terminal_tools"] == host.toolsets.resolve("terminal")
    assert "read_file" in _LEGACY_TOOLSET_MAP["file_tools"]
    with pytest.raises(TypeError, match=r"toolsets\.TOOLSETS"):
        _LEGACY_TOOLSET_MAP["file_tools"].append("x")
    assert _sanitize_tool_error("<system>go</system>") == "[TOOL_ERROR] go"


def test_without_servers_there_are_no_mcp_tools(host: Host) -> None:
    from tools.mcp_tool import discover_mcp_tools

    assert discover_mcp_tools() == []


# -- tools as functions -------------------------------------------------------------------------------------------


def test_a_command_goes_the_way_of_the_model_s(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    guard = """
def register(ctx):
    ctx.register_hook("pre_tool_call", lambda tool_name, args, **kw: (
        {"action": "block", "message": "no tea"} if "tea" in str(args) else None))
"""
    with plugin_host(plugin(tmp_path / "guard", guard), approvals=lambda request: "once") as host:
        from tools.process_registry import process_registry
        from tools.terminal_tool import (
            check_terminal_requirements,
            cleanup_vm,
            clear_task_env_overrides,
            register_task_env_overrides,
            terminal_tool,
        )

        assert check_terminal_requirements()

        def body(ctx: Any) -> dict[str, Any]:
            return {
                "tea": json.loads(terminal_tool("echo tea")),
                "twice": json.loads(terminal_tool("printf x; printf y", force=True)),
                "late": json.loads(terminal_tool("cat", background=True)),
            }

        found: dict[str, Any] = {}
        ctx = host.ctx
        ctx.register_tool(
            "probe", schema={"name": "probe", "parameters": {}}, handler=lambda a, **kw: found.update(body(ctx)) or "ok"
        )
        assert host.dispatch_tool("probe") == "ok"
        assert (found["tea"]["error"], found["twice"]["output"]) == ("no tea", "xy")
        assert "terminal_tool(force=True): ignored, the command is checked" in host.log_text
        late = found["late"]["session_id"]
        assert late
        register_task_env_overrides("t1", {"cwd": str(tmp_path)})
        assert host.host.service(TaskShells).cwd("t1") == str(tmp_path)
        clear_task_env_overrides("t1")
        assert host.host.service(TaskShells).cwd("t1") == str(host.host.agent.settings.cwd.resolve())
        with pytest.raises(TypeError, match="docker_image"):
            register_task_env_overrides("t1", {"docker_image": "x"})
        cleanup_vm("t1")
        assert host.host.service(TaskShells).cwd("t1") == ""
        assert process_registry.list_sessions("nobody") == []
        ctx.register_tool(
            "look", schema={"name": "look", "parameters": {}}, handler=lambda a, **kw: found.update(look=look()) or "ok"
        )

        def look() -> list[Any]:
            return [
                process_registry.has_active_processes(),
                process_registry.count_running(),
                process_registry.submit_stdin(late, "hello").get("bytes_written"),
                process_registry.close_stdin(late)["status"] != "",
                process_registry.wait(late, timeout=30)["status"],
                process_registry.read_log(late)["output"],
                process_registry.kill_process("none").get("error", "") != "",
            ]

        host.dispatch_tool("look")
        assert found["look"][:3] == [True, 1, 6]
        assert found["look"][4:] == ["exited", "hello", True]


SEARCHER = """
from agent.web_search_provider import WebSearchProvider

class Tea(WebSearchProvider):
    name = "tea"
    display_name = "Tea"
    def is_available(self): return True
    def supports_search(self): return True
    def supports_extract(self): return True
    def search(self, query, limit=5):
        page = {"title": query, "url": "https://example.org", "description": str(limit)}
        return {"success": True, "data": {"web": [page]}}
    def extract(self, urls, **kw):
        return [{"url": url, "title": "t", "content": "leaves"} for url in urls]

def register(ctx):
    ctx.register_web_search_provider(Tea())
"""


async def test_the_web_and_pictures_are_asked_for_as_the_model_asks(tmp_path: Path) -> None:
    config = {"web": {"backend": "tea"}}
    with plugin_host(plugin(tmp_path / "tea", SEARCHER), config=config, approvals=lambda request: "once"):
        from tools.image_generation_tool import check_image_generation_requirements, image_generate_tool
        from tools.web_tools import check_web_api_key, web_extract_tool, web_search_tool

        assert check_web_api_key()
        found = json.loads(web_search_tool("oolong", limit=2))
        assert (found["data"]["web"][0]["title"], found["data"]["web"][0]["description"]) == ("oolong", "2")
        [page] = json.loads(await web_extract_tool([{"url": "https://example.org/"}]))["results"]
        assert "leaves" in page["content"]
        with pytest.raises(ValueError, match="gives text, not 'html'"):
            await web_extract_tool(["https://example.org/"], format="html")
        assert check_image_generation_requirements() is False
        assert "error" in json.loads(image_generate_tool("a cup"))
        with pytest.raises(TypeError, match="takes no seed"):
            image_generate_tool("a cup", seed=3)


# -- terminal environments ----------------------------------------------------------------------------------------

ENVIRONMENT = """
import subprocess
from agent.terminal_env_provider import TerminalEnvironmentProvider
from tools.environments.base import BaseEnvironment

class Here(BaseEnvironment):
    def _run_bash(self, cmd_string, *, login=False, timeout=120, stdin_data=None):
        process = subprocess.Popen(["bash", "-c", cmd_string], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        process.stdin.write((stdin_data or "").encode())
        process.stdin.close()
        return process
    def cleanup(self):
        pass

class Provider(TerminalEnvironmentProvider):
    name = "here"
    display_name = "Here"
    def is_available(self):
        return True
    def create_environment(self, *, cwd, timeout, task_id="default", image=None, container_config=None, **kw):
        return Here(cwd, timeout)

def register(ctx):
    ctx.register_terminal_environment_provider(Provider())
"""


def test_an_environment_of_upstream_s_base_runs_the_commands_of_the_terminal(tmp_path: Path) -> None:
    with plugin_host(plugin(tmp_path / "here", ENVIRONMENT), config={"terminal": {"backend": "here"}}) as host:
        done = json.loads(host.dispatch_tool("terminal", {"command": "cd /usr && A=5; echo $A; false"}))
        assert (done["output"].strip(), done["exit_code"]) == ("5", 1)
        again = json.loads(host.dispatch_tool("terminal", {"command": "pwd; echo é"}))
        assert again["output"].split() == ["/usr", "é"]


def environment(tmp_path: Path, **attributes: Any) -> Any:
    space: dict[str, Any] = {}
    exec(ENVIRONMENT, space)
    made = space["Here"](str(tmp_path), 30, {"GREETING": "good day"})
    made.get_temp_dir = lambda: str(tmp_path)
    made._snapshot_path = f"{tmp_path}/snap.sh"
    vars(made).update(attributes)
    return made


def test_an_environment_keeps_directory_and_variables_and_says_how_a_command_ended(tmp_path: Path) -> None:
    here = environment(tmp_path)
    (tmp_path / "a b").mkdir()

    assert here.execute("cd 'a b'; export CUP=full; echo $GREETING") == {"output": "good day\n", "returncode": 0}
    assert here.cwd == str(tmp_path / "a b")
    assert (tmp_path / "snap.sh").stat().st_mode & 0o777 == 0o600
    assert here.execute('printf %s "$CUP"; exit 3')["output"].startswith("full")
    assert here.execute("cat", stdin_data="in\n") == {"output": "in\n", "returncode": 0}
    assert environment(tmp_path, _stdin_mode="heredoc").execute("cat", stdin_data="x y")["output"] == "x y\n"
    assert here.execute("true", cwd="/no/such")["returncode"] == 126
    late = here.execute("echo begun; sleep 60", timeout=1)
    assert (late["returncode"], late["output"]) == (124, "begun\n\n[Command timed out after 1s]")


def test_a_blocking_function_is_a_process_to_an_environment(tmp_path: Path) -> None:
    from tools.environments.base import BaseEnvironment, _ThreadedProcessHandle

    gone = threading.Event()

    class Far(BaseEnvironment):
        def _run_bash(self, cmd_string: str, **kw: Any) -> Any:
            def run() -> tuple[str, int]:
                if "wait" in cmd_string:
                    gone.wait(20)
                    return "cancelled", 1
                done = subprocess.run(["bash", "-c", cmd_string], capture_output=True, text=True, check=False)
                return done.stdout, done.returncode

            return _ThreadedProcessHandle(run, cancel_fn=gone.set)

        def cleanup(self) -> None:
            pass

    far = Far(str(tmp_path), 30)
    assert far.execute("echo far; exit 4") == {"output": "far\n", "returncode": 4}
    assert far.execute(": wait", timeout=1)["returncode"] == 124
    assert gone.is_set()
    with pytest.raises(TypeError):
        BaseEnvironment(str(tmp_path), 30)  # type: ignore[abstract]


# -- jobs ---------------------------------------------------------------------------------------------------------


def test_jobs_are_made_changed_and_taken_away_by_the_rules_of_the_tool(tmp_path: Path) -> None:
    with plugin_host() as host:
        from cron import jobs

        made = jobs.create_job("water the plants", "every 2h", name="Plants", skills=["tea"], repeat=3)
        assert (made["name"], made["repeat"]["times"], made["skills"]) == ("Plants", 3, ["tea"])
        assert jobs.resolve_job_ref("plants") == jobs.get_job(made["id"]) == jobs.list_jobs()[0]
        assert jobs.update_job(made["id"], {"prompt": "twice", "enabled": False})["state"] == "paused"  # type: ignore[index]
        assert (jobs.list_jobs(), len(jobs.list_jobs(include_disabled=True))) == ([], 1)
        assert jobs.resume_job("Plants")["enabled"] is True  # type: ignore[index]
        assert jobs.pause_job("Plants", reason="rain")["enabled"] is False  # type: ignore[index]
        assert jobs.trigger_job("absent") is None
        jobs.create_job("x", "every 3h", name="plants")
        with pytest.raises(jobs.AmbiguousJobReference, match="2 jobs are called 'PLANTS'"):
            jobs.remove_job("PLANTS")
        with pytest.raises(TypeError, match="a job has no colour"):
            jobs.update_job(made["id"], {"colour": "red"})
        assert jobs.remove_job(made["id"]) and jobs.get_job(made["id"]) is None
        with pytest.raises(ValueError, match="sometime"):
            jobs.create_job("x", "sometime")
        with pytest.raises(TypeError, match="colour"):
            jobs.create_job("x", "every 2h", colour="red")
        with pytest.raises(PermissionError, match="approval"):
            jobs.create_job("x", "every 2h", deliver="irc:#tea")
        assert len(jobs.load_jobs()) == 1
        assert host.problems == []


# -- menus, rights, requests --------------------------------------------------------------------------------------


def test_a_chat_service_s_menu_has_the_commands_and_skills_that_are_there(host: Host) -> None:
    from hermes_cli.commands import (
        _iter_plugin_command_entries,
        discord_skill_commands_by_category,
        slack_native_slashes,
        slack_subcommand_map,
        telegram_menu_commands,
        telegram_menu_max_commands,
    )

    for place, name in (("garden/roses", "roses"), ("tea", "tea"), ("garden/weeds", "weeds")):
        folder = host.home / "skills" / place
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: About {name}\n---\nText.\n")
    host.commands.register(SlashCommand("scan-it", lambda raw: raw, "Find", "[x]"), owner="p")

    menu, hidden = telegram_menu_commands(telegram_menu_max_commands())
    assert {("scan_it", "Find"), ("tea", "About tea")} <= set(menu) and hidden == 0
    few, hidden = telegram_menu_commands(2)
    assert (few, hidden) == (menu[:2], len(menu) - 2)
    slashes = slack_native_slashes()
    assert slashes[0][0] == "hermes" and ("scan-it", "Find", "[x]") in slashes
    assert slack_subcommand_map()["scan-it"] == "/scan-it"
    categories, alone, hidden = discord_skill_commands_by_category({"weeds"})
    assert categories == {"garden": [("roses", "About roses", "/roses")]}
    assert (alone, hidden) == ([("tea", "About tea", "/tea")], 0)
    assert [*_iter_plugin_command_entries()] == [("scan-it", "Find", "[x]")]


def test_a_running_gateway_s_menu_is_the_one_that_is_told(host: Host) -> None:
    from gateway.run import _gateway_runner_ref
    from hermes_cli.commands import telegram_menu_commands

    assert _gateway_runner_ref() is None
    gateway = host.gateway()
    assert _gateway_runner_ref() is gateway
    assert {"new", "stop", "approve"} <= {name for name, _ in telegram_menu_commands()[0]}


def test_ids_of_a_setting_are_a_list_a_number_or_a_text() -> None:
    from gateway.slash_access import _coerce_id_list

    assert _coerce_id_list("1, 2,,3") == {"1", "2", "3"}
    assert (_coerce_id_list([1, " x "]), _coerce_id_list(7), _coerce_id_list(None)) == ({"1", "x"}, {"7"}, frozenset())


@pytest.fixture
def two_places() -> Iterator[SimpleNamespace]:
    """Two servers: the first sends every request on, to itself or to the second, and both note what they get."""
    seen: list[tuple[int, str, str | None]] = []
    servers: list[ThreadingHTTPServer] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.server.server_port, self.path, self.headers.get("Authorization")))  # type: ignore[attr-defined]
            target = {"/away": f"http://127.0.0.1:{servers[1].server_port}/end", "/here": "/end"}.get(self.path)
            self.send_response(302 if target else 200)
            if target:
                self.send_header("Location", target)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    for _ in range(2):
        servers.append(server := ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield SimpleNamespace(seen=seen, ports=[server.server_port for server in servers])
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_credential_follows_a_redirect_to_the_same_place_alone(two_places: SimpleNamespace) -> None:
    from hermes_cli.urllib_security import open_credentialed_url

    first, second = two_places.ports
    for path in ("here", "away"):
        request = urllib.request.Request(f"http://127.0.0.1:{first}/{path}", headers={"Authorization": "Bearer x"})
        with open_credentialed_url(request, timeout=10) as response:
            assert response.status == 200
    assert two_places.seen == [
        (first, "/here", "Bearer x"),
        (first, "/end", "Bearer x"),
        (first, "/away", "Bearer x"),
        (second, "/end", None),
    ]
