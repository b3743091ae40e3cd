from __future__ import annotations

import os
import stat

import pytest


def test_a_new_file_is_written_with_the_directories_it_needs(workplace):
    result = workplace.call("write_file", path="src/deep/a.py", content="one\ntwö\n")

    assert (workplace.cwd / "src/deep/a.py").read_bytes() == "one\ntwö\n".encode()
    assert result == {
        "path": "src/deep/a.py",
        "bytes_written": 9,
        "created": True,
        "lines_added": 2,
        "lines_removed": 0,
    }
    assert workplace.person.asked == []


def test_a_file_is_replaced_whole_and_the_difference_is_counted(workplace):
    (workplace.cwd / "a.txt").write_text("one\ntwo\nthree\n")

    result = workplace.call("write_file", path="a.txt", content="one\nfour\nfive\n", cross_profile=True)

    assert (workplace.cwd / "a.txt").read_text() == "one\nfour\nfive\n"
    assert (result["created"], result["lines_added"], result["lines_removed"]) == (False, 2, 2)


def test_a_file_keeps_its_mode_and_a_new_one_follows_the_umask(workplace):
    script = workplace.cwd / "run.sh"
    script.write_text("old")
    script.chmod(0o750)
    workplace.call("write_file", path="run.sh", content="new")
    before = os.umask(0o077)
    try:
        workplace.call("write_file", path="fresh.txt", content="x")
    finally:
        os.umask(before)

    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    assert stat.S_IMODE((workplace.cwd / "fresh.txt").stat().st_mode) == 0o600


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_a_file_keeps_its_owner(workplace):
    path = workplace.cwd / "a.txt"
    path.write_text("old")
    os.chown(path, 1234, 1234)
    workplace.call("write_file", path="a.txt", content="new")

    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 1234)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(workplace):
    (workplace.cwd / "a.txt").write_text("old")

    result = workplace.call("write_file", path="a.txt", content="half \ud800")

    assert "half a character" in result["error"]
    assert (workplace.cwd / "a.txt").read_text() == "old"
    assert os.listdir(workplace.cwd) == ["a.txt"]


def test_an_empty_content_is_a_content(workplace):
    assert workplace.call("write_file", path="a.txt", content="")["bytes_written"] == 0
    assert "`content` is missing" in workplace.call("write_file", path="b.txt")["error"]
    assert "expected a string" in workplace.call("write_file", path="b.txt", content=["x"])["error"]


def test_what_is_no_file_is_not_replaced(workplace):
    os.mkfifo(workplace.cwd / "pipe")
    (workplace.cwd / "dir").mkdir()
    (workplace.cwd / "file").touch()

    assert "is a named pipe" in workplace.call("write_file", path="pipe", content="x")["error"]
    assert "is a directory" in workplace.call("write_file", path="dir", content="x")["error"]
    assert "names a directory" in workplace.call("write_file", path="new/", content="x")["error"]
    assert "Not a directory" in workplace.call("write_file", path="file/below", content="x")["error"]


def test_a_link_inside_is_followed_to_the_file_inside(workplace):
    (workplace.cwd / "real.txt").write_text("old")
    (workplace.cwd / "link.txt").symlink_to("real.txt")

    workplace.call("write_file", path="link.txt", content="new")

    assert (workplace.cwd / "real.txt").read_text() == "new"
    assert (workplace.cwd / "link.txt").is_symlink()
    assert workplace.person.asked == []


def _ways_out(workplace):
    outside = workplace.cwd.parents[1] / "outside"
    outside.mkdir()
    (outside / "b.txt").write_text("old")
    (workplace.cwd / "dir").symlink_to(outside)
    (workplace.cwd / "file").symlink_to(outside / "b.txt")
    (workplace.cwd / "sub").mkdir()
    return outside, [
        str(outside / "new.txt"),
        "../../outside/new.txt",
        "dir/new.txt",
        "dir/deeper/new.txt",
        "file",
        "sub/../../../outside/new.txt",
        "dir/../../escape.txt",
    ]


def test_every_way_out_of_the_working_directory_asks(workplace):
    outside, ways = _ways_out(workplace)
    workplace.person.answer = "deny"

    for number, path in enumerate(ways, 1):
        outcome = workplace.outcome("write_file", {"path": path, "content": "new"})
        assert outcome.status == "blocked", path
        assert len(workplace.person.asked) == number, path
        assert workplace.person.asked[-1].summary == "write a file outside the working directory"
    assert os.listdir(outside) == ["b.txt"]
    assert (outside / "b.txt").read_text() == "old"


def test_an_allowed_write_outside_is_done(workplace):
    outside, _ = _ways_out(workplace)

    workplace.call("write_file", path="dir/new.txt", content="new")

    assert (outside / "new.txt").read_text() == "new"
    assert workplace.person.asked[0].detail == f"{outside}/new.txt\n3 bytes, a new file\nnew"


