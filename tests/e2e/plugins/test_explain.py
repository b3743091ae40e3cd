"""`hermes tools` and `hermes plugins explain`: why something is or is not there."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_agent.app.main import main
from hermes_agent.compat import import_hook

Write = Callable[..., Path]
Ask = Callable[..., tuple[int, str]]

TOOL = """
def register(ctx):
    ctx.register_tool({0!r}, {1!r}, {{"name": {0!r}, "description": "d"}}, lambda args, **kw: "x"{2})
"""


@pytest.fixture
def ask(home: Path, capsys: pytest.CaptureFixture[str], without_host: None) -> Iterator[Ask]:
    """Run a command; return its exit status and what it printed."""
    modules = set(sys.modules)

    def run(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        status = main(arguments)
        said = capsys.readouterr()
        return status, said.out + said.err

    yield run
    import_hook.uninstall()
    for name in set(sys.modules) - modules:
        if name.partition(".")[0] == "hermes_plugins":
            del sys.modules[name]


def test_a_tool_is_explained_by_its_owner_its_check_and_its_toolset(home: Path, write_plugin: Write, ask: Ask) -> None:
    place = write_plugin("a", TOOL.format("seen", "show", ""))
    write_plugin("b", TOOL.format("unseen", "show", ", check_fn=lambda: False, requires_env=['B_KEY']"))
    write_plugin("c", TOOL.format("off", "dark", ""))
    write_plugin("d", TOOL.format("seen", "show", ""))
    (home / "config.yaml").write_text("plugins: {enabled: [a, b, c, d]}\nagent: {disabled_toolsets: [dark]}\n")

    status, said = ask("tools", "explain", "seen")
    assert (status, said.splitlines()) == (
        0,
        [
            "tool `seen` is shown to the model",
            f"  toolset `show`, registered by plugin `a` (user: {place})",
            "  plugin `d` also claims the name and goes without it: "
            "let the plugin register it with override=True and set plugins.entries.d.allow_tool_override: true",
        ],
    )
    status, said = ask("tools", "explain", "unseen")
    assert status == 1
    assert "tool `unseen` is not shown to the model: its check_fn says that it cannot work now" in said
    assert "it says that it needs: B_KEY" in said
    assert "its toolset `dark` is in agent.disabled_toolsets" in ask("tools", "explain", "off")[1]
    assert "registered by the agent" in ask("tools", "explain", "terminal")[1]
    status, said = ask("tools", "explain", "seeen")
    assert (status, said.splitlines()[0]) == (1, "there is no tool `seeen` (did you mean `seen`?)")


def test_a_tool_of_a_plugin_that_does_not_run_is_explained_by_that(home: Path, write_plugin: Write, ask: Ask) -> None:
    place = write_plugin("bad", "import not_there_at_all\n", "name: bad\nprovides_tools: [t1]\n")
    write_plugin("off", manifest="name: off\nprovides_tools: [t2]\n")
    write_plugin("lying", manifest="name: lying\nprovides_tools: [t3]\n")
    write_plugin("poor", manifest="name: poor\nprovides_tools: [t4]\nrequires_env: [POOR_KEY_X]\n")
    (home / "config.yaml").write_text("plugins: {enabled: [bad, lying, poor]}\n")

    said = ask("tools", "explain", "t1")[1]
    assert "tool `t1` is not there" in said
    assert (
        "plugin `bad` registers it and does not run: ModuleNotFoundError: No module named 'not_there_at_all' "
        f"({place}/__init__.py:1)" in said
    )
    assert "not enabled in config (run `hermes plugins enable off` to activate)" in ask("tools", "explain", "t2")[1]
    assert "plugin `lying` names it in provides_tools and does not register it" in ask("tools", "explain", "t3")[1]
    assert "Plugin poor disabled (missing: POOR_KEY_X)" in ask("tools", "explain", "t4")[1]

    status, said = ask("plugins", "explain", "bad")
    assert status == 1
    assert said.splitlines()[:2] == ["plugin `bad` does not run", f"  user: {place}"]
    assert f"what to do: add the package that provides `not_there_at_all`: `{sys.executable} -m pip install" in said
    assert ask("plugins", "explain", "lying")[0] == 0
    assert "there is no plugin `lyng` (did you mean `lying`?)" in ask("plugins", "explain", "lyng")[1]


def test_the_list_has_every_tool_with_owner_and_state(home: Path, write_plugin: Write, ask: Ask) -> None:
    write_plugin("a", TOOL.format("seen", "show", ", check_fn=lambda: 1 / 0"))
    (home / "config.yaml").write_text("plugins: {enabled: [a]}\n")

    rows = {row["name"]: row for row in json.loads(ask("tools", "list", "--json")[1])}

    assert rows["seen"] == {
        "name": "seen",
        "toolset": "show",
        "owner": "a",
        "state": "its check_fn says that it cannot work now",
    }
    assert (rows["terminal"]["owner"], rows["terminal"]["state"]) == ("builtin", "shown")
    assert "seen " in ask("tools", "list")[1]
