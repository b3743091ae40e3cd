"""`hermes plugins check`: the build's gate (docs/plugins/README.md)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.app.main import main
from hermes_agent.app.plugins.check import ChildDied, run_in_child

Write = Callable[..., Path]
Capture = pytest.CaptureFixture[str]

HELLO = 'def register(ctx): ctx.register_tool("hello", "x", {"name": "hello"}, lambda args, **kw: "1")\n'


def check(capsys: Capture, *argv: object) -> tuple[int, str, str]:
    status = main(["plugins", "check", *map(str, argv)])
    out, err = capsys.readouterr()
    return status, out, err


def test_sound_plugins_pass_and_are_described(
    home: Path, write_plugin: Write, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugin("declared-one", root=tmp_path / "declared")
    monkeypatch.setenv("HERMES_BUNDLED_PLUGINS", f":{tmp_path}/declared")
    place = write_plugin(
        "weather",
        """
        import os
        from tools.registry import registry, tool_error
        from hermes_constants import get_hermes_home
        KEY = os.environ["WEATHER_API_KEY"]
        assert not [path for path in get_hermes_home().rglob("*") if path.is_file()]

        def register(ctx):
            ctx.register_tool("hello", "x", {"name": "hello"}, lambda args, **kw: tool_error("no"))
            registry.register("direct", "x", {"name": "direct"}, lambda args, **kw: "1")
            ctx.register_hook("post_tool_call", print)
            ctx.register_command("scan", print)
            ctx.register_cli_command("scan", "help", print)
        """,
        manifest="name: weather\nversion: 1.10\nrequires_env: [WEATHER_API_KEY]\nprovides_tools: [hello, direct]",
        root=tmp_path,
    )

    status, out, err = check(capsys, place, "--json", "--out", tmp_path / "plugins.json")

    assert (status, err) == (0, "")
    assert (tmp_path / "plugins.json").read_text() == out
    document = json.loads(out)
    assert [p["key"] for p in document.pop("plugins")] == ["declared-one", "weather"]
    assert json.loads(out)["plugins"][1] == {
        "key": "weather",
        "name": "weather",
        "version": "1.10",
        "source": "declared",
        "path": str(place),
        "kind": "standalone",
        "requires_env": ["WEATHER_API_KEY"],
        "tools": ["direct", "hello"],
        "hooks": ["post_tool_call"],
        "commands": ["scan"],
        "cli_commands": ["scan"],
        "provides_tools": ["direct", "hello"],
        "providers": [],
        "platforms": [],
    }
    assert document == {"version": 1, "conflicts": [], "errors": [], "warnings": []}


def test_two_plugins_with_one_tool_are_both_named(
    home: Path, write_plugin: Write, tmp_path: Path, capsys: Capture
) -> None:
    a, b = write_plugin("a", HELLO, root=tmp_path), write_plugin("b", HELLO, root=tmp_path)

    status, _, err = check(capsys, b, a, "--out", tmp_path / "out.json")

    assert status == 1
    assert err.splitlines()[:3] == [
        "error: hermes-agent: two plugins register the tool `hello`:",
        f"  plugin `a` ({a})",
        f"  plugin `b` ({b})",
    ]
    assert json.loads((tmp_path / "out.json").read_text())["conflicts"] == [
        {
            "kind": "tool",
            "name": "hello",
            "owners": ["a", "b"],
            "text": "two plugins register the tool `hello`:",
        }
    ]


def test_a_tool_of_the_agent_is_not_to_be_taken_unless_the_config_allows_it(
    home: Path, write_plugin: Write, tmp_path: Path, capsys: Capture
) -> None:
    place = write_plugin(
        "shadow",
        """
        def register(ctx):
            ctx.register_tool("terminal", "x", {"name": "terminal"}, lambda args, **kw: "1", override=OVERRIDE)
        """.replace("OVERRIDE", "False"),
        root=tmp_path,
    )

    status, _, err = check(capsys, place)

    assert status == 1
    assert err.splitlines()[:2] == [
        "error: hermes-agent: plugin `shadow` registers the tool `terminal`, which is the agent's own:",
        f"  plugin `shadow` ({place})",
    ]
    assert "plugins.entries.shadow.allow_tool_override: true" in err

    init = place / "__init__.py"
    init.write_text(init.read_text().replace("override=False", "override=True"))
    status, _, err = check(capsys, place)
    assert status == 1
    assert "plugin `shadow` failed to load: PluginToolOverrideError: Plugin 'shadow' cannot override" in err

    config = tmp_path / "allowed.yaml"
    config.write_text("plugins:\n  entries:\n    shadow: {allow_tool_override: true}\n")
    assert check(capsys, place, "--config", config)[0] == 0


def test_commands_are_fought_for_too(home: Path, write_plugin: Write, tmp_path: Path, capsys: Capture) -> None:
    init = """
