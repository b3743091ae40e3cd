"""What holds of `patch` for any file and any change: all or nothing, there and back, nothing else touched."""

from __future__ import annotations

import difflib
import json
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hermes_agent.workspace import patch_file, text_forms
from hermes_agent.workspace.patch_file import PatchTool
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.tool_context import ToolContext

LINE = st.text(st.sampled_from("ab c\t'\u2019\u2013\u00a0{}*@+-#é"), max_size=10)
LINES = st.lists(LINE, max_size=10)
END = st.sampled_from(["\n", "\r\n"])


def patched(files: dict[str, bytes], **args) -> tuple[dict[str, bytes], dict]:
    """Return the files after a call, and its result."""
    with tempfile.TemporaryDirectory() as place:
        cwd = Path(place).resolve() / "cwd"
        cwd.mkdir()
        for name, data in files.items():
            (cwd / name).write_bytes(data)
        result = json.loads(PatchTool(ToolContext(PathRules(f"{place}/home", place), cwd))(args))
        return {str(p.relative_to(cwd)): p.read_bytes() for p in cwd.rglob("*") if p.is_file()}, result


def update(name: str, before: list[str], after: list[str], *, turned: bool = False) -> list[str]:
    """Return the patch that makes one text of the other; `turned` the other way round."""
    if turned:
        before, after = after, before
    lines = [f"*** Update File: {name}"]
    for line in difflib.ndiff(before, after):
        if line[0] != "?":
            lines.append(line[0] + line[2:])
    return lines


def whole(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


@settings(max_examples=60)
@given(LINES, LINES, END, st.booleans())
def test_a_patch_and_the_same_turned_round_give_the_file_back_to_the_byte(before, after, end, ended):
    assume(before != after and any(map(str.strip, before)) and any(map(str.strip, after)))
    assume(len(before) > 1 and len(after) > 1)  # of one line nobody knows how lines end
    assume(before[-1].strip() and after[-1].strip())  # empty lines at the end of a patch may come from around it
    data = (end.join(before) + (end if ended else "")).encode()
    there, result = patched({"a": data}, mode="patch", patch=whole(*update("a", before, after)))
    assert "error" not in result
    assert there == {"a": (end.join(after) + (end if ended else "")).encode()}
    back, result = patched(there, mode="patch", patch=whole(*update("a", before, after, turned=True)))

    assert "error" not in result
    assert back == {"a": data}


NAMES = st.sampled_from(["a", "b", "c", "d/e", "no/f"])
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("*** Add File: {}"), NAMES, st.lists(LINE.map("+{}".format), max_size=2)),
        st.tuples(st.just("*** Delete File: {}"), NAMES, st.just([])),
        st.tuples(st.just("*** Update File: {}"), NAMES, st.just(["-one", "+1"])),
        st.tuples(st.just("*** Update File: {}"), NAMES, st.just(["-missing", "+1"])),
        st.tuples(
            st.just("*** Update File: {}"), NAMES, NAMES.map(lambda name: [f"*** Move to: {name}", "-one", "+2"])
        ),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=100)
@given(CHANGES)
def test_a_patch_that_fails_anywhere_changes_nothing_anywhere(changes):
    files = {"a": b"one\ntwo\n", "b": b"one\r\ntwo", "c": b"\xff\0", "no": b"a file where a directory is wanted\n"}
    lines = [line for head, name, body in changes for line in [head.format(name), *body]]
    after, result = patched(files, mode="patch", patch=whole(*lines))

    if "error" in result:
        assert after == files
    else:
        named = {name for _, name, _ in changes} | {line[13:] for line in lines if line.startswith("*** Move to: ")}
        assert {name for name in {*files, *after} if files.get(name) != after.get(name)} <= named


def mangled(line: str, way: int) -> str:
    if way == 1:
        return f"{line}  "
    if way == 2:
        return f"    {line.strip()}"
    return (
        line.replace("\u2019", "'").replace("\u2013", "-").replace("\u00a0", " ").replace(" ", "  ")
        if way == 3
        else line
    )


