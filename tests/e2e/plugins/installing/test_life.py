"""`hermes plugins info`, `update` and `remove`: what follows after a plugin was installed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.app.main import main
from hermes_agent.host import Host

Write = Callable[..., Path]
Start = Callable[..., Host]
Git = Callable[..., str]
Capture = pytest.CaptureFixture[str]

TWO = """
def register(ctx):
    ctx.register_tool("add", schema={"name": "add", "description": "d"}, handler=lambda args, **kw: "{}")
    ctx.register_tool("fetch", schema={"name": "fetch", "description": "d"}, handler=lambda args, **kw: "{}")
    ctx.register_hook("kanban_task_claimed", lambda **kw: None)
"""


@pytest.fixture
def installed(home: Path, repository: Path, capsys: Capture) -> Path:
    """The plugin `calc`, installed from a repository and enabled; the repository."""
    assert main(["plugins", "install", f"file://{repository}", "--enable"]) == 0
    capsys.readouterr()
    return repository


def publish(repository: Path, git: Git, init: str = TWO, version: str = "2.0.0") -> str:
    (repository / "__init__.py").write_text(init)
    (repository / "plugin.yaml").write_text(f"name: calc\nversion: {version}\ndescription: A calculator\n")
    (repository / "more.py").write_text("")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", version)
    return git(repository, "rev-parse", "HEAD")


def record(home: Path) -> dict:
    return json.loads((home / "plugins_trust.json").read_text())["plugins"]["plugins/calc"]


def status(capsys: Capture) -> str:
    capsys.readouterr()
    main(["plugins", "list", "--plain"])
    return capsys.readouterr().out


def test_an_update_shows_what_is_different_and_exchanges_the_plugin(
    home: Path, installed: Path, git: Git, capsys: Capture
) -> None:
    commit = publish(installed, git)

    assert main(["plugins", "update", "calc", "--yes", "--diff"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"calc: 1.0.0 -> 2.0.0 (commit {commit[:12]})"
    assert {"  + tools: fetch", "  + hooks: kanban_task_claimed", "  - hooks: post_tool_call"} <= set(lines)
    assert "  new files: more.py" in lines
    assert "  changed files: __init__.py, plugin.yaml" in lines
    assert "-version: 1.0.0" in lines
    assert record(home)["origin"]["commit"] == commit
    assert record(home)["grant"]["by"] == "update"
    assert status(capsys) == "enabled      user     2.0.0    calc\n"
    assert not (home / "plugins" / ".staging").exists()


def test_nothing_new_is_up_to_date(installed: Path, capsys: Capture) -> None:
    assert main(["plugins", "update", "calc"]) == 0
    assert capsys.readouterr().out == "calc 1.0.0 is up to date.\n"


def test_nobody_there_updates_nothing(home: Path, installed: Path, git: Git, capsys: Capture) -> None:
    publish(installed, git)

    assert main(["plugins", "update", "calc"]) == 1

    assert "no user can be asked here; `hermes plugins update calc --yes` does it" in capsys.readouterr().err
    assert status(capsys) == "enabled      user     1.0.0    calc\n"


@pytest.mark.parametrize("fault", ["raise ValueError('no')\n", "def register(ctx):\n    import not_there_at_all\n"])
def test_a_new_one_that_does_not_load_leaves_the_old_one(
    home: Path, installed: Path, git: Git, capsys: Capture, fault: str
) -> None:
    publish(installed, git, fault)

    assert main(["plugins", "update", "calc", "--yes"]) == 1

    assert (
        "the new calc cannot be loaded, so the old one stays: plugin `calc` failed to load" in capsys.readouterr().err
    )
    assert status(capsys) == "enabled      user     1.0.0    calc\n"


def test_a_new_one_with_another_name_leaves_the_old_one(installed: Path, git: Git, capsys: Capture) -> None:
    publish(installed, git)
    (installed / "plugin.yaml").write_text("name: other\n")
    git(installed, "commit", "-qam", "renamed")

    assert main(["plugins", "update", "calc", "--yes"]) == 1
    assert "is now called `other`, not `calc`" in capsys.readouterr().err


def test_what_was_changed_here_is_not_undone_unasked(home: Path, installed: Path, git: Git, capsys: Capture) -> None:
    publish(installed, git)
    (home / "plugins/calc/__init__.py").write_text("# mine\ndef register(ctx): pass\n")

    assert main(["plugins", "update", "calc", "--yes"]) == 1
    assert "calc was changed here, and an update would undo that: __init__.py" in capsys.readouterr().err

    assert main(["plugins", "update", "calc", "--yes", "--force"]) == 0
    assert status(capsys) == "enabled      user     2.0.0    calc\n"


@pytest.mark.parametrize(("mode", "file"), [("dev", "__init__.py"), ("code", "README.md")])
def test_what_was_changed_in_a_plugin_that_may_be_changed_is_not_undone_either(
    home: Path, repository: Path, git: Git, capsys: Capture, mode: str, file: str
) -> None:
    (repository / "README.md").write_text("theirs\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "readme")
    assert main(["plugins", "install", f"file://{repository}", "--enable"]) == 0
    assert main(["config", "set", "plugins.entries.calc.trust", mode]) == 0
    publish(repository, git)
    (home / "plugins/calc" / file).write_text("# mine\n")

    assert main(["plugins", "update", "calc", "--yes"]) == 1
    assert f"calc was changed here, and an update would undo that: {file}" in capsys.readouterr().err
    assert (home / "plugins/calc" / file).read_text() == "# mine\n"


def test_what_the_plugin_and_the_person_keep_in_the_folder_stays(home: Path, repository: Path, git: Git) -> None:
    (repository / "conf.json.example").write_text("{}")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "conf")
    main(["plugins", "install", f"file://{repository}"])
    place = home / "plugins" / "calc"
    (place / "conf.json").write_text('{"mine": 1}')
    (place / "state").mkdir()
    (place / "state" / "x.db").write_bytes(b"\0")
    publish(repository, git)

    assert main(["plugins", "update", "calc", "--yes"]) == 0

    assert (place / "conf.json").read_text() == '{"mine": 1}'
    assert (place / "state" / "x.db").read_bytes() == b"\0"
    assert (place / "more.py").exists()


def test_all_goes_on_after_one_that_fails(
    home: Path, installed: Path, git: Git, write_plugin: Write, tmp_path: Path, capsys: Capture
) -> None:
    gone = write_plugin("gone", root=tmp_path / "other")
    main(["plugins", "install", str(gone)])
    (gone / "plugin.yaml").unlink()
    write_plugin("by-hand")
    publish(installed, git)

    assert main(["plugins", "update", "--all", "--yes"]) == 1

    out, err = capsys.readouterr()
    assert "calc is updated" in out
    assert (
        err
        == f"hermes: gone: {gone} has no plugin.yaml\nA directory plugin has plugin.yaml and __init__.py at its root.\n"
    )
    assert "by-hand" not in err
    assert main(["plugins", "update", "by-hand"]) == 1
    assert "it is not known where by-hand came from" in capsys.readouterr().err
    assert main(["plugins", "update"]) == 2


def test_remove_keeps_files_settings_and_data_and_names_them(
    home: Path, installed: Path, write_plugin: Write, capsys: Capture
) -> None:
    place = home / "plugins" / "calc"
    (place / "plugin.yaml").write_text("name: calc\nrequires_env: [CALC_KEY, SHARED_KEY]\n")
    write_plugin("other", manifest="name: other\nrequires_env: [SHARED_KEY]\n")
    (home / ".env").write_text("CALC_KEY=x\nSHARED_KEY=y\n")
    (home / "data" / "calc").mkdir(parents=True)
    (home / "config.yaml").write_text(
        "plugins:\n  enabled: [calc, other]  # mine\n  entries:\n    calc: {allow_tool_override: true}\n"
    )

    assert main(["plugins", "remove", "calc"]) == 1
    assert "no user can be asked here" in capsys.readouterr().err
    assert main(["plugins", "remove", "calc", "--yes"]) == 0

    [aside] = (home / "plugins" / ".removed").iterdir()
    assert capsys.readouterr().out.splitlines() == [
        "Removed calc.",
        f"  left: its files: {aside}",
        f"  left: in {home}/.env: CALC_KEY (`hermes config unset NAME`)",
        "  left: its settings: plugins.entries.calc (`hermes config unset plugins.entries.calc`)",
        f"  left: its data: {home}/data/calc",
    ]
    assert (aside / "__init__.py").exists()
    assert "calc" not in json.loads((home / "plugins_trust.json").read_text())["plugins"]
    assert "enabled: [other]" in (home / "config.yaml").read_text()
    assert "calc" not in status(capsys)


def test_a_link_is_removed_and_not_what_it_leads_to(
    home: Path, write_plugin: Write, tmp_path: Path, capsys: Capture
) -> None:
    work = write_plugin("mine", root=tmp_path / "work")
    (home / "plugins" / "mine").symlink_to(work)

    assert main(["plugins", "rm", "mine", "-y"]) == 0

    assert f"left: {work}, which the link led to" in capsys.readouterr().out
    assert (work / "plugin.yaml").exists()
    assert os.listdir(home / "plugins") == []


def test_one_that_cannot_be_used_is_removed_by_its_folder(home: Path, write_plugin: Write) -> None:
    write_plugin("broken", manifest="name: [")

    assert main(["plugins", "remove", "broken", "--yes"]) == 0
    assert os.listdir(home / "plugins") == [".removed"]


def test_what_is_not_of_the_home_is_not_removed(
    home: Path, write_plugin: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    write_plugin("b", root=tmp_path / "bundled")
    write_plugin("d", root=tmp_path / "declared")
    monkeypatch.setenv("HERMES_BUNDLED_PLUGINS", f"{tmp_path}/bundled:{tmp_path}/declared")
    for name, text in (("b", "came with the agent"), ("d", "services.hermes-agent.extraPlugins")):
        assert main(["plugins", "remove", name, "--yes"]) == 1
        assert text in capsys.readouterr().err


def test_info_has_everything_that_is_known(
    home: Path, installed: Path, git: Git, start: Start, capsys: Capture
) -> None:
    commit = publish(installed, git)
    main(["plugins", "update", "calc", "--yes"])
    (home / "config.yaml").write_text("plugins:\n  enabled: [calc]\n")
    start(enable=("calc",))
    capsys.readouterr()

    assert main(["plugins", "info", "calc"]) == 0

    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    rows = {words[0]: words[-1] for words in lines}
    assert lines[0] == ["calc", "2.0.0: A calculator"]
    assert rows["status"] == "enabled"
    assert rows["source"] == f"user, {home}/plugins/calc"
    assert rows["from"].startswith(f"file://{installed}, commit {commit[:12]}, installed 20")
    assert rows["pinned"].startswith("3 files, sha256 ")
    assert rows["tools"] == "add, fetch"
    assert rows["hooks"] == "kanban_task_claimed (never called)"

    main(["plugins", "info", "calc", "--json"])
    about = json.loads(capsys.readouterr().out)
    assert about["hooks_never_fired"] == ["kanban_task_claimed"]
    assert about["pin"]["state"] == "pinned"
    assert about["origin"]["commit"] == commit


def test_info_of_one_that_failed_or_changed_says_why(
    home: Path, write_plugin: Write, start: Start, capsys: Capture
) -> None:
    place = write_plugin("bad", "def register(ctx):\n    raise ValueError('no')\n", "name: bad\nkind: odd\n")
    write_plugin("wants", manifest="name: wants\nrequires_env: [SOME_KEY]\n")
    start(enable=("bad", "wants"))

    main(["plugins", "info", "bad"])
    out = capsys.readouterr().out
    assert f"failed: ValueError: no ({place}/__init__.py:2)" in out
    assert "note" in out
    assert "unknown kind 'odd'" in out
    main(["plugins", "info", "wants"])
    assert "SOME_KEY (missing)" in capsys.readouterr().out
    (place / "__init__.py").write_text("")
    main(["plugins", "info", "bad"])
    assert "changed: changed since it was granted: __init__.py" in capsys.readouterr().out
    assert main(["plugins", "info", "badd"]) == 1
    assert "did you mean `bad`?" in capsys.readouterr().err
