"""Checkpoints, behind the tools that make them and the door that puts them back."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from attack.racing import exchanging
from hermes_agent.workspace.checkpoints import CheckpointLimits, Checkpoints, GitError
from hermes_agent.workspace.paths import PathRules

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")


class Kept:
    """A folder whose changes are kept, one turn after the other."""

    def __init__(self, home: Path, user: Path, cwd: Path, **limits) -> None:
        self.home, self.user, self.cwd = home, user, cwd
        self.limits = CheckpointLimits(**{"enabled": True, **limits})
        self.checkpoints = self.fresh()
        self.turn = 0

    def fresh(self, **environ) -> Checkpoints:
        places = PathRules(str(self.home), str(self.user))
        return Checkpoints(self.home, places, self.limits, {"PATH": os.environ["PATH"], **environ})

    def before(self, name: str = "", turn: str = "", session: str = "s", cwd: Path | None = None) -> str:
        """Begin a turn that changes a file (or anything), and return its id."""
        self.turn += 1
        turn = turn or f"t{self.turn}"
        target = os.path.join(cwd or self.cwd, name) if name else ""
        self.checkpoints.before_change(target, str(cwd or self.cwd), session=session, turn=turn, why=f"x {name}")
        return turn

    def ids(self) -> list[str]:
        return [one.id for one in self.checkpoints.all()]

    def files(self) -> dict[str, str]:
        found = (path for path in self.cwd.rglob("*") if path.is_file() and ".git" not in path.parts)
        return {str(path.relative_to(self.cwd)): path.read_text() for path in found}


@pytest.fixture
def kept(tmp_path):
    user = tmp_path / "user"
    (user / ".hermes").mkdir(parents=True)
    (user / "project").mkdir()
    return Kept(user / ".hermes", user, user / "project")


def git(cwd: Path, *words: str) -> str:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x"}
    env |= {"GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x"}
    return subprocess.run(["git", *words], cwd=cwd, env=env, check=True, capture_output=True, text=True).stdout


def test_what_changed_is_shown_and_put_back_and_what_was_there_is_kept(kept):
    (kept.cwd / "a.txt").write_text("one\n")
    (kept.cwd / "gone.txt").write_text("gone\n")
    kept.before("a.txt")
    (kept.cwd / "a.txt").write_text("two\n")
    (kept.cwd / "gone.txt").unlink()
    (kept.cwd / "sub").mkdir()
    (kept.cwd / "sub" / "new.txt").write_text("new\n")

    (id_,) = kept.ids()
    assert "-one\n+two\n" in kept.checkpoints.diff(id_)
    done = kept.checkpoints.restore(id_)
    assert (done.written, done.removed) == (["a.txt", "gone.txt"], ["sub/new.txt"])
    assert kept.files() == {"a.txt": "one\n", "gone.txt": "gone\n"}
    assert not (kept.cwd / "sub").exists()

    kept.checkpoints.restore(done.before)
    assert kept.files() == {"a.txt": "two\n", "sub/new.txt": "new\n"}
    assert kept.checkpoints.restore(done.before).before == ""


def test_one_file_or_folder_is_put_back_alone(kept):
    for name in ("a", "b", "c/d"):
        (kept.cwd / name).parent.mkdir(exist_ok=True)
        (kept.cwd / name).write_text("old")
    kept.before("a")
    for name in ("a", "b", "c/d"):
        (kept.cwd / name).write_text("new")

    kept.checkpoints.restore(kept.ids()[0], [str(kept.cwd / "c")])
    assert kept.files() == {"a": "new", "b": "new", "c/d": "old"}
    with pytest.raises(GitError, match="is not in"):
        kept.checkpoints.restore(kept.ids()[0], ["/etc/passwd"])


def test_a_turn_has_one_checkpoint_of_a_folder_from_before_its_first_change(kept):
    (kept.cwd / "a").write_text("0")
    turn = kept.before("a")
    (kept.cwd / "a").write_text("1")
    kept.before("b", turn=turn)
    kept.before("", turn=turn)

    assert len(kept.ids()) == 1
    kept.checkpoints.undo(turn)
    assert kept.files() == {"a": "0"}


def test_undoing_a_turn_touches_its_files_alone_and_those_of_commands_all_but_what_others_changed(kept):
    for name in ("mine", "person", "other"):
        (kept.cwd / name).write_text("old")
    first = kept.before("mine")
    for name in ("mine", "person"):
        (kept.cwd / name).write_text("new")
    kept.checkpoints.undo(first)
    assert kept.files() == {"mine": "old", "person": "new", "other": "old"}

    second = kept.before("")
    kept.before("other", session="another")
    for name in ("mine", "other"):
        (kept.cwd / name).write_text("newer")
    assert [done.written for done in kept.checkpoints.undo(second)] == [["mine"]]
    assert kept.files() == {"mine": "old", "person": "new", "other": "newer"}
    assert kept.checkpoints.undo("unknown") == [] and kept.checkpoints.undo("") == []


def test_the_repository_of_the_folder_is_not_touched(kept):
    git(kept.cwd, "init", "-q")
    (kept.cwd / "a").write_text("0")
    git(kept.cwd, "add", "a")
    git(kept.cwd, "commit", "-qm", "x")
    (kept.cwd / "staged").write_text("0")
    git(kept.cwd, "add", "staged")
    before = {path: path.read_bytes() for path in (kept.cwd / ".git").rglob("*") if path.is_file()}
    kept.before("a")
    (kept.cwd / "a").write_text("1")
    (kept.cwd / ".git" / "description").write_text("other")
    kept.checkpoints.restore(kept.ids()[0])

    after = {path: path.read_bytes() for path in (kept.cwd / ".git").rglob("*") if path.is_file()}
    before[kept.cwd / ".git" / "description"] = b"other"
    assert after == before
    assert (kept.cwd / "a").read_text() == "0"


def test_a_repository_within_the_folder_is_kept_too(kept):
    inner = kept.cwd / "vendor" / "lib"
    inner.mkdir(parents=True)
    git(inner, "init", "-q")
    (inner / "a").write_text("0")
    git(inner, "add", "a")
    git(inner, "commit", "-qm", "x")
    kept.before("x")
    (inner / "a").write_text("1")

    kept.checkpoints.restore(kept.ids()[0])
    assert (inner / "a").read_text() == "0"


def test_what_is_ignored_large_or_secret_is_in_no_checkpoint_and_stays(kept):
    kept.checkpoints.limits = kept.limits._replace(max_file_size_mb=0.001)
    (kept.cwd / ".gitignore").write_text("build/\n")
    names = {
        "build/out": "o",
        "large": "x" * 2_000,
        ".env": "KEY=1",
        "node_modules/m": "m",
        "server.key": "k",
        "a": "0",
    }
    for name, text in names.items():
        (kept.cwd / name).parent.mkdir(exist_ok=True)
        (kept.cwd / name).write_text(text)
    kept.before("a")
    (kept.cwd / ".gitignore").write_text("")
    (kept.cwd / "large").write_text("small now")
    (kept.cwd / "a").write_text("1")

    done = kept.checkpoints.restore(kept.ids()[0])
    assert (done.written, done.removed) == ([".gitignore", "a"], [])
    assert kept.files() == {**names, "large": "small now", ".gitignore": "build/\n"}
    (kept.cwd / ".env").unlink()
    kept.checkpoints.restore(kept.ids()[0])
    assert ".env" not in kept.files()


def test_bytes_line_ends_modes_links_and_odd_names_come_back_as_they_were(kept):
    (kept.cwd / ".gitattributes").write_text("* text=auto eol=lf ident filter=x working-tree-encoding=UTF-16\n")
    (kept.cwd / "crlf").write_bytes(b"a\r\nb\r\n$Id$\n\xff\0")
    (kept.cwd / "run").write_text("#!")
    (kept.cwd / "run").chmod(0o755)
    (kept.cwd / "private").write_text("p")
    (kept.cwd / "private").chmod(0o600)
    (kept.cwd / "link").symlink_to("run")
    odd = os.fsencode(kept.cwd) + b'/-odd \xff\n"name'
    Path(os.fsdecode(odd)).write_text("o")
    kept.before("")
    for name in ("crlf", "run", "private"):
        (kept.cwd / name).write_text("changed")
    (kept.cwd / "run").chmod(0o644)
    (kept.cwd / "link").unlink()
    (kept.cwd / "link").write_text("a file")
    os.unlink(odd)

    kept.checkpoints.restore(kept.ids()[0])
    assert (kept.cwd / "crlf").read_bytes() == b"a\r\nb\r\n$Id$\n\xff\0"
    assert (kept.cwd / "run").stat().st_mode & 0o777 == 0o755
    assert (kept.cwd / "private").stat().st_mode & 0o777 == 0o600
    assert os.readlink(kept.cwd / "link") == "run"
    assert Path(os.fsdecode(odd)).read_text() == "o"


def test_a_folder_in_place_of_a_file_and_the_other_way_round_is_put_right(kept):
    (kept.cwd / "a").write_text("file")
    (kept.cwd / "b").mkdir()
    (kept.cwd / "b" / "c").write_text("below")
    kept.before("")
    (kept.cwd / "a").unlink()
    (kept.cwd / "a").mkdir()
    (kept.cwd / "a" / "x").write_text("now below")
    shutil.rmtree(kept.cwd / "b")
    (kept.cwd / "b").write_text("now a file")

    kept.checkpoints.restore(kept.ids()[0])
    assert kept.files() == {"a": "file", "b/c": "below"}


def test_a_folder_that_was_deleted_whole_comes_back(kept):
    (kept.cwd / "a").write_text("old")
    kept.before("")
    shutil.rmtree(kept.cwd)

    kept.checkpoints.prune()
    kept.checkpoints.restore(kept.ids()[0])
    assert kept.files() == {"a": "old"}


def test_a_private_file_that_was_deleted_comes_back_private(kept):
    (kept.cwd / "diary").write_text("old")
    (kept.cwd / "diary").chmod(0o600)
    (kept.cwd / "run").write_text("old")
    (kept.cwd / "run").chmod(0o700)
    (kept.cwd / "public").write_text("old")
    (kept.cwd / "public").chmod(0o644)
    kept.before("")
    for name in ("diary", "run", "public"):
        (kept.cwd / name).unlink()

    before = os.umask(0o022)
    try:
        kept.checkpoints.restore(kept.ids()[0])
    finally:
        os.umask(before)
    modes = {name: (kept.cwd / name).stat().st_mode & 0o777 for name in ("diary", "run", "public")}
    assert modes == {"diary": 0o600, "run": 0o700, "public": 0o644}


def test_a_folder_that_became_a_link_leads_nowhere_else(kept, tmp_path):
    (kept.cwd / "d").mkdir()
    (kept.cwd / "d" / "a").write_text("old")
    kept.before("")
    shutil.rmtree(kept.cwd / "d")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("outside")
    (kept.cwd / "d").symlink_to(outside)

    kept.checkpoints.restore(kept.ids()[0])
    assert (outside / "a").read_text() == "outside"
    assert (kept.cwd / "d" / "a").read_text() == "old" and not (kept.cwd / "d").is_symlink()


def test_of_a_home_directory_and_of_what_is_outside_the_file_alone_is_kept(kept, tmp_path):
    (kept.user / "notes").write_text("old")
    (kept.user / "other").write_text("old")
    (tmp_path / "elsewhere").write_text("old")
    turn = kept.before("notes", cwd=kept.user)
    kept.before(str(tmp_path / "elsewhere"), turn=turn, cwd=kept.user)
    kept.before("", turn=turn, cwd=kept.user)
    for path in (kept.user / "notes", kept.user / "other", tmp_path / "elsewhere"):
        path.write_text("new")

    assert {one.paths for one in kept.checkpoints.all()} == {
        (str(kept.user / "notes").lstrip("/"),),
        (str(tmp_path / "elsewhere").lstrip("/"),),
    }
    kept.checkpoints.undo(turn)
    assert [(kept.user / name).read_text() for name in ("notes", "other")] == ["old", "new"]
    assert (tmp_path / "elsewhere").read_text() == "old"


def test_a_folder_with_too_much_in_it_keeps_the_file_alone_and_is_asked_once(kept, caplog):
    kept.checkpoints.most_files = 3
    for number in range(5):
        (kept.cwd / str(number)).write_text("old")
    kept.before("1")
    turn = kept.before("2")
    kept.before("")
    (kept.cwd / "2").write_text("new")

    assert [one.paths for one in kept.checkpoints.all()] == [
        (str(kept.cwd / "2").lstrip("/"),),
        (str(kept.cwd / "1").lstrip("/"),),
    ]
    assert caplog.text.count("too many for a checkpoint") == 1
    kept.checkpoints.undo(turn)
    assert kept.files()["2"] == "old"


def test_a_failure_that_passes_costs_one_checkpoint_and_not_those_that_come(kept, caplog):
    (kept.cwd / "a").write_text("old")
    (kept.home / "checkpoints").write_text("in the way")
    kept.before("")
    (kept.home / "checkpoints").unlink()
    kept.before("")

    assert "no checkpoint: " in caplog.text
    assert [one.folder for one in kept.checkpoints.all()] == [str(kept.cwd)]


def test_switched_off_nothing_is_made_and_without_git_it_is_said_once(kept, caplog, tmp_path):
    kept.checkpoints.limits = kept.limits._replace(enabled=False)
    kept.before("a")
    assert not (kept.home / "checkpoints").exists()

    kept.checkpoints = kept.fresh(PATH=str(tmp_path))
    kept.before("a")
    kept.before("a")
    assert caplog.text.count("git is not installed") == 1
    assert not (kept.home / "checkpoints").exists()


def test_a_process_that_died_in_the_middle_leaves_nothing_that_stops_the_next(kept):
    (kept.cwd / "a").write_text("0")
    kept.before("a")
    (place,) = (kept.home / "checkpoints").iterdir()
    (place / "index.lock").touch()
    (place / "index").write_bytes(b"DIRC half of it")
    (place / "objects" / "ab").mkdir(exist_ok=True)
    (place / "objects" / "ab" / "tmp_obj_x").write_bytes(b"half")
    half = kept.home / "checkpoints" / "0000"
    half.mkdir()
    kept.checkpoints = kept.fresh()
    kept.before("a")
    (kept.cwd / "a").write_text("1")

    assert len(kept.ids()) == 2
    kept.checkpoints.restore(kept.ids()[0])
    assert kept.files() == {"a": "0"}


def test_conversations_side_by_side_each_have_theirs(kept):
    (kept.cwd / "a").write_text("0")
    others = [kept.checkpoints, kept.fresh()]  # threads of one process, and another one
    begin = threading.Barrier(6)

    def work(number: int) -> None:
        begin.wait(30)
        others[number % 2].before_change("", str(kept.cwd), session=f"s{number}", turn=f"t{number}", why="x")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert {one.turn for one in kept.checkpoints.all()} == {f"t{number}" for number in range(6)}


def test_the_oldest_go_when_there_are_too_many_too_old_or_too_large(kept):
    kept.checkpoints.limits = kept.limits._replace(max_snapshots=3)
    kept.checkpoints.slack = 1
    for number in range(5):
        (kept.cwd / "a").write_text(str(number))
        kept.before("a")
    assert [one.turn for one in kept.checkpoints.all()] == ["t5", "t4", "t3"]
    kept.checkpoints.restore(kept.ids()[2])
    assert kept.files() == {"a": "2"}

    kept.checkpoints.limits = kept.limits._replace(max_total_size_mb=0.2)
    (kept.cwd / "a").write_bytes(os.urandom(150_000).hex()[:150_000].encode())
    kept.before("a")
    (kept.cwd / "a").write_bytes(os.urandom(150_000))
    kept.before("a")
    assert kept.checkpoints.prune() > 0
    assert [one.turn for one in kept.checkpoints.all()][:1] in ([], ["t7"])

    kept.before("a")
    kept.checkpoints.limits = kept.limits._replace(retention_days=0)
    kept.checkpoints.prune()
    assert kept.ids() == []
    shutil.rmtree(kept.cwd)
    kept.checkpoints.prune()
    assert list((kept.home / "checkpoints").iterdir()) == []


def objects(kept: Kept) -> str:
    """Return everything that the checkpoints hold."""
    (place,) = (path for path in (kept.home / "checkpoints").iterdir() if path.is_dir())
    words = ["git", "cat-file", "--batch-all-objects", "--batch", "--buffer"]
    return subprocess.run(words, cwd=place, check=True, capture_output=True).stdout.decode("latin-1")


@pytest.mark.attack("races")
def test_a_folder_that_is_a_link_at_times_brings_nothing_from_elsewhere_into_a_checkpoint(kept, tmp_path, attempt):
    (tmp_path / "outside").mkdir()
    (kept.cwd / "real").mkdir()
    (kept.cwd / "link").symlink_to(tmp_path / "outside")
    for number in range(200):
        (kept.cwd / "real" / f"{number}.txt").write_text(f"harmless {number}")
        (tmp_path / "outside" / f"{number}.txt").write_text("elsewhere")
    with exchanging(kept.cwd / "real", kept.cwd / "link"):
        for number in range(20 if os.environ.get("HERMES_ATTACK_FULL") else 8):
            (tmp_path / "outside" / f"{number}.txt").write_text("elsewhere")
            kept.before()
            attempt("elsewhere" not in objects(kept), f"checkpoint {number}")
    kept.before()
    assert "harmless 199" in objects(kept)


@pytest.mark.attack("races")
def test_a_folder_that_is_a_link_at_times_does_not_lead_what_is_put_back_elsewhere(kept, tmp_path, attempt):
    outside = tmp_path / "outside"
    (outside / "empty").mkdir(parents=True)
    (kept.cwd / "real" / "empty").mkdir(parents=True)
    (kept.cwd / "link").symlink_to(outside)
    (kept.cwd / "real" / "run").write_text("old")
    (kept.cwd / "real" / "run").chmod(0o755)
    (outside / "run").write_text("private")
    (outside / "run").chmod(0o600)
    kept.before()
    (id_,) = kept.ids()
    with exchanging(kept.cwd / "real", kept.cwd / "link"):
        for number in range(20 if os.environ.get("HERMES_ATTACK_FULL") else 8):
            for change in (lambda: (kept.cwd / "real" / "empty" / "new").write_text("x"),):
                with contextlib.suppress(OSError):
                    change()
            (outside / "empty" / "new").unlink(missing_ok=True)
            with contextlib.suppress(GitError):
                kept.checkpoints.restore(id_)
            status = (outside / "run").stat()
            held = (outside / "run").read_text() == "private" and status.st_mode & 0o777 == 0o600
            attempt(held and (outside / "empty").is_dir(), f"restore {number}")


def test_a_name_that_git_takes_for_dangerous_elsewhere_stops_no_checkpoint(kept):
    for name in ("git~1", "a\\b", ".git ", "a:b"):
        (kept.cwd / name).write_text(name)
    kept.before()
    for name in ("git~1", "a\\b", ".git ", "a:b"):
        (kept.cwd / name).write_text("changed")
    kept.checkpoints.restore(kept.ids()[0])
    assert kept.files() == {name: name for name in ("git~1", "a\\b", ".git ", "a:b")}
