"""What other programs of the user run or obey later cannot be planted: not by commands, not by file tools."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from contracts.terminal_places import Place, bundled, program
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox
from hermes_agent.workspace.sandbox.file_rules import ANYWHERE, IN_HOME, is_harmless_key, steering_reason
from hermes_agent.workspace.sandbox.steering_watch import FRESH_NS, SteeringDirectory, SteeringFiles, read_directory

GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
FULL = bool(os.environ.get("HERMES_ATTACK_FULL"))
REPOSITORY = "mkdir -p {0} && git init -q {0}"


def git(*words: str, cwd: Path) -> str:
    return subprocess.run([*GIT, *words], cwd=cwd, env=ENV, capture_output=True, text=True).stdout


def run(boxed, command: str) -> dict:
    """Run a command in the sandbox, from a script, so that nothing recognises it."""
    (boxed.cwd / "run.sh").write_text(command)
    result = boxed.call("terminal", command="sh run.sh")
    assert boxed.person.asked == [], boxed.person.asked
    assert "exit_code" in result, result
    return result


def ran(boxed, place: str) -> bool:
    """Do in a directory what a person and their editor do there; say whether anything of it ran a planted program."""
    there = boxed.cwd / place
    if there.is_dir():
        for words in (["status"], ["add", "-A"], ["commit", "-q", "--allow-empty", "-m", "x"], ["log", "-1"], ["x"]):
            git(*words, cwd=there)
        for words in (["fetch", "-q", "--all"], ["diff"], ["rebase", "--continue"], ["submodule", "update"]):
            git(*words, cwd=there)
    return any(boxed.cwd.rglob("planted"))


HOOK = "#!/bin/sh\\ntouch $(git rev-parse --show-toplevel || pwd)/planted\\n"
KEYS = "[core]\\n\\tfsmonitor = touch planted\\n\\tpager = touch planted\\n[alias]\\n\\tx = !touch planted\\n"
WAYS = {
    "hook": f"mkdir -p {{0}}/.git/hooks; printf '{HOOK}' > {{0}}/.git/hooks/pre-commit; chmod +x {{0}}/.git/hooks/*",
    "config": f"printf '{KEYS}' >> {{0}}/.git/config",
    "include": f"printf '{KEYS}' > {{0}}/keys; printf '[include]\\n\\tpath = ../keys\\n' >> {{0}}/.git/config",
    "hooks path": f"mkdir -p {{0}}/h; printf '{HOOK}' > {{0}}/h/pre-commit; chmod +x {{0}}/h/pre-commit;"
    " printf '[core]\\n\\thooksPath = h\\n' >> {0}/.git/config",
    "worktree config": "printf '[core]\\n\\trepositoryformatversion = 1\\n[extensions]\\n\\tworktreeConfig = true\\n'"
    f" >> {{0}}/.git/config; printf '{KEYS}' > {{0}}/.git/config.worktree",
    "common directory": f"cp -r {{0}}/.git {{0}}/other; printf '{KEYS}' >> {{0}}/other/config;"
    " echo ../other > {0}/.git/commondir",
    "a link for config": f"printf '{KEYS}' > {{0}}/keys; ln -sf ../keys {{0}}/.git/config",
    "a link for hooks": f"mkdir -p {{0}}/h; printf '{HOOK}' > {{0}}/h/pre-commit; chmod +x {{0}}/h/pre-commit;"
    " rm -rf {0}/.git/hooks; ln -s ../h {0}/.git/hooks",
    "a link for .git": f"mv {{0}}/.git {{0}}/real; ln -s real {{0}}/.git; printf '{KEYS}' >> {{0}}/real/config",
    "a file for .git": "mv {0}/.git {0}/real; echo 'gitdir: real' > {0}/.git;"
    f" printf '{KEYS}' >> {{0}}/real/config",
    "a rebase": "mkdir -p {0}/.git/rebase-merge; cd {0}; git -c user.name=a -c user.email=a@b commit -q --allow-empty"
    " -m x; cd .git/rebase-merge; git rev-parse HEAD | tee onto orig-head >/dev/null; echo refs/heads/main > head-name;"
    " touch interactive done; echo 1 | tee msgnum end >/dev/null; echo 'exec touch planted' > git-rebase-todo",
}


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
@pytest.mark.parametrize("place", ["new", "a/b/new", "node_modules/new", ".hidden/new"] if FULL else ["a/new"])
@pytest.mark.parametrize("way", WAYS)
def test_nothing_runs_by_a_repository_that_a_command_makes(boxed, way: str, place: str, attempt) -> None:
    run(boxed, f"{REPOSITORY.format(place)}; {WAYS[way].format(place)}; true")
    attempt(not ran(boxed, place), f"{way} in {place}")


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
@pytest.mark.parametrize("place", [".", "sub", "node_modules/dep"] if FULL else ["node_modules/dep"])
@pytest.mark.parametrize("way", WAYS)
def test_nothing_runs_by_a_repository_that_was_there(boxed, way: str, place: str, attempt) -> None:
    there = boxed.cwd / place
    there.mkdir(parents=True, exist_ok=True)
    git("init", "-q", ".", cwd=there)
    run(boxed, f"{WAYS[way].format(place)}; true")
    attempt(not ran(boxed, place), f"{way} in {place}")


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
def test_a_place_of_work_in_the_agent_s_home_is_protected_like_others(boxed, attempt) -> None:
    place = boxed.home / "workspace"
    hook = place / ".git/hooks/pre-commit"
    for path in (hook, place / ".envrc", place / "run.sh"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("echo x >> .envrc; echo x >> .git/hooks/pre-commit; touch made")
    before = hook.read_text()
    boxed.outcome("terminal", {"command": "sh run.sh"}, cwd=place)
    attempt(hook.read_text() == before and (place / ".envrc").read_text() == before, "changed")
    assert (place / "made").exists()


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
@pytest.mark.parametrize("where", ["in it", "above", "a linked work tree", "of the user"])
@pytest.mark.parametrize("setting", ["core.hooksPath", "include.path"])
def test_what_a_config_of_the_person_s_names_is_not_changed(boxed, where: str, setting: str, attempt) -> None:
    above, work = boxed.cwd.parent / "main", boxed.cwd
    for place in (above, work / "sub") if where == "of the user" else (above,):
        place.mkdir()
        git("init", "-q", ".", cwd=place)
    git("commit", "-q", "--allow-empty", "-m", "x", cwd=above)
    if where == "in it":
        git("init", "-q", ".", cwd=work)
        git("config", setting, "steer" if "hooks" in setting else "../steer/x", cwd=work)
    elif where == "a linked work tree":
        git("worktree", "add", "-q", "--force", str(work), cwd=above)
        git("config", setting, "steer" if "hooks" in setting else str(work / "steer/x"), cwd=above)
    elif where == "above":
        git("init", "-q", ".", cwd=work.parent)
        git("config", setting, "project/steer" if "hooks" in setting else "../project/steer/x", cwd=work.parent)
    else:
        (boxed.home.parent / ".gitconfig").write_text(
            f"[{setting.split('.')[0]}]\n\t{setting.split('.')[1]} = {work}/steer{'' if 'hooks' in setting else '/x'}\n"
        )
    (work / "steer").mkdir()
    for name in ("x", "pre-commit"):
        (work / "steer" / name).write_text("the person's")
    run(boxed, "for f in x pre-commit post-merge; do echo planted > steer/$f; done; true")
    live = {path.name: path.read_text() for path in (work / "steer").iterdir()}
    if "hooks" in setting:
        attempt(live.get("pre-commit") == "the person's" and "post-merge" not in live, f"{setting} {where}: {live}")
    else:
        attempt(live.get("x") == "the person's", f"{setting} {where}: {live}")


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
@pytest.mark.parametrize("name", [".git/hooks", ".git", ".vscode", "a/.idea/x", "bare/hooks"])
def test_a_place_that_steers_programs_is_no_place_of_work(boxed, name: str) -> None:
    for path in ("bare/objects", "bare/refs", name):
        (boxed.cwd / path).mkdir(parents=True, exist_ok=True)
    boxed.outcome("terminal", {"command": "touch planted"}, cwd=boxed.cwd / name)
    assert not (boxed.cwd / name / "planted").exists()


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
def test_hooks_of_mercurial_are_not_planted(boxed) -> None:
    run(boxed, "mkdir -p r/.hg; printf '[hooks]\\ncommit = touch planted\\n' > r/.hg/hgrc")
    assert not (boxed.cwd / "r/.hg/hgrc").exists()


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
def test_a_bare_repository_needs_no_name_to_be_found(boxed, attempt) -> None:
    run(boxed, f"git init -q --bare docs; printf '{KEYS}' >> docs/config; printf '\\tbare = false\\n' >> docs/config")
    attempt(not ran(boxed, "docs"), "config of a bare repository")
    run(boxed, f"mkdir -p x/objects x/refs; echo 'ref: refs/heads/main' > x/HEAD; printf '{KEYS}' > x/config")
    attempt(not ran(boxed, "x"), "a directory made by hand")


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
def test_a_work_tree_elsewhere_is_not_set(boxed, attempt) -> None:
    home = boxed.home.parent
    run(boxed, f"git init -q r; ln -s {home} r/out; git -C r config core.worktree {home}; git -C r config a.b c")
    attempt("worktree" not in (boxed.cwd / "r/.git/config").read_text(), "the home")
    run(boxed, "git init -q s; ln -s ../.. s/out; git -C s config core.worktree ../out")
    attempt("worktree" not in (boxed.cwd / "s/.git/config").read_text(), "a link to the home")


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
def test_every_name_of_the_table_is_set_aside(boxed, attempt) -> None:
    names = sorted({*ANYWHERE, ".Rprofile", ".ExternalToolBuilders", "X.CODE-WORKSPACE"})
    run(boxed, f"mkdir -p a/b; cd a/b; touch {' '.join(names)}")
    for name in names:
        attempt(not (boxed.cwd / "a/b" / name).exists() and (boxed.cwd / "a/b" / f"{name}.held").exists(), name)


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
def test_what_one_command_prepares_another_cannot_put_in_place(boxed, attempt) -> None:
    run(boxed, f"mkdir -p stuff/hooks; printf '{HOOK}' > stuff/hooks/pre-commit; chmod +x stuff/hooks/pre-commit")
    run(boxed, f"printf '{KEYS}' > stuff/config")
    run(
        boxed,
        "mkdir new; mv stuff new/.git; mkdir new/.git/objects new/.git/refs; echo ref: refs/heads/m > new/.git/HEAD",
    )
    attempt(not ran(boxed, "new"), "a repository in pieces")
    run(boxed, "mkdir a; echo x > a/settings.json; mkdir -p p/q")
    run(boxed, "mv a p/q/.vscode")
    attempt(not (boxed.cwd / "p/q/.vscode").exists(), "a directory that gets its name later")
    run(boxed, "mv p/q/.vscode.held p/q/.vscode")
    attempt(not (boxed.cwd / "p/q/.vscode").exists(), "what was set aside, called back")


NAMES = ".envrc .vscode/tasks.json .idea/workspace.xml .zed/settings.json .exrc x.code-workspace .VSCode/tasks.json"


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
@pytest.mark.parametrize("name", NAMES.split() if FULL else [".envrc", ".vscode/tasks.json"])
def test_what_editors_and_shells_obey_is_set_aside_at_any_depth(boxed, name: str, attempt) -> None:
    for place in (".", "a", "a/b/c/d", "node_modules/x", ".git/objects"):
        path = f"{place}/{name}"
        result = run(boxed, f"mkdir -p $(dirname {path}); echo planted > {path}")
        attempt(not (boxed.cwd / path).exists(), path)
        assert ".held" in result["set_aside"] and "`write_file`" in result["set_aside"]
    assert sum(file.read_text() == "planted\n" for file in boxed.cwd.rglob("*") if file.is_file()) == 5


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
@pytest.mark.parametrize("name", NAMES.split() if FULL else [".envrc", ".vscode/tasks.json"])
@pytest.mark.parametrize(
    "command",
    [
        "echo planted > {0}",
        "mv $(dirname {0}) old; mkdir -p $(dirname {0}); echo planted > {0}",
        "mv {1} old; mkdir -p $(dirname {0}); echo planted > {0}",
        "cp -r {1} copy; rm -rf {1}; mv copy {1}; echo planted > {0}",
    ],
)
def test_what_they_obey_already_is_not_changed(boxed, name: str, command: str, attempt) -> None:
    for place in ("a/b", "node_modules/x"):
        path = boxed.cwd / place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("the person's")
        top = f"{place}/{name.split('/')[0]}"
        run(boxed, command.format(f"{place}/{name}", top) + "; true")
        attempt(not path.exists() or path.read_text() == "the person's", f"{place}/{name}")


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
def test_a_directory_too_deep_to_be_named_is_looked_into(boxed, attempt) -> None:
    deep = "import os\nfor _ in range(60):\n    os.mkdir('d' * 100); os.chdir('d' * 100)\nopen('.envrc', 'w').close()\n"
    (boxed.cwd / "deep.py").write_text(deep)
    result = run(boxed, "python3 deep.py")
    attempt(".envrc.held" in result.get("set_aside", ""), str(result)[:200])


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
@pytest.mark.parametrize("tool", ["write_file", "patch"])
def test_file_tools_ask_about_each_content_of_what_others_obey(boxed, tool: str, attempt) -> None:
    places = [
        *NAMES.split(),
        ".git/hooks/pre-commit",
        ".git/config",
        ".hg/hgrc",
        "docs/config",
        "docs/hooks/pre-commit",
    ]
    (boxed.cwd / "docs/objects").mkdir(parents=True)
    (boxed.cwd / "docs/refs").mkdir()
    home = boxed.home.parent
    for path in [*(f"{place}/{name}" for name in places for place in (".", "a/b")), f"{home}/bin/ls"]:
        if path.startswith("a/b/docs"):
            continue
        args = {"path": path, "content": "x"}
        if tool == "patch":
            args = {"mode": "patch", "patch": f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"}
        boxed.person.asked.clear()
        boxed.call(tool, **args)
        attempt(len(boxed.person.asked) == 1 and not (boxed.cwd / path).exists(), f"{tool} {path}")


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
def test_an_answer_for_the_session_covers_one_content_alone(boxed) -> None:
    boxed.person.answer = "session"
    for number, content in enumerate(["a", "a", "b"]):
        boxed.call("write_file", path=".envrc", content=content)
        assert len(boxed.person.asked) == (1, 1, 2)[number]


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
def test_a_bare_repository_is_not_put_together_by_write_file(boxed) -> None:
    for path in ("x/HEAD", "x/config", "x/objects/a", "x/refs/a"):
        boxed.call("write_file", path=path, content="x")
    assert [request.summary for request in boxed.person.asked] == [
        "write a file in a git repository without a work tree"
    ]


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
def test_the_home_as_working_directory_is_no_project(boxed) -> None:
    home = boxed.home.parent
    boxed.outcome("write_file", {"path": "notes.txt", "content": "x"}, cwd=home)
    assert [request.summary for request in boxed.person.asked] == [
        "write a file in the home directory, which is not a project"
    ]


def test_a_command_in_the_home_is_told_how_to_write(boxed) -> None:
    home = boxed.home.parent
    result = json.loads(boxed.outcome("terminal", {"command": "echo x > notes.txt"}, cwd=home).result)
    assert result["exit_code"] == 1 and not (home / "notes.txt").exists()
    assert result["note"].startswith(f"commands cannot write in {home}") and "`write_to`" in result["note"]
    elsewhere = boxed.outcome("terminal", {"command": "echo x > /usr/notes.txt"})
    assert "note" not in json.loads(elsewhere.result), "the working directory itself can be written"


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
@pytest.mark.parametrize(
    "name", [".config", ".local", ".local/share", ".config/autostart", ".ssh", "bin", ".vim/plugin"]
)
def test_a_part_of_the_home_that_steers_programs_is_no_place_of_work(boxed, name: str) -> None:
    place = boxed.home.parent / name
    place.mkdir(parents=True)
    boxed.outcome("terminal", {"command": "touch planted"}, cwd=place)
    assert not (place / "planted").exists()


def test_the_table_of_the_home_has_no_project_in_it() -> None:
    places = PathRules("/home/ann/.hermes", "/home/ann")
    assert all(not BubblewrapSandbox(places).is_writable(f"/home/ann/{name}") for name in IN_HOME)
    assert all(
        BubblewrapSandbox(places).is_writable(f"/home/ann/{name}") for name in ("work", ".config/mine", ".dotfiles")
    )


# -- what is left alone ----------------------------------------------------------------------------------------


def test_a_repository_is_made_cloned_and_used_in_the_sandbox(boxed) -> None:
    command = (
        "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b;"
        "git init -q one && cd one && echo x > f && git add f && git commit -qm x && cd .. && git clone -q one two &&"
        " git -C two checkout -q -b topic && git -C two config user.name b && git -C two worktree add -q ../three &&"
        " git -C two -c protocol.file.allow=always submodule add ../one sub"
    )
    result = run(boxed, command)
    assert result["exit_code"] == 0
    assert result["set_aside"].startswith("two/.git/modules/sub/config lost core.worktree (all of it: config.held). ")
    assert git("status", "--short", cwd=boxed.cwd / "two/sub") == ""
    assert git("status", "--short", cwd=boxed.cwd / "two") == "A  .gitmodules\nA  sub\n"
    assert git("status", "--short", cwd=boxed.cwd / "three") == ""
    assert run(boxed, "rm -rf one two three")["exit_code"] == 0


def test_a_config_loses_what_runs_programs_and_keeps_the_rest_and_what_was_there(boxed) -> None:
    there = boxed.cwd / "node_modules/dep"  # not mounted over
    there.mkdir(parents=True)
    git("init", "-q", ".", cwd=there)
    git("config", "alias.mine", "!true", cwd=there)
    commands = ("user.name 'a \"b\" \\ c'", "core.pager evil", "remote.o.url https://example.org/x", "alias.x '!evil'")
    result = run(boxed, "; ".join(f"git -C node_modules/dep config {words}" for words in commands))
    path = "node_modules/dep/.git/config"
    assert result["set_aside"].startswith(f"{path} lost alias.x, core.pager (all of it: config.held). Other")
    kept = git("config", "--local", "--list", cwd=there).splitlines()
    assert {"alias.mine=!true", 'user.name=a "b" \\ c', "remote.o.url=https://example.org/x"} < set(kept)
    assert not any(line.startswith(("core.pager", "alias.x")) for line in kept)
    assert "evil" in (there / ".git/config.held").read_text()


def test_what_the_person_has_is_left_alone_and_can_be_removed_with_dependencies(boxed) -> None:
    for path in (".vscode/settings.json", "sub/.envrc", "node_modules/x/.vscode/a.json", ".git/hooks/pre-commit"):
        (boxed.cwd / path).parent.mkdir(parents=True, exist_ok=True)
        (boxed.cwd / path).write_text("the person's")
    result = run(boxed, "cat .vscode/settings.json sub/.envrc && rm -rf node_modules && echo y > sub/file")
    assert result["exit_code"] == 0 and "set_aside" not in result, result
    assert (boxed.cwd / ".git/hooks/pre-commit").read_text() == "the person's"


def test_what_a_person_changes_between_commands_is_theirs(boxed) -> None:
    run(boxed, "true")
    (boxed.cwd / ".vscode").mkdir()
    (boxed.cwd / ".vscode/settings.json").write_text("1")
    assert "set_aside" not in run(boxed, "true")
    (boxed.cwd / ".vscode/settings.json").write_text("2")
    assert "set_aside" not in run(boxed, "true")
    assert (boxed.cwd / ".vscode/settings.json").read_text() == "2"


@pytest.mark.parametrize(
    ("key", "value", "harmless"),
    [
        ("remote.origin.url", "https://example.org/a.b", True),
        ("remote.origin.url", "ext::sh -c evil", False),
        ("remote.origin.uploadpack", "evil", False),
        ("remote.a.b.url", "x", True),
        ("core.sshcommand", "evil", False),
        ("branch.main.merge", "refs/heads/main", True),
        ("filter.lfs.clean", "evil", False),
        ("submodule.x.update", "!evil", False),
        ("url.ext::sh.insteadof", "https://", False),
        ("credential.helper", "!evil", False),
        ("includeif.gitdir:/.path", "x", False),
        ("alias.st", "status", False),
        ("core", "", False),
    ],
)
def test_keys_of_a_repository(key: str, value: str, harmless: bool) -> None:
    assert is_harmless_key(key, value) is harmless


def test_reasons_name_where_a_file_lies() -> None:
    assert steering_reason("/srv/work/src/main.py", "/home/ann") == ""
    assert (
        steering_reason("/srv/work/Makefile", "/home/ann")
        == steering_reason("/srv/work/package.json", "/home/ann")
        == ""
    )
    assert steering_reason("/srv/work/.vscode/x", "/home/ann") == "in .vscode, which other programs of the user obey"
    assert steering_reason("/home/ann/.bashrc", "/home/ann").startswith("that the user's shell")


# -- cost ------------------------------------------------------------------------------------------------------


def test_a_directory_of_a_large_tree_is_read_again_only_when_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2_000):
        (tmp_path / str(number % 40) / str(number)).mkdir(parents=True)
    long_ago = time.time_ns() + 2 * FRESH_NS  # of what was read by then it is known whether it changed
    monkeypatch.setattr(time, "time_ns", lambda: long_ago)
    read: list[str] = []

    def reading(top: int, path: str, now: int) -> SteeringDirectory:
        read.append(path)
        return read_directory(top, path, now)

    files = SteeringFiles(reading)
    files.baseline(str(tmp_path), mounts=True)
    read.clear()
    before = files.baseline(str(tmp_path), mounts=True)
    assert before.set_aside() == [] and read == []
    (tmp_path / "7" / "new").mkdir()
    assert before.set_aside() == [] and sorted(read) == ["7", "7/new"]


# -- background processes --------------------------------------------------------------------------------------


def start(boxed, command: str) -> str:
    """Start a script in the background; return the name of the process."""
    (boxed.cwd / "run.sh").write_text(command)
    result = boxed.call("terminal", command="sh run.sh", background=True)
    assert boxed.person.asked == [] and "session_id" in result, result
    return str(result["session_id"])


def wait_for(condition: Callable[[], bool]) -> bool:
    limit = time.monotonic() + 30
    while not condition() and time.monotonic() < limit:
        time.sleep(0.05)
    return condition()


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
def test_what_a_background_process_plants_is_set_aside_while_it_runs_and_when_it_is_killed(boxed, attempt) -> None:
    name = start(boxed, "mkdir .vscode; sleep 4; echo x > .envrc; touch made; sleep 60")
    attempt(wait_for((boxed.cwd / ".vscode.held").exists), "while it runs")
    assert wait_for((boxed.cwd / "made").exists)
    boxed.call("process", action="kill", session_id=name)
    attempt(not (boxed.cwd / ".envrc").exists() and (boxed.cwd / ".envrc.held").exists(), "when it is killed")
    log = boxed.call("process", action="log", session_id=name)["output"]
    assert "[set aside," in log and ".vscode is .vscode.held now" in log


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
def test_what_it_plants_at_its_end_is_set_aside_and_its_end_is_told(boxed, attempt) -> None:
    name = start(boxed, "git init -q sub; echo '[alias] x = !evil' >> sub/.git/config; exit 7")
    found = boxed.call("process", action="wait", session_id=name)
    attempt("alias" not in (boxed.cwd / "sub/.git/config").read_text(), "at its end")
    assert found["exit_code"] == 7


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
def test_a_guard_that_is_killed_leaves_the_last_look_to_the_agent(boxed, attempt) -> None:
    name = start(boxed, "echo x > .envrc; touch made; sleep 60")
    assert wait_for((boxed.cwd / "made").exists)
    pid = boxed.call("process", action="poll", session_id=name)["pid"]
    os.kill(pid, signal.SIGKILL)
    boxed.call("process", action="wait", session_id=name)
    attempt(not (boxed.cwd / ".envrc").exists(), "after its guard was killed")
    assert not list(boxed.home.rglob("steering.json"))


@pytest.mark.parametrize("tool", ["write_file", "patch"] if FULL else ["write_file"])
def test_what_the_user_lets_a_file_tool_write_stays_beside_a_background_process(boxed, tool: str) -> None:
    name = start(boxed, "sleep 3; echo more >> .vscode/evil.json; mkdir .idea; sleep 60")
    boxed.person.answer = "once"
    args = {"path": ".vscode/settings.json", "content": "{}\n"}
    if tool == "patch":
        args = {"mode": "patch", "patch": "*** Begin Patch\n*** Add File: .vscode/settings.json\n+{}\n*** End Patch"}
    assert "error" not in boxed.call(tool, **args)
    assert wait_for((boxed.cwd / ".idea.held").exists)
    assert (boxed.cwd / ".vscode/settings.json").read_text() == "{}\n"
    assert not (boxed.cwd / ".vscode/evil.json").exists()
    boxed.call("process", action="kill", session_id=name)


# -- the agent dies, containers --------------------------------------------------------------------------------


@pytest.mark.attack("sandbox: planting", at="bubblewrap")
def test_the_next_agent_sets_aside_what_a_command_planted_whose_agent_died(boxed, attempt) -> None:
    (boxed.cwd / "sub/.vscode").mkdir(parents=True)
    (boxed.cwd / "sub/.vscode/a.json").write_text("the person's")
    looks = boxed.home / "cache/looks"
    code = (
        "import sys; from pathlib import Path\n"
        "from hermes_agent.workspace.sandbox.steering_checks import SteeringChecks\n"
        "looks = SteeringChecks(Path(sys.argv[1])); looks.write_note(looks.start_check(sys.argv[2], mounts=False))\n"
        "Path(sys.argv[2], '.envrc').write_text('planted')\n"
    )
    subprocess.run([sys.executable, "-c", code, str(looks), str(boxed.cwd)], check=True)
    assert (boxed.cwd / ".envrc").exists() and len(list(looks.iterdir())) == 1
    run(boxed, "true")
    attempt(not (boxed.cwd / ".envrc").exists() and (boxed.cwd / ".envrc.held").exists(), "an agent that died")
    assert (boxed.cwd / "sub/.vscode/a.json").exists() and not list(looks.iterdir())


@pytest.mark.attack("sandbox: planting")
def test_a_container_that_has_the_working_directory_plants_nothing_in_it(tmp_path: Path, attempt) -> None:
    work = tmp_path / "work"
    work.mkdir()
    backend = bundled("docker", tmp_path, program(tmp_path, "docker"), docker_mount_cwd_to_workspace=True)
    place = Place(backend, str(work))
    done = place(f"echo x > {work}/.envrc; git init -q {work}/a; echo '[alias] x = !y' >> {work}/a/.git/config")
    attempt(not (work / ".envrc").exists() and "alias" not in (work / "a/.git/config").read_text(), str(done.held))
    place.close()


SWAPPER = """
import os
os.symlink("../.kube/config", "link")
open("made", "w").close()
while True:
    for name in ("link", "file"):
        try:
            open("file", "w").close()
            os.symlink("../.kube/config", "link")
        except OSError:
            pass
        try:
            os.rename(name, ".envrc")
        except OSError:
            pass
"""


@pytest.mark.attack("races", at="bubblewrap")
def test_a_process_that_exchanges_a_steering_file_for_a_link_has_nothing_hidden_mounted(boxed, attempt) -> None:
    hidden = boxed.home.parent / ".kube/config"
    hidden.parent.mkdir()
    hidden.write_text("hidden-text")
    (boxed.cwd / "swapper.py").write_text(SWAPPER)
    name = start(boxed, "exec python3 swapper.py")
    assert wait_for((boxed.cwd / "made").exists)
    looks = boxed.registry.get("terminal").handler.loaded.shells.backend.steering
    assert not looks.start_check(str(boxed.cwd), mounts=True).mounts
    for number in range(40 if FULL else 8):
        result = boxed.call("terminal", command="cat .envrc ../.kube/config; true")
        attempt("hidden-text" not in str(result), f"{number}: {result}")
    boxed.call("process", action="kill", session_id=name)
    assert looks.start_check(str(boxed.cwd), mounts=True).mounts