@settings(max_examples=150)
@given(st.lists(LINE, min_size=1, max_size=12), LINES, st.data(), st.sampled_from(["\n", "\r\n", "mixed"]))
def test_a_passage_that_is_written_otherwise_is_replaced_and_no_line_beside_it(lines, new, data, ends):
    first = data.draw(st.integers(0, len(lines) - 1))
    last = data.draw(st.integers(first, len(lines) - 1))
    way = data.draw(st.integers(0, 3))
    old = [mangled(line, way) for line in lines[first : last + 1]]
    marks = [("\r" if ends == "\r\n" or (ends == "mixed" and number % 3 == 0) else "") for number in range(len(lines))]
    text = [line + mark for line, mark in zip(lines, marks, strict=True)]
    try:
        changed, count, _ = text_forms.replace_passage("\n".join(text), "\n".join(old), "\n".join(new))
    except ValueError:
        return
    assert count == 1
    joined, now = "\n".join(old), changed.split("\n")
    if joined in "\n".join(text):
        return

    def plain(line: str) -> str:
        return " ".join(line.translate(text_forms._ALIKE).split())

    def replaced(wanted: list[str]) -> bool:
        """Say whether a passage like `wanted` gave way to something, and all before and behind it is as it was."""
        width = len(wanted)
        return any(
            text[:at] == now[:at]
            and text[at + width :] == now[len(now) - (len(text) - at - width) :]
            and [plain(line) for line in text[at : at + width]] == wanted
            for at in range(len(text) - width + 1)
        )

    forms = [joined.removesuffix("\n"), joined.strip("\n")]
    assert any(replaced([plain(line) for line in form.split("\n")]) for form in forms)


@settings(max_examples=60)
@given(st.lists(LINE.filter(str.strip), min_size=1, max_size=8), st.lists(LINE, min_size=1, max_size=4), END, st.data())
def test_new_lines_end_as_the_lines_do_that_they_replace(lines, new, end, data):
    """Also in a file whose lines end differently elsewhere."""
    at = data.draw(st.integers(0, len(lines) - 1))
    text = b"first\n" + "".join(line + end for line in lines).encode() + b"last\r\n"
    after, result = patched(
        {"a": text}, mode="replace", path="a", old_string=lines[at] + "\n", new_string="\n".join(new) + "\n"
    )

    if "error" not in result and not "\n".join(lines).count(lines[at]) > 1:
        expected = [*lines[:at], *new, *lines[at + 1 :]]
        assert after["a"] == b"first\n" + "".join(line + end for line in expected).encode() + b"last\r\n"


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ),
    st.integers(0, 40),
)
def test_a_syntax_is_at_fault_when_its_reader_says_so(value, cut):
    text = json.dumps(value)[: cut or None]
    try:
        json.loads(text)
        right = True
    except ValueError:
        right = False
    assert (text_forms.syntax_error("a.json", text) == "") is right
    assert text_forms.syntax_error("a.txt", text) == ""


@given(LINES, st.lists(st.tuples(st.sampled_from(" -+"), LINE), min_size=1, max_size=6))
def test_a_hunk_that_fits_keeps_every_line_that_it_does_not_name(lines, hunk):
    change = patch_file.FilePatch("update", "a", hunks=[patch_file.Hunk([], [mark + line for mark, line in hunk])])
    try:
        after = patch_file.apply_patch("\n".join(lines), change).split("\n")
    except ValueError:
        return
    before = "\n".join(lines).split("\n")

    assert (Counter(before) - Counter(after)).total() <= sum(mark == "-" for mark, _ in hunk)
    added = Counter() if after == [""] else Counter(after) - Counter(before)  # an empty text has no line
    assert added.total() <= sum(mark == "+" for mark, _ in hunk)
