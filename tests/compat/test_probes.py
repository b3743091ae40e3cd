"""What goes wrong with plugins in the field: nobody else is harmed, and the culprit is named with what to do."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat.guides import fences, guide
from hermes_agent.testing import call, plugin_host
from peers.running import free_port, running
from worlds import HERMES, environment, run

GOOD = """
def good_tool(args, **kwargs):
    return "good"

def register(ctx):
    ctx.register_tool("good_tool", "good", {"name": "good_tool", "description": "d"}, good_tool)
"""


def tool(name: str, *, toolset: str = "t", answer: str = '"from " + __name__', more: str = "") -> str:
    return f"""
def handler(args, **kwargs):
    return {answer}

def register(ctx):
    ctx.register_tool({name!r}, {toolset!r}, {{"name": {name!r}, "description": "d"}}, handler{more})
"""


def write(root: Path, folder: str, init: str | None = GOOD, manifest: str | None = None) -> Path:
    place = root / folder
    place.mkdir(parents=True)
    (place / "plugin.yaml").write_text(manifest if manifest is not None else f"name: {folder}\nversion: 1.0.0\n")
    if init is not None:
        (place / "__init__.py").write_text(textwrap.dedent(init))
    return place


CONVERSATION = """
import asyncio, sys
from hermes_agent.app.start import start_host
from hermes_agent.commands import parse_command, run_command
host = start_host()
print(*host.plugins.banner_lines(), *host.plugins.hints(), sep="\\n")
for line in sys.argv[1:]:
    name, arguments = parse_command(line)
    print(asyncio.run(run_command(host.commands.find(name, "terminal"), arguments, host.bridge)).text)
"""


class Home:
    """A fresh home, asked through the program."""

    def __init__(self, path: Path) -> None:
        self.path = path / "home"
        (self.path / "plugins").mkdir(parents=True)

    def plugin(self, folder: str, init: str | None = GOOD, manifest: str | None = None) -> Path:
        return write(self.path / "plugins", folder, init, manifest)

    def enable(self, *names: str, more: str = "") -> None:
        (self.path / "config.yaml").write_text(f"plugins:\n  enabled: [{', '.join(names)}]\n{more}")

    def start(self, *lines: str) -> str:
        """Start as every front door does; return the banner, the hints, and what `/plugins` and `lines` answer."""
        done = subprocess.run(
            [sys.executable, "-c", CONVERSATION, "/plugins", *lines],
            env=environment(self.path, PYTHONPATH=os.pathsep.join(p for p in sys.path if p)),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def listed(self) -> str:
        done = run(self.path, "plugins", "list")
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    @property
    def log(self) -> str:
        return (self.path / "logs" / "agent.log").read_text()

    def check(self, *arguments: str) -> tuple[int, str]:
        done = run(self.path, "plugins", "check", str(self.path / "plugins"), *arguments)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


class Daemon:
    """A running daemon."""

    def __init__(self, port: int, key: str) -> None:
        self.port, self.key = port, key

    def get(self, path: str) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", headers={"Authorization": f"Bearer {self.key}"}
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def plugins(self) -> dict[str, dict[str, Any]]:
        return {p["key"]: p for p in self.get("/v1/plugins")["plugins"]}


@contextlib.contextmanager
def daemon(home: Home) -> Iterator[Daemon]:
    port = free_port()
    environ = environment(home.path, API_SERVER_PORT=str(port))
    with running([HERMES, "gateway", "run"], host="127.0.0.1", port=port, path="/health", environ=environ):
        key = (home.path / "api_server.key").read_text().strip()
        yield Daemon(port, key)


def guarded(tmp_path: Path, guard: str, config: dict[str, Any] | None = None) -> tuple[str, str]:
    """Run a turn that calls `good_tool` past a guard; return the call's result and the log."""
    good = write(tmp_path, "good")
    bad = write(tmp_path, "warden", guard)
    with plugin_host(good, bad, model=[call("good_tool"), "done"], config=config) as host:
        answer = host.ask("go")
        assert answer.text == "done"
        (finished,) = answer.tool_calls
        return finished.result, host.log_text


# -- loading -------------------------------------------------------------------------------------------------


