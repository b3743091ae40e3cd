"""The working directory of a session is the one that it was opened with, whatever a link makes of its path later."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hermes_agent.config.home import FileAccess
from hermes_agent.workspace.paths import PathRules, closed_reason


@pytest.fixture
def inside(boxed) -> tuple[Path, Path]:
    """Return a directory inside of another session's working directory, and one that belongs to neither."""
    mine, elsewhere = boxed.cwd / "mine", boxed.cwd.parent / ".config" / "app"
    mine.mkdir()
    elsewhere.mkdir(parents=True)
    (elsewhere / "settings").write_text("harmless\n")
    return mine, elsewhere


def exchange(place, mine: Path, elsewhere: Path) -> None:
    """Have a command of the session around it replace the directory by a link."""
    done = place.outcome("terminal", {"command": f"rmdir mine && ln -s {elsewhere} mine"}, session="around")
    assert mine.is_symlink(), done.result


def test_a_command_does_not_run_where_a_link_leads_that_took_the_place_of_its_directory(boxed, inside) -> None:
    mine, elsewhere = inside
    assert '"exit_code": 0' in boxed.outcome("terminal", {"command": "pwd"}, cwd=mine).result
    boxed.task = "around"
    boxed.person.answer = "once"
    exchange(boxed, mine, elsewhere)
    boxed.task = "t"
    boxed.person.asked.clear()

    result = boxed.outcome("terminal", {"command": "echo x > made; cat settings"}, cwd=mine).result
    assert f"leads to {elsewhere} now" in result and "harmless" not in result
    assert [file.name for file in elsewhere.iterdir()] == ["settings"]
    assert boxed.person.asked == []

    mine.unlink()
    mine.mkdir()  # as it was
    assert '"exit_code": 0' in boxed.outcome("terminal", {"command": "echo x > made"}, cwd=mine).result
    assert (mine / "made").exists()


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("read_file", {"path": "settings"}),
        ("write_file", {"path": "settings", "content": "mine"}),
        ("patch", {"mode": "replace", "path": "settings", "old_string": "harmless", "new_string": "mine"}),
        ("search_files", {"pattern": "harm"}),
    ],
)
def test_a_file_tool_does_not_follow_it_either(boxed, inside, tool, args) -> None:
    mine, elsewhere = inside
    boxed.person.answer = "once"
    shutil.rmtree(mine)
    mine.symlink_to(elsewhere)
    result = boxed.outcome(tool, args, cwd=mine).result
    assert f"leads to {elsewhere} now" in result
    assert (elsewhere / "settings").read_text() == "harmless\n"


def test_a_process_in_the_background_does_not_begin_there(boxed, inside) -> None:
    mine, elsewhere = inside
    shutil.rmtree(mine)
    mine.symlink_to(elsewhere)
    result = boxed.outcome("terminal", {"command": "echo x > made; sleep 9", "background": True}, cwd=mine).result
    assert f"leads to {elsewhere} now" in result
    assert not (elsewhere / "made").exists()


def test_a_link_higher_up_is_found_too(boxed, inside) -> None:
    mine, elsewhere = inside
    deep = mine / "deep"
    deep.mkdir()
    (elsewhere / "deep").mkdir()
    shutil.rmtree(mine)
    mine.symlink_to(elsewhere)
    assert f"leads to {elsewhere}/deep now" in boxed.outcome("terminal", {"command": "pwd"}, cwd=deep).result


def test_those_who_open_files_by_themselves_do_not_take_the_target_for_the_place_of_the_work(tmp_path: Path) -> None:
    home = Path.home()
    hidden = home / ".a-hidden-directory" / "file"
    mine = tmp_path / "mine"
    mine.symlink_to(hidden.parent)
    assert PathRules(str(tmp_path / "agent"), str(home)).unlisted_reason(str(hidden)) is not None
    assert closed_reason("file", tmp_path / "agent", mine, FileAccess()) is not None


@pytest.mark.parametrize("home", [".hermes", ".hermes/profiles/work"])
def test_in_the_directory_of_the_daemon_nobody_is_asked_and_the_home_around_it_asks(tmp_path: Path, home: str) -> None:
    user = tmp_path / "user"
    agent = user / home
    rules = PathRules(str(agent), str(user))
    work = f"{agent}/workspace"
    assert rules.write_concern(f"{work}/note.txt", work) is None
    assert rules.write_concern(f"{work}/sub/config.yaml", f"{work}/sub") is None
    assert rules.for_cwd(work).closed_reason(f"{work}/note.txt") is None
    for name in ("config.yaml", "skills/mine/SKILL.md", "workspace-of-mine/x"):
        assert rules.write_concern(f"{agent}/{name}", work).sensitive
    assert rules.write_concern(f"{work}/.envrc", work).sensitive
    assert rules.write_concern(f"{work}/note.txt", f"{work}/sub").sensitive
    assert rules.write_concern(f"{work}/note.txt", str(user / "project")).sensitive  # a session that works elsewhere


def test_commands_processes_and_checkpoints_are_at_work_in_the_directory_of_the_daemon(place_with) -> None:
    boxed = place_with("terminal: {sandbox: auto}\ncheckpoints: {enabled: true}\n")
    sandbox = boxed.registry.get("terminal").handler.loaded.shells.backend.sandbox
    if not sandbox.works:
        pytest.skip(f"no sandbox can be made here: {sandbox.problem}")
    work = boxed.home / "workspace"
    work.mkdir()
    (boxed.home / ".env").write_text("KEY=a-secret-of-the-home\n")
    (work / "old").write_text("before\n")

    def run(**args: object) -> str:
        return boxed.outcome("terminal", args, cwd=work).result

    assert '"exit_code": 0' in run(command="echo after > old; mkdir -p deep && echo x > deep/made")
    assert (work / "old").read_text() == "after\n"
    handler = boxed.registry.get("terminal").handler.loaded
    assert handler.context.checkpoints.all(str(work)), "nothing can be put back"
    (work / "look.sh").write_text("cat ../.env; cat ~/.hermes/.env\n")  # a command that names them asks
    assert "a-secret" not in run(command="sh look.sh")
    assert "set_aside" in run(command="mkdir .vscode") and not (work / ".vscode").exists()
    assert "Background process started" in run(command="echo y > by-process", background=True)
    for process in list(boxed.registry.get("process").handler.loaded.processes._known.values()):
        boxed.outcome("process", {"action": "wait", "session_id": process.id, "timeout": 20}, cwd=work)
    assert (work / "by-process").read_text() == "y\n"
    assert boxed.person.asked == []
