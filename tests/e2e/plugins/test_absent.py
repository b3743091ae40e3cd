"""What a plugin brought and does not bring now says so where it is called: docs/plugins/trust.md."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.agent.command_router import CommandCall
from hermes_agent.app.main import main
from hermes_agent.host import Host
from hermes_agent.policy import NoApprover

Write = Callable[..., Path]
Start = Callable[..., Host]
Capture = pytest.CaptureFixture[str]

TEA = """
from pathlib import Path

def setup(parser):
    parser.add_argument("words", nargs="*")

def register(ctx):
    ctx.register_tool("pour", schema={"name": "pour", "description": "d"}, handler=lambda args, **kw: "poured")
    ctx.register_command("Tea Time", lambda raw_args: "it is")
    ctx.register_cli_command("brew", "Brew", setup, lambda args: print("brewed"))
    ctx.register_skill("taste", Path(__file__).parent / "SKILL.md")
"""
GRANT = "run `hermes plugins grant tea` to see and allow it"
CHANGED = f"plugin `tea` does not run: changed since it was granted: __init__.py ({GRANT})"


@pytest.fixture
def tea(write_plugin: Write, start: Start) -> Path:
    """A plugin that ran once."""
    folder = write_plugin("tea", TEA)
    (folder / "SKILL.md").write_text("---\nname: taste\ndescription: d\n---\nSip.\n")
    host = start(enable=("tea",))
    assert (said(host, "/tea-time"), host.tools.dispatch("pour", {})) == ("it is", "poured")
    return folder


def said(host: Host, line: str) -> str | None:
    """Return what a person is answered who types a line."""

    async def typed() -> str | None:
        meaning = await host.slash.resolve(line, where="terminal", session_id="s", platform="cli")
        if not isinstance(meaning, CommandCall):
            return repr(meaning)
        return await host.slash.run(meaning, host.slash.scope("s", "cli", NoApprover("here")))

    return host.bridge.wait_core(typed())


def edit(folder: Path, text: str = "# mine\n") -> None:
    file = folder / "__init__.py"
    file.write_text(file.read_text() + text)


def test_a_plugin_that_was_edited_is_named_where_its_command_tool_or_skill_is_called(
    tea: Path, start: Start, capsys: Capture
) -> None:
    edit(tea)
    host = start(enable=("tea",))

    for line in ("/tea-time now", "/tea_time", "/TEA-TIME"):
        name = line[1:].partition(" ")[0].lower()
        assert said(host, line) == f"/{name} is not there: {CHANGED}"
    assert json.loads(host.tools.dispatch("pour", {})) == {"error": f"Unknown tool: pour ({CHANGED})"}
    assert json.loads(host.tools.dispatch("skill_view", {"name": "tea:taste"}))["error"].endswith(CHANGED)
    assert host.plugins.missed() == [CHANGED]
    assert "UnknownCommand(" in str(said(host, "/coffee")) and "coffee" in host.tools.dispatch("coffee", {})

    assert main(["brew"]) == 1
    assert f"hermes: the command `brew` is not there: {CHANGED}" in capsys.readouterr().err
    assert main(["tools", "explain", "pour"]) == 1
    assert CHANGED in capsys.readouterr().out

    assert main(["plugins", "grant", "tea", "--yes"]) == 0
    assert "`hermes plugins reload tea` has a running daemon take it" in capsys.readouterr().out
    [done] = host.plugins.reload("tea")
    assert (done.outcome, said(host, "/tea-time"), host.plugins.missed()) == ("loaded", "it is", [])


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("plugins: {enabled: [tea], entries: {tea: {trust: dev}}}", "plugin `tea` failed to load: NameError: name 'x'"),
        ("plugins: {enabled: [tea], disabled: [tea]}", "plugin `tea` does not run: disabled via config"),
        ("plugins: {enabled: []}", "run `hermes plugins enable tea` to activate"),
    ],
)
def test_so_is_one_that_fails_or_is_switched_off(tea: Path, start: Start, config: str, why: str) -> None:
    edit(tea, "x\n")
    host = start(config)

    assert why in str(said(host, "/tea-time"))
    assert why in json.loads(host.tools.dispatch("pour", {}))["error"]


def test_what_a_plugin_brought_that_was_never_pinned_is_known_too(write_plugin: Write, start: Start) -> None:
    dev = "plugins: {enabled: [tea], entries: {tea: {trust: dev}}}"
    tea = write_plugin("tea", TEA.replace("    ctx.register_skill", "    # "))
    assert said(start(dev), "/tea-time") == "it is"

    edit(tea, "\nx\n")

    assert "plugin `tea` failed to load: NameError" in str(said(start(dev), "/tea-time"))


def test_enable_says_what_an_edit_does_and_dev_lets_one_edit(
    home: Path, write_plugin: Write, start: Start, capsys: Capture
) -> None:
    folder = write_plugin("tea", TEA.replace("    ctx.register_skill", "    # "))

    assert main(["plugins", "enable", "tea"]) == 0
    out = capsys.readouterr().out
    assert "after an edit it waits for `hermes plugins grant tea`" in out
    assert "`hermes plugins enable tea --dev`" in out

    assert main(["plugins", "enable", "tea", "--dev"]) == 0
    assert "It runs whatever its files are (trust: dev)" in capsys.readouterr().out
    edit(folder)
    assert said(start((home / "config.yaml").read_text()), "/tea-time") == "it is"
    assert main(["plugins", "enable", "tea", "--dev"]) == 0
    assert "tea is enabled already." in capsys.readouterr().out


def test_enable_with_a_path_says_what_to_do_with_it(
    home: Path, tmp_path: Path, write_plugin: Write, capsys: Capture
) -> None:
    elsewhere = write_plugin("mug", root=tmp_path)
    inside = write_plugin("tea", TEA)

    assert main(["plugins", "enable", str(elsewhere)]) == 1
    err = " ".join(capsys.readouterr().err.split())
    assert f"`hermes plugins install {elsewhere} --enable`" in err
    assert (
        f"`mkdir -p {home}/plugins && ln -s {elsewhere} {home}/plugins/` and `hermes plugins enable NAME --dev`" in err
    )
    assert main(["plugins", "enable", str(inside)]) == 1
    assert "`hermes plugins enable tea`" in capsys.readouterr().err
    assert main(["plugins", "enable", "no/such"]) == 1
    assert "unknown plugin `no/such`" in capsys.readouterr().err
    assert not (home / "config.yaml").exists()


def test_a_new_plugin_is_offered_to_be_worked_on(home: Path, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "dice"
    main(["plugins", "new", "dice", "--dir", str(folder)])
    out = capsys.readouterr().out
    assert "hermes plugins enable dice --dev" in out and f"{sys.executable} -m pytest tests" in out
    link = next(line for line in out.splitlines() if "ln -s" in line)
    subprocess.run(["sh", "-c", link], check=True)
    assert (home / "plugins" / "dice").resolve() == folder

    main(["plugins", "new", "mug", "--dir", str(home / "plugins" / "mug")])
    out = capsys.readouterr().out
    assert "ln -s" not in out and "hermes plugins enable mug --dev" in out