def test_register_that_raises_half_way_leaves_nothing_and_the_others_run(home: Home) -> None:
    place = home.plugin("half", tool("half_tool").replace("handler)", "handler)\n    raise KeyError('gone')"))
    home.plugin("good")
    home.enable("half", "good")

    seen = home.start()

    assert f"plugin `half` failed to load: KeyError: 'gone' ({place}/__init__.py:7)" in seen
    assert f"✗ half v1.0.0 [failed] — KeyError: 'gone' ({place}/__init__.py:7)" in seen
    assert "✓ good v1.0.0 (1 tools)" in seen
    assert "half_tool" not in run(home.path, "tools", "list").stdout
    assert "Failed to load plugin 'half': KeyError: 'gone'" in home.log


def test_a_typo_in_plugins_enabled_is_told_everywhere(home: Home) -> None:
    home.plugin("good")
    home.enable("goood")
    said = "unknown plugin `goood` (did you mean `good`?)"

    seen = home.start()

    assert seen.count(said) == 2  # as a hint at the start, and in `/plugins`
    assert said in home.listed()
    assert said in home.log
    checked = run(home.path, "config", "check")
    assert checked.returncode == 78
    assert f"plugins.enabled[0]: {said}" in checked.stdout + checked.stderr
    status, report = home.check("--config", str(home.path / "config.yaml"))
    assert (status, said in report) == (1, True)  # what the Nix build runs


def test_plugins_enabled_that_is_a_text_is_refused_with_file_and_line(home: Home) -> None:
    home.plugin("good")
    (home.path / "config.yaml").write_text("model: {}\nplugins:\n  enabled: good\n")

    stopped = run(home.path, "gateway", "run")

    assert stopped.returncode == 78
    assert f"{home.path}/config.yaml:3" in stopped.stderr
    assert "plugins.enabled" in stopped.stderr
    assert "expected a list" in stopped.stderr


def test_enabled_by_the_name_of_its_folder_is_told_its_own_name(home: Home) -> None:
    home.plugin("my-dir", manifest="name: other-name\n")
    home.enable("my-dir")
    said = "my-dir is the folder of plugin `other-name`; enable `other-name`"

    home.start()

    assert said in home.listed()
    assert said in home.log


def test_of_two_folders_with_one_name_the_first_by_path_loads_and_both_are_named(home: Home) -> None:
    first = home.plugin("a-first", tool("twin_tool"), "name: twin\n")
    second = home.plugin("b-second", tool("other_tool"), "name: twin\n")
    home.enable("twin")

    seen = home.start()

    assert "✓ twin (1 tools)" in seen
    assert "twin: twin_tool" in seen
    assert f"✗ twin [refused] — `twin` is already the user plugin {first}" in seen
    assert f"plugin `twin` ({second}) is not used" in seen
    assert f"the plugin at {second} is not used" in home.log


@pytest.mark.parametrize("toolset", ["same", "other"])
def test_of_two_plugins_with_one_tool_the_first_keeps_it(home: Home, toolset: str) -> None:
    home.plugin("a", tool("g", toolset="same"))
    home.plugin("b", tool("g", toolset=toolset))
    home.enable("a", "b")

    seen = home.start()

    assert "a: g" in seen
    assert "✓ b v1.0.0" in seen
    assert "without tool `g` belongs to plugin `a`" in seen
    assert "without tool `g` belongs to plugin `a`" in home.listed()
    explained = run(home.path, "tools", "explain", "g").stdout
    assert "registered by plugin `a`" in explained
    assert "plugin `b` also claims the name and goes without it" in explained


def test_a_plugin_that_shadows_the_terminal_is_refused_with_the_remedy(home: Home) -> None:
    home.plugin("shadow", tool("terminal", toolset="terminal"))
    home.enable("shadow")

    seen = home.start()

    assert "without tool `terminal` belongs to the agent" in seen
    assert "plugins.entries.shadow.allow_tool_override: true" in seen
    assert "plugins.entries.shadow.allow_tool_override: true" in home.listed()
    assert "registered by the agent" in run(home.path, "tools", "explain", "terminal").stdout


