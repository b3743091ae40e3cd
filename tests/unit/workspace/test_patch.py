"""The tool `patch`, through the real pipeline; and what holds for any text."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.workspace import patch_file, text_forms

CODE = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"


def put(workplace, name: str = "a.py", text: str = CODE):
    path = workplace.cwd / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def replace(workplace, old: str, new: str, name: str = "a.py", **more) -> dict:
    return workplace.call("patch", mode="replace", path=name, old_string=old, new_string=new, **more)


def patch(workplace, *lines: str) -> dict:
    return workplace.call("patch", mode="patch", patch="\n".join(["*** Begin Patch", *lines, "*** End Patch"]))


def test_a_passage_is_replaced_and_the_difference_told(workplace):
    path = put(workplace)
    result = replace(workplace, "return 2", "return 3")

    assert path.read_text() == CODE.replace("return 2", "return 3")
    assert result["files"] == ["a.py"] and "-    return 2\n+    return 3" in result["diff"]
    assert "notes" not in result and workplace.person.asked == []


def test_what_is_there_twice_changes_nothing_unless_all_are_meant(workplace):
    path = put(workplace)
    assert "is there 2 times" in replace(workplace, "    return", "    yield")["error"]
    assert path.read_text() == CODE

    assert replace(workplace, "    return", "    yield", replace_all=True)["notes"] == ["replaced 2 times"]
    assert path.read_text() == CODE.replace("return", "yield")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def two():  \n    return 2", "def two():\n    return 3"),
        ("  def two():\n      return 2", "  def two():\n      return 3"),
        ("def  two():\n\treturn  2\n", "def two():\n    return 3\n"),
    ],
)
def test_blanks_may_be_written_otherwise_and_that_is_said(workplace, old, new):
    path = put(workplace)
    result = replace(workplace, old, new)

    assert path.read_text() == CODE.replace("return 2", "return 3") and "found but for" in result["notes"][0]


def test_what_is_not_there_is_told_with_what_is_similar(workplace):
    put(workplace)
    error = replace(workplace, "    retrun 2", "x")["error"]
    assert error == "nothing was changed: `old_string` is not there; line 6 is similar: 'return 2'"


def test_line_ends_and_the_mode_stay(workplace):
    path = put(workplace, "dos.txt", "one\r\ntwo\r\n")
    path.chmod(0o750)
    replace(workplace, "one\ntwo", "one\n2\n3", "dos.txt")

    assert path.read_bytes() == b"one\r\n2\r\n3\r\n" and path.stat().st_mode & 0o777 == 0o750


def test_a_syntax_that_breaks_is_told(workplace):
    for name, text in (("a.py", "x = 1\n"), ("a.json", '{"x": 1}'), ("a.yaml", "x: 1\n"), ("a.toml", "x = 1\n")):
        put(workplace, name, text)
        result = replace(workplace, "1", "[", name)
        assert list(result["syntax_errors"]) == [name] and result["syntax_errors"][name]
    put(workplace, "b.json", '{"x": 1}')
    assert "syntax_errors" not in replace(workplace, "1", "2", "b.json")


def test_several_files_are_changed_at_once(workplace):
    put(workplace), put(workplace, "old.txt", "x\n"), put(workplace, "gone.txt", "x\n")
    result = patch(
        workplace,
        "*** Update File: a.py", "@@ def two():", "-    return 2", "+    return 22", "+    # done",
        "*** Add File: new/b.txt", "+hello", "+",
        "*** Update File: old.txt", "*** Move to: moved.txt", "-x", "+y",
        "*** Delete File: gone.txt",
    )  # fmt: skip

    assert (workplace.cwd / "a.py").read_text() == CODE.replace("    return 2\n", "    return 22\n    # done\n")
    assert (workplace.cwd / "new" / "b.txt").read_text() == "hello\n\n"
    assert (workplace.cwd / "moved.txt").read_text() == "y\n"
    assert not (workplace.cwd / "old.txt").exists() and not (workplace.cwd / "gone.txt").exists()
    assert result["files"] == ["a.py", "new/b.txt", "old.txt", "moved.txt", "gone.txt"]


def test_a_program_that_gets_another_name_stays_a_program(workplace):
    put(workplace, "run", "x\n").chmod(0o750)
    patch(workplace, "*** Update File: run", "*** Move to: bin/run", "-x", "+y")

    assert (workplace.cwd / "bin" / "run").stat().st_mode & 0o777 == 0o750


def test_one_hunk_that_does_not_fit_leaves_every_file_as_it_was(workplace):
    path = put(workplace)
    result = patch(workplace, "*** Add File: new.txt", "+x", "*** Update File: a.py", "-return 9", "+return 10")

    assert result["error"].startswith("nothing was changed: hunk 1 of a.py does not fit: 'return 9'")
    assert path.read_text() == CODE and not (workplace.cwd / "new.txt").exists()


def test_a_file_that_cannot_be_written_gives_the_others_back(workplace):
    path = put(workplace)
    (workplace.cwd / "dir").mkdir()
    (workplace.cwd / "file").write_text("")
    result = patch(
        workplace, "*** Update File: a.py", "-    return 1", "+    return 11", "*** Add File: file/x", "+x"
    )  # fmt: skip

    assert "nothing was changed" in result["error"] and path.read_text() == CODE


def test_a_hunk_that_fits_several_places_asks_for_more(workplace):
    put(workplace, "a.txt", "x\ny\nx\ny\n")
    assert "fits 2 places (lines 1, 3)" in patch(workplace, "*** Update File: a.txt", "-x", "+z")["error"]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ((), "changes no file"),
        (("what",), "comes before any"),
        (("*** Update File: a.py",), "changes nothing"),
        (("*** Update File: a.py", "!x"), "begins with none of"),
        (("*** Add File: a.py", "+x"), "is there already"),
        (("*** Delete File: nothing",), "No such file"),
        (("*** Delete File: a.py", "*** Update File: a.py", "-x"), "deleted earlier"),
    ],
)
def test_a_patch_that_cannot_be_is_refused_with_the_reason(workplace, lines, why):
    path = put(workplace)
    assert why in patch(workplace, *lines)["error"]
    assert path.read_text() == CODE


def test_outside_of_the_working_directory_a_person_is_asked_and_a_no_changes_nothing(workplace):
    outside = workplace.cwd.parent / "b.txt"
    outside.write_text("x\n")
    workplace.person.answer = "deny"
    put(workplace)
    lines = ("*** Update File: a.py", "-    return 1", "+    return 3", f"*** Update File: {outside}", "-x", "+y")
    patch(workplace, *lines)

    (question,) = workplace.person.asked
    assert question.summary == "change files outside the working directory" and "-x\n+y" in question.detail
    assert outside.read_text() == "x\n" and (workplace.cwd / "a.py").read_text() == CODE
    workplace.person.answer = "once"
    patch(workplace, *lines)
    assert outside.read_text() == "y\n"


def test_what_was_allowed_is_what_is_written_or_nothing(workplace, monkeypatch):
    outside = workplace.cwd.parent / "b.txt"
    outside.write_text("x\nsafe\n")
    ask = workplace.person.ask

    async def ask_and_change(request):
        outside.write_text("x\nunsafe\n")
        return await ask(request)

    monkeypatch.setattr(workplace.person, "ask", ask_and_change)

    assert "changed during the approval" in replace(workplace, "x", "y", str(outside))["error"]
    assert outside.read_text() == "x\nunsafe\n"


@pytest.mark.parametrize("name", [".env", "auth.json", "state.db"])
def test_credentials_are_neither_read_nor_changed(workplace, name):
    path = workplace.home / name
    path.write_text("KEY=sk-0123456789\n")
    for result in (
        replace(workplace, "KEY", "X", str(path)),
        patch(workplace, f"*** Delete File: {path}"),
    ):
        assert "holds credentials" in result["error"] and "sk-0123456789" not in str(result)
    assert path.read_text() == "KEY=sk-0123456789\n"


def test_a_link_device_or_directory_is_no_file_to_patch(workplace):
    (workplace.cwd / "dir").mkdir()
    os.mkfifo(workplace.cwd / "pipe")
    (workplace.cwd / "link").symlink_to(workplace.home / ".env")
    (workplace.home / ".env").write_text("KEY=x\n")
    for name in ("dir", "pipe", "link", "/dev/null"):
        assert replace(workplace, "K", "x", name)["error"]


def test_a_change_by_somebody_else_is_told(workplace):
    path = put(workplace)
    workplace.call("read_file", path="a.py")
    path.write_text("# mine\n" + CODE)

    result = replace(workplace, "return 2", "return 3")
    assert result["notes"] == ["changed by others since you read it: a.py"]
    assert path.read_text().startswith("# mine\n") and "notes" not in replace(workplace, "return 3", "return 4")


# -- what holds for any text --------------------------------------------------------------------------------------

LINE = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=12)
TEXT = st.lists(LINE, min_size=1, max_size=12).map("\n".join)


@given(TEXT, st.data())
def test_a_unique_passage_is_replaced_exactly_and_back_again(text, data):
    start = data.draw(st.integers(0, max(len(text) - 1, 0)))
    old = text[start : data.draw(st.integers(start + 1, len(text) + 1))]
    new = "\u2603unseen\u2603"
    if not old or text.count(old) != 1:
        return
    changed, count, how = text_forms.replace_passage(text, old, new)

    assert (count, how) == (1, "exact") and text_forms.replace_passage(changed, new, old)[0] == text


@given(TEXT, st.text(max_size=10), st.text(max_size=10), st.booleans())
def test_replacing_says_why_not_or_changes_as_many_lines_as_it_says(text, old, new, everywhere):
    try:
        changed, count, _ = text_forms.replace_passage(text, old or "x", new, everywhere=everywhere)
    except ValueError as exc:
        assert str(exc)
    else:
        assert count >= 1 and isinstance(changed, str)


@given(st.lists(LINE, min_size=1, max_size=10, unique_by=str.strip), st.data())
def test_a_patch_made_of_two_texts_turns_one_into_the_other(before, data):
    before = [line for line in before if line.strip()]
    if not before:
        return
    drop = data.draw(st.sets(st.integers(0, len(before) - 1)))
    add = data.draw(st.dictionaries(st.integers(0, len(before)), LINE.filter(str.strip), max_size=3))
    lines, after = [], []
    for number, line in enumerate(before):
        if number in add:
            lines.append(f"+{add[number]}")
            after.append(add[number])
        lines.append(("-" if number in drop else " ") + line)
        if number not in drop:
            after.append(line)
    change = patch_file.FilePatch("update", "a", hunks=[patch_file.Hunk([], lines)])

    assert patch_file.apply_patch("\n".join(before), change) == "\n".join(after)


@given(st.text(max_size=300))
def test_no_text_breaks_the_reader_of_patches(text):
    try:
        changes = patch_file.parse_patch(text)
    except ValueError as exc:
        assert str(exc)
    else:
        assert changes