def register(ctx):
    ctx.register_command("scan", print)
    ctx.register_cli_command("scan", "h", print)
    ctx.register_command("help", print)
"""
    a, b = write_plugin("a", init, root=tmp_path), write_plugin("b", init, root=tmp_path)

    _, _, err = check(capsys, a, b)

    assert [line for line in err.splitlines() if line.startswith("error")] == [
        "error: hermes-agent: plugin `a` registers the slash command `/help`, which is the agent's own:",
        "error: hermes-agent: plugin `b` registers the slash command `/help`, which is the agent's own:",
        "error: hermes-agent: two plugins register the slash command `/scan`:",
        "error: hermes-agent: two plugins register the terminal command `hermes scan`:",
    ]


def test_two_plugins_with_one_name_are_both_named(
    home: Path, write_plugin: Write, tmp_path: Path, capsys: Capture
) -> None:
    one = write_plugin("one", manifest="name: twin", root=tmp_path)
    two = write_plugin("two", manifest="name: twin", root=tmp_path)

    status, _, err = check(capsys, one, two)

    assert status == 1
    assert err.splitlines() == [
        "error: hermes-agent: two plugins are both called `twin`:",
        f"  {one}",
        f"  {two}",
        "hint: Leave one out, or change `name` in one plugin.yaml.",
    ]


def test_a_missing_package_comes_with_its_remedy(
    home: Path, write_plugin: Write, tmp_path: Path, capsys: Capture
) -> None:
    place = write_plugin("x", "import leafdep.part\n", root=tmp_path)

    status, _, err = check(capsys, place)

    assert status == 1
    assert err.splitlines() == [
        "error: hermes-agent: plugin `x` failed to load: ModuleNotFoundError: No module named 'leafdep'",
        f"  at {place}/__init__.py:1",
        "hint: `leafdep` is not installed with the agent: add it to extraPythonPackages.",
    ]


def test_an_upstream_name_that_is_not_served_is_no_matter_of_packages(
    home: Path, write_plugin: Write, tmp_path: Path, capsys: Capture
) -> None:
    _, _, err = check(capsys, write_plugin("x", "import tools.browser_tool\n", root=tmp_path))

    assert "No module named 'tools.browser_tool' (hermes-agent does not serve it: there is no built-in browser" in err
    assert "extraPythonPackages" not in err


@pytest.mark.parametrize(
    ("init", "text"),
    [
        ("import os; os._exit(3)\n", "plugin `b` ended the process while it was loaded: exit status 3"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n",
            "plugin `b` ended the process while it was loaded: signal SIGKILL",
        ),
        ("import sys; sys.exit(0)\n", "plugin `b` failed to load: SystemExit(0) raised during import/register()"),
    ],
)
def test_a_plugin_that_ends_the_process_is_named(
    home: Path, write_plugin: Write, tmp_path: Path, capsys: Capture, init: str, text: str
) -> None:
    a, b = write_plugin("a", root=tmp_path), write_plugin("b", init, root=tmp_path)

    status, _, err = check(capsys, a, b)

    assert status == 1
    assert f"error: hermes-agent: {text}" in err.splitlines()


def test_a_child_that_hangs_is_ended_and_what_it_did_is_known() -> None:
    def work(tell: Callable[[str], None]) -> None:
        import threading

        tell("the hanging one")
        threading.Event().wait()

    assert run_in_child(work, limit_s=0.3) == ChildDied("the hanging one", "no progress within 0.3 s")


def test_what_the_manifest_promises_and_register_does_is_compared(
    home: Path, write_plugin: Write, tmp_path: Path, capsys: Capture
) -> None:
    place = write_plugin("x", HELLO, manifest="name: x\nprovides_tools: [helo]", root=tmp_path)

    status, _, err = check(capsys, place)
    assert status == 0
    assert err.splitlines() == [
        "warning: hermes-agent: plugin `x` registers hello, which provides_tools does not name",
        "warning: hermes-agent: plugin `x`: provides_tools names helo, which it does not register",
    ]

    status, _, err = check(capsys, place, "--strict")
    assert status == 1
    assert all(line.startswith("error: ") for line in err.splitlines())


def test_the_config_s_plugin_section_holds(home: Path, write_plugin: Write, tmp_path: Path, capsys: Capture) -> None:
    a, b = write_plugin("good", HELLO, root=tmp_path), write_plugin("b", HELLO, root=tmp_path)
    config = tmp_path / "config.yaml"
    config.write_text("plugins:\n  enabled: [goood, mine-at-home]\n  disabled: [b]\n")

    status, _, err = check(capsys, a, b, "--config", config)

    assert status == 1
    assert err.splitlines() == [
        "error: hermes-agent: plugins.enabled: unknown plugin `goood` (did you mean `good`?)",
        "warning: hermes-agent: plugins.enabled: unknown plugin `mine-at-home`: `hermes plugins list` shows those that "
        "are there",
    ]


def test_a_broken_config_is_a_config_error(home: Path, tmp_path: Path, capsys: Capture) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("plugins:\n  enabled: good\n")

    status, _, err = check(capsys, "--config", config)

    assert status == 78
    assert "plugins.enabled" in err


@pytest.mark.parametrize(
    ("name", "text"),
    [("absent", "is not a directory"), ("empty", "has no plugin.yaml at its root")],
)
def test_a_directory_without_a_plugin_is_said_so(
    home: Path, tmp_path: Path, capsys: Capture, name: str, text: str
) -> None:
    (tmp_path / "empty").mkdir()

    status, _, err = check(capsys, tmp_path / name)

    assert status == 1
    assert text in err


def test_a_bad_manifest_is_an_error_with_its_line(
    home: Path, write_plugin: Write, tmp_path: Path, capsys: Capture
) -> None:
    place = write_plugin("bad", manifest="name: x\nversion: [", root=tmp_path)

    status, _, err = check(capsys, place)

    assert status == 1
    assert f"error: hermes-agent: the plugin at {place} cannot be used: plugin.yaml: line " in err


def test_it_runs_as_in_a_builder_without_home_and_leaves_nothing(
    home: Path, write_plugin: Write, tmp_path: Path
) -> None:
    place = write_plugin("noisy", "print('printed at import')\n" + HELLO, root=tmp_path)
    (tmp_path / "tmp").mkdir()
    environ = {
        "HOME": "/homeless-shelter",
        "PATH": "/path-not-set",
        "TMPDIR": str(tmp_path / "tmp"),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "HERMES_SAFE_MODE": "1",
    }

    done = subprocess.run(
        [
            *(sys.executable, "-m", "hermes_agent", "plugins", "check", "--no-sandbox"),
            *(str(place), "--out", str(tmp_path / "out.json")),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        env=environ,
        cwd="/",
    )

    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "1 plugin(s) checked, no conflicts.\n",
        "printed at import\n",
    )
    assert list((tmp_path / "tmp").iterdir()) == []
    first = (tmp_path / "out.json").read_bytes()
    subprocess.run(done.args, capture_output=True, timeout=60, env=environ, cwd="/", check=True)
    assert (tmp_path / "out.json").read_bytes() == first


def test_names_in_the_config_that_nothing_answers_to_are_errors(
    home: Path, write_plugin: Write, tmp_path: Path, capsys: Capture
) -> None:
    place = write_plugin("lamp", 'def register(ctx): ctx.register_tool("lamp", "lights", {"name": "lamp"}, dict)\n')
    config = tmp_path / "names.yaml"
    config.write_text(
        "plugins: {disabled: [nobody], allow_tool_override: [lamp, read_fil]}\ntoolsets: [lights, terminl]\n"
    )

    status, _, err = check(capsys, place, "--config", config)

    assert status == 1
    for words in (
        "plugins.disabled[0]: unknown plugin `nobody`",
        "plugins.allow_tool_override[1]: there is no tool `read_fil` (did you mean `read_file`?)",
        "toolsets[1]: there is no toolset `terminl` (did you mean `terminal`?)",
    ):
        assert f"error: hermes-agent: {words}" in err
    assert "`lamp`" not in err
    assert "`lights`" not in err


def test_a_package_that_lists_its_plugin_in_two_groups_is_in_no_conflict_with_itself(tmp_path: Path) -> None:
    info = tmp_path / "site" / "twofold-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: twofold\nVersion: 1.0\n")
    groups = (
        "[hermes_agent.plugins]\ntwofold = twofold:register\n\n[hermes_agent.memory_providers]\ntwofold = twofold\n"
    )
    (info / "entry_points.txt").write_text(groups)
    schema = "{'name': 'twice', 'description': 'x', 'parameters': {'type': 'object', 'properties': {}}}"
    body = f"    ctx.register_tool('twice', 'twofold', {schema}, lambda args, **kwargs: '{{}}')\n"
    (tmp_path / "site" / "twofold.py").write_text(f"def register(ctx):\n{body}")
    environment = os.environ | {
        "PYTHONPATH": str(tmp_path / "site"),
        "HERMES_HOME": str(tmp_path),
        "HOME": str(tmp_path),
    }
    command = [sys.executable, "-m", "hermes_agent", "plugins", "check", "--no-sandbox"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "its package lists it in a second group, as `" in done.stderr