def test_sys_exit_in_register_fails_that_plugin_alone(home: Home) -> None:
    home.plugin("quitter", "import sys\ndef register(ctx):\n    sys.exit(3)\n")
    home.plugin("good")
    home.enable("quitter", "good")

    seen = home.start()

    assert "✗ quitter v1.0.0 [failed] — SystemExit(3) raised during import/register()" in seen
    assert "✓ good v1.0.0 (1 tools)" in seen


def test_a_plugin_whose_variable_is_not_set_is_off_and_says_which(home: Home) -> None:
    home.plugin("a", GOOD, "name: a\nrequires_env: [PROBE_X_KEY]\n")
    home.enable("a")

    seen = home.start()

    assert "Plugin a disabled (missing: PROBE_X_KEY)" in seen
    assert "Plugin a disabled (missing: PROBE_X_KEY)" in home.listed()
    assert "Plugin a disabled (missing: PROBE_X_KEY)" in home.log


def test_an_unknown_hook_name_is_told_with_the_nearest(home: Home) -> None:
    home.plugin("a", "def register(ctx): ctx.register_hook('post_tool_cal', print)\n")
    home.enable("a")

    home.start()

    assert "did you mean 'post_tool_call'?" in home.log
    listed = home.listed()
    assert "enabled" in listed
    assert "unknown hook `post_tool_cal`; did you mean 'post_tool_call'?" in listed
    status, report = home.check()
    assert (status, "did you mean 'post_tool_call'?" in report) == (0, True)


@pytest.mark.parametrize(
    ("init", "reason", "line", "remedy"),
    [
        ("x = 1\n", "no register() function", 1, "define `def register(ctx):` in "),
        (
            "\nimport nowhere_to_be_had\ndef register(ctx): pass\n",
            "ModuleNotFoundError: No module named 'nowhere_to_be_had'",
            2,
            "-m pip install nowhere_to_be_had`, on NixOS services.hermes-agent.extraPythonPackages",
        ),
        ("def register(ctx):\n    return (\n", "SyntaxError: '(' was never closed", 2, ""),
    ],
)
def test_what_does_not_load_is_listed_with_reason_place_and_remedy(
    home: Home, init: str, reason: str, line: int, remedy: str
) -> None:
    place = home.plugin("bad", init)
    home.plugin("good")
    home.enable("bad", "good")

    seen = home.start()

    for said in (seen, home.listed()):
        assert reason in said
        assert f"{place}/__init__.py:{line}" in said
        assert remedy in said
    assert "✓ good v1.0.0 (1 tools)" in seen


def test_a_manifest_that_is_no_yaml_is_listed_with_its_line_and_harms_nobody(home: Home) -> None:
    home.plugin("bad", GOOD, "name: bad\nversion: [1\n")
    home.plugin("good")
    home.enable("bad", "good")

    seen = home.start()

    assert "✗ bad [refused] — plugin.yaml: line " in seen
    assert "plugin `bad` " in home.listed()
    assert "✓ good v1.0.0 (1 tools)" in seen


def test_the_plugin_of_the_guide_works_as_printed_and_the_banner_says_how_to_enable_it(home: Home) -> None:
    snippet = fences(guide("build-a-plugin.en.md"), "Register slash commands")[0]
    home.plugin("my-status", snippet)
    assert "plugin `my-status` is there and not enabled: hermes plugins enable my-status" in home.start()

    assert run(home.path, "plugins", "enable", "my-status").returncode == 0

    seen = home.start("/mystatus")
    assert "✓ my-status v1.0.0 (1 commands)" in seen
    assert "Plugin status: all systems nominal" in seen


# -- guards and tools ----------------------------------------------------------------------------------------

GUARD = "def register(ctx): ctx.register_hook('pre_tool_call', guard)\n"


@pytest.mark.parametrize(
    ("guard", "said"),
    [
        ("def guard(**kw): raise ValueError('broken')\n", "raised ValueError: broken"),
        ("import threading\ndef guard(**kw): threading.Event().wait(20)\n", "timed out or is still running"),
        ("def guard(**kw): return {'action': 'block'}\n", "gives no message"),
    ],
)
def test_a_guard_that_raises_hangs_or_says_nothing_blocks_that_call(tmp_path: Path, guard: str, said: str) -> None:
    result, _ = guarded(tmp_path, guard + GUARD, {"plugins": {"hook_timeout_s": 0.2}})

    error = json.loads(result)["error"]
    assert error.startswith("BLOCKED: ")
    assert "plugin `warden`" in error
    assert said in error


