"""`search_files` with and without `rg` on the PATH: for any tree and any pattern the same result."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.search_files import SearchFilesTool, required_literals
from hermes_agent.workspace.tool_context import ToolContext

RIPGREP = shutil.which("rg")
EXAMPLES = int(os.environ.get("HERMES_SEARCH_EXAMPLES", "12"))

NAMES = st.sampled_from(
    [
        "a.py",
        "b.txt",
        ".hidden",
        "src/c.py",
        "src/deep/d.PY",
        "-e",
        "ü n.txt",
        ".git/x",
        "sub/.venv/y",
        "[z].py",
        "a\nb",
    ]
)
LINES = [
    *(b"foo", b"Foo bar", b"bar\r", b"", b"  foo  ", b"a.b*c", b"1234 foo_bar", b"SICK fooo", b"foo\x1b[0m", b"\x1c"),
    *(b"\xff", b"\xff foo", b"\xc3", b"ask me\xed\xa0\x80", b"x\0y", b"f\xc3\xbco\x85o\x0bfoo", b"\xe2\x80\xa8foo"),
    *(
        b"\xef\xbb\xbffoo",
        b"\xff\xfef\0o\0o\0",
        "\u017fick".encode(),
        "²\u0300\u200d".encode(),
        "straße É \u212a İ".encode(),
    ),
]
CONTENTS = st.lists(st.sampled_from(LINES), max_size=6).map(b"\n".join)
ATOMS = st.sampled_from(
    [
        *("foo", "bar", "sick", "ask me", "(foo|bar)", "(?i:sick)", "(fo|ba)", "(?<=f)oo", "(?:o)", "(?=f)", "s", "k"),
        *(
            ".",
            "\\w",
            "\\d",
            "\\s",
            "\\S",
            "\\W",
            "\\D",
            "\\b",
            "\\B",
            "^",
            "$",
            "\\A",
            "\\Z",
            "[a-f]",
            "[^o]",
            "[^\\w]",
        ),
        *("ß", "é", "\\.", "\\*", "\\x20", "\\\\", "\\u00e9"),
    ]
)
REPEATS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{,2}", "{1,}", "*?", "{1,2}?"])
PATTERNS = st.one_of(
    st.lists(st.tuples(ATOMS, REPEATS).map("".join), min_size=1, max_size=4).map("".join),
    st.text(min_size=1, max_size=4),
)
GLOBS = st.sampled_from(
    ["", "", "", "*.py", "*.PY", "?.txt", "src/*", "**/*.py", "*.{py,txt}", "[[]z*", "[!a]*", ".*", "!a.py"]
)


@settings(max_examples=400)
@given(PATTERNS, CONTENTS)
def test_what_is_required_of_a_match_is_in_every_match(pattern, content):
    try:
        found = re.compile(pattern)
        wanted = required_literals(pattern)
    except re.error:
        return
    if wanted is None:
        return
    texts, folded = wanted
    for line in content.decode("utf-8", "replace").split("\n"):
        if found.search(line):
            assert any(text.lower() in line.lower() if folded else text in line for text in texts)


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("foo", (["foo"], False)),
        ("(foo|bar)baz?", (["bar", "foo"], False)),
        ("def \\w+\\(", (["def "], False)),
        ("(?i)import", (["mport"], True)),
        ("(?:abc){2,}x*", (["abc"], False)),
        ("a|bc", None),
        ("x*", None),
        ("(?=foo)", None),
    ],
)
def test_the_longest_text_that_a_pattern_requires_is_found(pattern, texts):
    assert required_literals(pattern) == texts


@pytest.mark.skipif(RIPGREP is None, reason="rg is not on the PATH")
@settings(max_examples=EXAMPLES)
@given(
    st.dictionaries(NAMES, CONTENTS, min_size=1, max_size=6),
    PATTERNS,
    GLOBS,
    st.sampled_from(["content", "content", "files_only", "count"]),
    st.integers(0, 2),
)
def test_rg_changes_the_time_that_a_search_takes_and_nothing_else(files, pattern, glob, mode, context):
    with tempfile.TemporaryDirectory() as place:
        cwd = Path(place).resolve() / "cwd"
        for name, data in files.items():
            (cwd / name).parent.mkdir(parents=True, exist_ok=True)
            (cwd / name).write_bytes(data)
        here = ToolContext(PathRules(f"{place}/home", place), cwd)
        args = {"pattern": pattern, "file_glob": glob, "output_mode": mode, "context": context}
        assert RIPGREP is not None
        found = [
            json.loads(SearchFilesTool(here, {"PATH": path}, deadline_s=60)(args))
            for path in ("", str(Path(RIPGREP).parent))
        ]

    assert found[0] == found[1]