def test_the_question_shows_what_changes_and_hides_nothing(workplace):
    outside, _ = _ways_out(workplace)
    (outside / "b.txt").write_text("keep\nold\n")

    workplace.call("write_file", path="file", content="keep\nnew\u202e\n")

    detail = workplace.person.asked[0].detail
    assert detail.splitlines()[-3:] == [" keep", "-old", "+new\\u202e"]


def test_the_answer_for_the_session_covers_that_file_alone(workplace):
    outside, _ = _ways_out(workplace)
    workplace.person.answer = "session"
    for path, content in (("dir/a", "1"), ("dir/a", "2"), ("dir/b", "1")):
        workplace.call("write_file", path=path, content=content)

    assert [request.detail.split("\n")[0] for request in workplace.person.asked] == [f"{outside}/a", f"{outside}/b"]


@pytest.mark.parametrize(
    "path",
    ["~/.hermes/config.yaml", "~/.hermes/plugins/x/__init__.py", "~/.bashrc", "~/.config/x", ".git/hooks/post-commit"],
)
def test_each_content_of_a_file_that_steers_programs_is_asked_about(workplace, path):
    workplace.person.answer = "session"
    for content in ("1", "2", "2"):
        workplace.call("write_file", path=path, content=content)

    assert len({request.rule_key for request in workplace.person.asked}) == 2


def test_a_working_directory_that_is_the_home_or_the_root_opens_neither(workplace):
    workplace.person.answer = "deny"
    user = workplace.cwd.parent
    for cwd, path in ((user, ".bashrc"), (user, ".ssh/config"), (cwd_root := user.__class__("/"), "etc/motd-x")):
        assert workplace.outcome("write_file", {"path": path, "content": "x"}, cwd=cwd).status == "blocked"
    assert not (user / ".bashrc").exists()
    assert not (cwd_root / "etc/motd-x").exists()


def test_credentials_are_never_written_not_even_with_approval(workplace):
    (workplace.cwd / "link").symlink_to(workplace.home / ".env")
    for path in ("~/.hermes/.env", "~/.hermes/auth.json", "link", "~/.ssh/id_rsa", "/proc/self/oom_score_adj"):
        result = workplace.call("write_file", path=path, content="x")
        assert "is not open to tools" in result["error"], path
    assert workplace.person.asked == []
    assert not (workplace.home / ".env").exists()


def test_a_link_that_is_exchanged_after_the_question_leads_nowhere_else(workplace):
    outside, _ = _ways_out(workplace)
    other = outside.parent / "other"
    other.mkdir()
    ask = workplace.person.ask

    async def exchange(request):
        (workplace.cwd / "dir").unlink()
        (workplace.cwd / "dir").symlink_to(other)
        return await ask(request)

    workplace.person.ask = exchange
    result = workplace.call("write_file", path="dir/new.txt", content="x")

    assert "its approval was for another path" in result["error"]
    assert os.listdir(other) == []


def test_a_directory_that_becomes_a_link_after_the_question_is_not_followed(workplace):
    outside, _ = _ways_out(workplace)
    (outside / "sub").mkdir()
    ask = workplace.person.ask

    async def exchange(request):
        (outside / "sub").rmdir()
        (outside / "sub").symlink_to(workplace.home)
        return await ask(request)

    workplace.person.ask = exchange
    result = workplace.call("write_file", path=str(outside / "sub" / "config.yaml"), content="x")

    assert "error" in result
    assert not (workplace.home / "config.yaml").exists()


def test_a_plugin_that_goes_straight_to_the_registry_writes_nothing_outside(workplace):
    outside, _ = _ways_out(workplace)

    assert "error" in workplace.registry.dispatch("write_file", {"path": str(outside / "x"), "content": "x"})
    assert os.listdir(outside) == ["b.txt"]


def test_a_directory_that_may_not_be_written_is_named_with_the_reason(workplace):
    result = workplace.call("write_file", path="/proc/nowhere", content="x")

    assert "/proc/nowhere cannot be written" in result["error"]


def test_a_file_that_somebody_changed_since_it_was_read_is_not_written_over(workplace):
    path = workplace.cwd / "a.txt"
    path.write_text("one\n")
    workplace.call("read_file", path="a.txt")
    path.write_text("by somebody else\n")

    assert "has changed since you read it" in workplace.call("write_file", path="a.txt", content="x")["error"]
    assert path.read_text() == "by somebody else\n"
    workplace.call("read_file", path="a.txt")
    assert workplace.call("write_file", path="a.txt", content="x")["bytes_written"] == 1
    assert workplace.call("write_file", path="a.txt", content="y")["bytes_written"] == 1


def test_another_conversation_has_seen_nothing_and_a_file_that_is_gone_has_changed(workplace):
    path = workplace.cwd / "a.txt"
    path.write_text("one\n")
    workplace.call("read_file", path="a.txt")
    workplace.task = "other"
    path.write_text("two\n")

    assert workplace.call("write_file", path="a.txt", content="x")["bytes_written"] == 1
    path.unlink()
    assert "has changed" in workplace.call("write_file", path="a.txt", content="x")["error"]