def test_a_guard_without_keywords_is_called_with_those_that_it_names(tmp_path: Path) -> None:
    guard = "def guard(tool_name): return {'action': 'block', 'message': 'not ' + tool_name}\n"
    assert json.loads(guarded(tmp_path, guard + GUARD)[0]) == {"error": "not good_tool"}


def test_an_async_guard_is_awaited(tmp_path: Path) -> None:
    guard = "async def guard(**kw): return {'action': 'block', 'message': 'awaited'}\n"
    assert json.loads(guarded(tmp_path, guard + GUARD)[0]) == {"error": "awaited"}


def test_a_guard_that_changes_the_arguments_takes_effect_and_is_logged_by_name(tmp_path: Path) -> None:
    echo = write(tmp_path, "echo", tool("echo", answer="str(args)"))
    warden = write(tmp_path, "warden", "def guard(args, **kw): args['x'] = 2\n" + GUARD)
    with plugin_host(echo, warden, model=[call("echo", {"x": 1}), "done"]) as host:
        (finished,) = host.ask("go").tool_calls
        (line,) = [line for line in host.log_text.splitlines() if "changed the arguments of echo" in line]

    assert finished.result == "{'x': 2}"
    assert "warden" in line


@pytest.mark.parametrize(
    ("answer", "kind"), [("7", "int"), ("{'a': 1}", "dict"), ("None", "NoneType"), ("object()", "object")]
)
def test_a_result_of_another_type_is_an_error_of_its_plugin(tmp_path: Path, answer: str, kind: str) -> None:
    odd = write(tmp_path, "odd", tool("odd", answer=answer))
    with plugin_host(odd, model=[call("odd"), "done"]) as host:
        (finished,) = host.ask("go").tool_calls
        assert json.loads(finished.result) == {
            "error": f"Tool handler returned unsupported result type: {kind}",
            "error_type": "tool_result_contract",
            "tool": "odd",
            "result_type": kind,
        }
        shown = str(host.run_command("/plugins odd"))

    assert "tools: 1 calls, 1 errors" in shown
    assert f"last error of 1: tool odd: returned {kind}, which is no result" in shown


def test_an_observer_that_takes_its_time_delays_no_turn(tmp_path: Path) -> None:
    good = write(tmp_path, "good")
    slow = write(
        tmp_path,
        "slow",
        "import threading\nentered, free, done = (threading.Event() for _ in range(3))\n"
        "def watch(**kw):\n    entered.set()\n    free.wait(60)\n    done.set()\n"
        "def register(ctx): ctx.register_hook('post_tool_call', watch)\n",
    )
    with plugin_host(good, slow, model=[call("good_tool"), "done"]) as host:
        answer = host.ask("go")  # the observer waits for what comes below
        module = next(r.module for r in host.records if r.manifest.key == "slow")
        assert module.entered.wait(30)
        assert (answer.text, answer.tool_calls[0].result, module.done.is_set()) == ("done", "good", False)
        module.free.set()
        assert module.done.wait(30)


def test_a_tool_of_a_plugin_that_was_removed_is_unknown_after_the_next_look(tmp_path: Path) -> None:
    good, gone = write(tmp_path, "good"), write(tmp_path, "gone", tool("gone_tool"))
    with plugin_host(good, gone, model=["done"]) as host:
        assert host.dispatch_tool("gone_tool").startswith("from ")
        (host.home / "plugins" / "gone").unlink()  # a link to its folder

        assert "gone: stopped" in str(host.run_command("/plugins reload"))

        assert json.loads(host.dispatch_tool("gone_tool")) == {"error": "Unknown tool: gone_tool"}
        assert host.dispatch_tool("good_tool") == "good"


# -- hostile ones: the daemon serves others all the while ---------------------------------------------------


