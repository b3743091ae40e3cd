"""`/undo`, `/rollback` and `hermes rollback`: what the agent changed is put back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hermes_agent.app.main import main
from hermes_agent.testing import call, plugin_host
from hermes_agent.testing.chat import chat_host
from hermes_agent.workspace.checkpoints import CheckpointLimits, Checkpoints, GitError
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.shadow_repository import Checkpoint

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")

WRITES = call("write_file", path="a.txt", content="new\n")
MOVES = call("terminal", command="mv a.txt b.txt")


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("old\n")
    return folder


def settings(project: Path, **more) -> dict[str, object]:
    terminal = {"cwd": str(project), "sandbox": "off"}
    return {"checkpoints": {"enabled": True}, "terminal": terminal, "approvals": {"mode": "off"}, **more}


def names(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_undo_forgets_the_turn_and_puts_back_what_it_changed(project):
    model = ["hello", WRITES, MOVES, "done", "as if nothing had been"]
    with plugin_host(model=model, config=settings(project)) as host:
        host.ask("hi")
        host.ask("write it, and move it")
        assert names(project) == {"b.txt": "new\n"}

        said = host.run_command("/undo")
        assert said.startswith(
            f"Forgotten: write it, and move it\nPut back in {project}:\n  a.txt\n  b.txt (removed)\n"
        )
        assert names(project) == {"a.txt": "old\n"}
        host.ask("and now")
        asked = [m["content"] for m in host.model.requests[-1]["messages"] if m["role"] == "user"]
        assert asked == ["hi", "and now"]
        assert host.run_command("/undo") == "Forgotten: and now"
        assert host.run_command("/undo") == "Forgotten: hi"
        assert host.run_command("/undo") == "There is nothing to forget."


def test_undo_tells_why_the_files_stay_when_what_was_kept_cannot_be_used(project):
    with plugin_host(model=[WRITES, "done"], config=settings(project)) as host:
        host.ask("write")
        (lock,) = (host.home / "checkpoints").glob("*/lock")
        lock.unlink()
        lock.symlink_to(lock)  # cannot be opened
        assert host.run_command("/undo").startswith("Forgotten: write\nThe files stay as they are: ")
    assert names(project) == {"a.txt": "new\n"}


def test_in_a_chat_undo_and_rollback_work_the_same(project):
    with chat_host(model=[WRITES, "done", "more"], config=settings(project)) as chat:
        chat.ask("write")
        listed = chat.ask("/rollback")
        assert "before write_file a.txt" in listed
        chat.write("/undo now")
        chat.wait(lambda: "  a.txt" in "\n".join(chat.texts), "the undoing")
        assert names(project) == {"a.txt": "old\n"}


def test_rollback_lists_shows_and_restores_by_number(project):
    with plugin_host(model=[WRITES, "done"], config=settings(project)) as host:
        assert host.run_command("/rollback") == "There are no checkpoints of this folder yet."
        host.ask("write")
        assert "  1  " in host.run_command("/rollback")
        assert "-old\n+new\n" in host.run_command("/rollback diff 1")
        assert "a.txt" in host.run_command("/rollback 1 a.txt")
        assert names(project) == {"a.txt": "old\n"}
        assert host.run_command("/rollback diff 2") == "Nothing is different."
        assert "there is no checkpoint 'x'" in host.run_command("/rollback x")
        assert "is not in" in host.run_command("/rollback 1 /etc/passwd")
        id_ = host.run_command("/rollback").splitlines()[1].split()[1]
        assert host.run_command(f"/rollback diff {id_[:4]}") == "Nothing is different."
        assert host.run_command("/rollback diff 3").startswith("there is no checkpoint '3': numbers go from 1 to ")


def test_where_none_are_made_it_is_said_how_to_have_them(project):
    with plugin_host(model=[WRITES, "done"], config=settings(project, checkpoints={"enabled": False})) as host:
        host.ask("write")
        assert "checkpoints.enabled" in host.run_command("/rollback")
        assert host.run_command("/undo") == "Forgotten: write"


def test_a_command_that_only_reads_makes_no_checkpoint(project):
    reads = ["ls -l | head -3", "cat a.txt", "git status", "grep -r x ."]
    answers = [call("terminal", command=command) for command in reads]
    with plugin_host(
        model=[*answers, "done", call("terminal", command="ls > b"), "done"], config=settings(project)
    ) as host:
        host.ask("look")
        assert host.run_command("/rollback") == "There are no checkpoints of this folder yet."
        host.ask("write")
        assert "before terminal ls > b" in host.run_command("/rollback")


@pytest.fixture
def kept(project, tmp_path, monkeypatch):
    """A home whose agent changed `a.txt`, as the command line sees it."""
    with plugin_host(model=[WRITES, "done"], config=settings(project)) as host:
        host.ask("write")
        home = tmp_path / "home"
        shutil.copytree(host.home, home)
    monkeypatch.setenv("HERMES_HOME", str(home))
    monkeypatch.chdir(project)
    return project


def test_the_command_lists_shows_and_restores(kept, capsys, monkeypatch):
    assert main(["rollback", "list", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["folder"], found["why"]) == (str(kept), "write_file a.txt")
    assert main(["rollback"]) == 0
    assert found["id"] in capsys.readouterr().out
    assert main(["rollback", "diff", found["id"]]) == 0
    assert "-old\n+new\n" in capsys.readouterr().out

    assert main(["rollback", "restore", found["id"]]) == 1
    assert "Add --yes" in capsys.readouterr().err
    assert names(kept) == {"a.txt": "new\n"}
    assert main(["rollback", "restore", found["id"], "a.txt", "--yes"]) == 0
    assert names(kept) == {"a.txt": "old\n"}
    assert main(["rollback", "prune"]) == 0
    assert main(["rollback", "restore", "abcdef12", "--yes"]) == 1
    assert "there is no checkpoint 'abcdef12'" in capsys.readouterr().err


def test_the_command_takes_the_numbers_that_it_prints(kept, capsys, tmp_path, monkeypatch):
    assert main(["rollback", "diff", "1"]) == 0
    assert "-old\n+new\n" in capsys.readouterr().out
    assert main(["rollback", "restore", "1", "--yes"]) == 0
    assert names(kept) == {"a.txt": "old\n"}
    capsys.readouterr()
    assert main(["rollback", "list"]) == 0
    listed = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert [number for number, _ in listed] == ["1", "2"]
    assert main(["rollback", "restore", "1", "a.txt", "--yes"]) == 0, "1 is the state before the restore now"
    assert names(kept) == {"a.txt": "new\n"}

    for wrong in ("0", "99", "-1", "x"):
        assert main(["rollback", "diff", "--", wrong]) == 1
        assert f"there is no checkpoint '{wrong}': numbers go from 1 to 3" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path / "home")
    assert main(["rollback", "diff", "1"]) == 1, "a number is that of this folder"
    assert main(["rollback", "diff", listed[1][1]]) == 0, "an id is that of any folder"
    capsys.readouterr()
    assert main(["rollback", "list", "--all"]) == 0
    assert listed[1][1] in [line.split()[0] for line in capsys.readouterr().out.splitlines()], "no numbers here"


def test_a_beginning_that_several_ids_have_is_refused_with_their_names(kept):
    found = [Checkpoint(f"1234{n}bcdef", f"r{n}", n, str(kept), None, "", "", "x", (), ()) for n in (1, 2)]

    class Two(Checkpoints):
        def all(self, near: str = "") -> list[Checkpoint]:
            return found

    checkpoints = Two(kept, PathRules("", ""), CheckpointLimits(), {})
    assert checkpoints.choose("2") is found[1] and checkpoints.choose("12342") is found[1]
    with pytest.raises(GitError, match=r"several checkpoints begin with '1234': 12341bcdef .*, 12342bcdef "):
        checkpoints.choose("1234")


def test_from_another_folder_it_is_said_that_there_are_others(kept, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path / "home")

    assert main(["rollback", "list"]) == 0
    assert "--all" in capsys.readouterr().out
    assert main(["rollback", "list", "--all"]) == 0
    assert str(kept) in capsys.readouterr().out