def test_an_import_that_hangs_is_given_up_and_the_daemon_serves_the_others(home: Home) -> None:
    place = home.plugin("sleeper", "import threading\nthreading.Event().wait()\n")
    home.plugin("stubborn", "import time\ntry:\n    time.sleep(600)\nexcept Exception:\n    pass\n" + GOOD)
    home.plugin("zgood", tool("z_tool"))
    home.enable("sleeper", "stubborn", "zgood", more="  load_timeout_s: 0.5\n")

    with daemon(home) as served:
        found = served.plugins()

    late = "load timed out after 0.5s (import + register() never returned)"
    assert (found["sleeper"]["status"], found["sleeper"]["error"]) == ("failed", late)
    assert found["stubborn"]["error"] == late
    assert found["zgood"]["tools"] == ["z_tool"]
    assert f"{late} ({place}/__init__.py:2)" in home.listed()


def test_a_thread_of_a_plugin_that_raises_is_counted_for_it(home: Home) -> None:
    home.plugin(
        "threads",
        """
        import threading
        def work():
            raise RuntimeError("in the dark")
        def register(ctx):
            thread = threading.Thread(target=work, name="digger")
            thread.start()
            thread.join()
        """,
    )
    home.plugin("good")
    home.enable("threads", "good")

    with daemon(home) as served:
        found = served.plugins()

    assert found["threads"]["account"]["last_error"] == "thread digger: RuntimeError('in the dark')"
    assert found["good"]["status"] == "enabled"
    assert "a thread of plugin threads (digger) ended with RuntimeError('in the dark')" in home.log


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_a_huge_manifest_and_a_yaml_bomb_are_refused_by_name(home: Home) -> None:
    huge = home.plugin("huge")
    with (huge / "plugin.yaml").open("w") as file:
        file.write("name: huge\ndescription: ")
        for _ in range(50):
            file.write("x" * 2**20)
    home.plugin("bomb", GOOD, f"name: bomb\n{BOMB}requires_env: *i\n")
    home.plugin("good")
    home.enable("huge", "bomb", "good")

    with daemon(home) as served:
        found = served.plugins()

    assert found["good"]["status"] == "enabled"
    for name in ("huge", "bomb"):
        assert found[name]["status"] == "refused"
        assert found[name]["error"].startswith("plugin.yaml: ")
        assert found[name]["error"] in home.listed()


def test_a_check_that_blocks_hides_its_tool_and_delays_the_others_once(tmp_path: Path) -> None:
    good = write(tmp_path, "good")
    stuck = write(
        tmp_path,
        "stuck",
        "import threading\nfree, asked = threading.Event(), []\n"
        "def check():\n    asked.append(1)\n    free.wait(60)\n    return True\n"
        + tool("stuck_tool", more=", check_fn=check"),
    )
    with plugin_host(good, stuck, model=["one", call("good_tool"), "two"]) as host:
        assert host.ask("first").text == "one"
        assert "stuck_tool" not in host.model.tools
        assert "good_tool" in host.model.tools
        host.host.tools.checks._answers.clear()  # its time is over
        assert host.ask("second").text == "two"
        module = next(r.module for r in host.records if r.manifest.key == "stuck")
        assert module.asked == [1]  # not asked again while it hangs
        shown = str(host.run_command("/plugins stuck"))
        module.free.set()

    assert "check_fn: TimeoutError('no answer within 5 s')" in shown


def test_a_result_that_cannot_be_serialised_ends_no_turn(tmp_path: Path) -> None:
    odd = write(
        tmp_path,
        "odd",
        "class Odd:\n    def __repr__(self): raise RuntimeError('no')\n    __str__ = __repr__\n"
        + tool("odd", answer="Odd()"),
    )
    good = write(tmp_path, "good")
    with plugin_host(odd, good, model=[call("odd"), call("good_tool"), "done"]) as host:
        answer = host.ask("go")
        first, second = answer.tool_calls
        assert (answer.text, second.result) == ("done", "good")
        assert json.loads(first.result)["result_type"] == "Odd"
        assert "last error of 1: tool odd: returned Odd" in str(host.run_command("/plugins odd"))


def test_the_daemon_of_a_home_full_of_trouble_stops_when_it_is_told(home: Home) -> None:
    home.plugin("quitter", "raise SystemExit(3)\n")
    home.plugin(
        "looper", "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n" + GOOD
    )
    home.enable("quitter", "looper")
    port = free_port()
    environ = environment(home.path, API_SERVER_PORT=str(port))
    with running([HERMES, "gateway", "run"], host="127.0.0.1", port=port, path="/health", environ=environ) as process:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        assert process.returncode == 0
