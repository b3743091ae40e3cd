from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from hermes_agent.system.processes import tool_environment
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.search_files import SearchFilesTool
from hermes_agent.workspace.tool_context import ToolContext

RIPGREP = shutil.which("rg")


@pytest.fixture(params=["own", "rg"])
def search(request, workplace):
    """Run `search_files` with and without `rg` on the PATH; both must find the same."""
    path = ""
    if request.param == "rg":
        if RIPGREP is None:
            pytest.skip("rg is not on the PATH")
        path = str(Path(RIPGREP).parent)
    here = ToolContext(PathRules(str(workplace.home), str(workplace.cwd.parent)), workplace.cwd)
    environ = {**tool_environment(os.environ), "PATH": path}

    def call(**args):
        return json.loads(SearchFilesTool(here, environ, deadline_s=args.pop("deadline_s", 30))(args))

    return call


@pytest.fixture
def tree(workplace):
    """A small project."""
    files = {
        "README.md": "# Needle\nnothing\n",
        "src/a.py": "import os\n\ndef needle():\n    return 1\n\nneedle()\n",
        "src/b.py": "needle = 2",
        "src/deep/c.txt": "a needle here\r\nand there\r\n",
        ".github/ci.yml": "run: needle\n",
        ".git/config": "needle\n",
        "node_modules/x/index.js": "needle\n",
        "data.bin": "needle\0\n",
    }
    for name, text in files.items():
        path = workplace.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return workplace.cwd


def test_matching_lines_come_with_file_and_number_in_order(search, tree):
    assert search(pattern="needle") == {
        "matches": [
            ".github/ci.yml:1:run: needle",
            "src/a.py:3:def needle():",
            "src/a.py:6:needle()",
            "src/b.py:1:needle = 2",
            "src/deep/c.txt:1:a needle here",
        ]
    }


def test_no_match_is_said(search, tree):
    assert search(pattern="haystack") == {"matches": [], "note": "no match"}


def test_no_name_that_matches_is_not_said_of_the_contents(search, tree):
    found = search(pattern="needle", target="files")
    assert found["files"] == []
    assert found["note"].startswith("no file has such a name; what is in the files was not searched")


def test_files_only_and_count(search, tree):
    assert search(pattern="needle", output_mode="files_only") == {
        "files": [".github/ci.yml", "src/a.py", "src/b.py", "src/deep/c.txt"]
    }
    assert search(pattern="needle", output_mode="count", path="src") == {
        "counts": ["src/a.py:2", "src/b.py:1", "src/deep/c.txt:1"]
    }


def test_lines_around_a_match_are_marked_and_groups_are_parted(search, tree):
    (tree / "src/b.py").write_text("1\n2\nneedle\n4\n5\n6\n7\nneedle\nneedle\n10\n")

    assert search(pattern="needle", path="src/b.py", context=1)["matches"] == [
        "src/b.py-2-2",
        "src/b.py:3:needle",
        "src/b.py-4-4",
        "--",
        "src/b.py-7-7",
        "src/b.py:8:needle",
        "src/b.py:9:needle",
        "src/b.py-10-10",
    ]


@pytest.mark.parametrize(
    ("glob", "files"),
    [
        ("*.py", ["src/a.py", "src/b.py"]),
        ("*.{py,yml}", [".github/ci.yml", "src/a.py", "src/b.py"]),
        ("src/*.py", ["src/a.py", "src/b.py"]),
        ("src/**/*.txt", ["src/deep/c.txt"]),
        ("**/*.txt", ["src/deep/c.txt"]),
        ("[!a].py", ["src/b.py"]),
        ("?.py", ["src/a.py", "src/b.py"]),
        ("*.rs", []),
    ],
)
def test_a_glob_chooses_the_files(search, tree, glob, files):
    assert search(pattern="needle", file_glob=glob, output_mode="files_only").get("files") == files


def test_pages_join_without_a_gap(search, tree):
    (tree / "many.txt").write_text("".join(f"needle {n}\n" for n in range(120)))
    found, offset = [], 0
    while offset is not None:
        page = search(pattern="needle \\d+", limit=50, offset=offset)
        found += page["matches"]
        offset = page.get("next_offset")

    assert found == [f"many.txt:{n + 1}:needle {n}" for n in range(120)]


def test_a_result_that_is_too_long_is_continued_on_the_next_page(search, tree):
    (tree / "wide.txt").write_text(("needle " + "x" * 2000 + "\n") * 300)

    page = search(pattern="needle x", limit=300)
    assert len(json.dumps(page)) < 70_000
    assert len(page["matches"]) == page["next_offset"] < 300
    assert all(len(line) < 600 for line in page["matches"])


def test_one_file_may_be_searched_and_a_path_that_is_not_there_is_named(search, tree):
    assert search(pattern="needle", path="README.md") == {"matches": [], "note": "no match"}
    assert search(pattern="(?i)needle", path="README.md")["matches"] == ["README.md:1:# Needle"]
    assert search(pattern="x", path="gone") == {"error": "gone does not exist"}
    assert search(pattern="x", path="x" * 300) == {"error": f"{'x' * 200} cannot be searched: File name too long"}
    assert search(pattern="x", path="README.md/x") == {"error": "README.md/x cannot be searched: Not a directory"}


def test_the_syntax_is_pythons_also_where_rg_has_none_of_it(search, tree):
    for pattern in (
        r"(?<=def )needle",
        r"n(?!x)eedle\(\):",
        r"(?P<a>e)(?P=a)dle\(\):",
        r"def needle\Z|def needle\(\):",
    ):
        assert search(pattern=pattern)["matches"] == ["src/a.py:3:def needle():"], pattern
    (tree / "braces.txt").write_text("a{x\n[[:alpha:]]\n")
    assert search(pattern="a{x")["matches"] == ["braces.txt:1:a{x"]


def test_a_pattern_that_is_none_is_explained_with_a_way_out(search, tree):
    error = search(pattern="needle(")["error"]

    assert error.startswith("`pattern` is not a regular expression: missing ), unterminated subpattern at position 6")
    assert error.endswith("write needle\\(")
    assert "1500 groups in each other" in search(pattern="(" * 1500)["error"]
    assert search(pattern="(" * 100 + "needle" + ")" * 100)["matches"]
    assert "error" in search(pattern="x" * 5000)


def test_a_pattern_that_begins_with_a_dash_is_a_pattern(search, tree):
    (tree / "flags.txt").write_text("--files /etc/passwd\n")

    assert search(pattern="--files")["matches"] == ["flags.txt:1:--files /etc/passwd"]


def test_odd_file_names_are_found_and_shown_on_one_line(search, tree):
    for name in ("with blank.txt", "-dash.txt", "new\nline.txt", "quote'\".txt"):
        (tree / name).write_text("odd\n")
    (tree / os.fsdecode(b"bytes\xff.txt")).write_text("odd\n")

    assert search(pattern="odd", output_mode="files_only")["files"] == [
        "-dash.txt",
        "bytes\ufffd.txt",
        "new\\nline.txt",
        "quote'\".txt",
        "with blank.txt",
    ]


def test_a_deep_tree_is_searched_to_its_end(search, tree):
    place = tree
    for _ in range(1_500):
        place = place / "d"
        place.mkdir()
    (place / "deep.txt").write_text("needle in the deep\n")

    try:
        assert search(pattern="needle in the deep", output_mode="count")["counts"][0].endswith("/deep.txt:1")
        assert search(pattern="deep.txt", target="files")["files"][0].endswith("/deep.txt")
    finally:  # too deep for shutil.rmtree
        subprocess.run(["rm", "-r", str(tree / "d")], check=True)


def test_ignored_files_are_searched_and_links_are_not_followed(search, tree):
    (tree / ".gitignore").write_text("*.log\n")
    (tree / "a.log").write_text("ignored\n")
    (tree / "loop").symlink_to(".")
    (tree / "outside").symlink_to("/etc")

    assert search(pattern="ignored")["matches"] == ["a.log:1:ignored"]


def test_a_file_that_is_too_large_is_left_out_and_a_pipe_does_not_hang(search, tree):
    with (tree / "big.txt").open("wb") as file:
        file.truncate(20_000_000)
    (tree / "big.log").write_text("needle\n" + "x" * 11_000_000)
    os.mkfifo(tree / "pipe")

    assert "big" not in str(search(pattern="needle", output_mode="files_only")["files"])
    assert search(pattern="needle", path="big.log")["note"].startswith("not searched: it is over 10 MB")


def test_credentials_are_not_found(search, tree, workplace):
    (workplace.home / ".env").write_text("KEY=needle\n")
    (workplace.cwd.parent / ".ssh").mkdir()
    (workplace.cwd.parent / ".ssh/id_rsa").write_text("needle\n")
    os.link(workplace.home / ".env", tree / "hard")

    for mode in ("content", "files_only", "count"):
        found = str(search(pattern="needle", path="..", output_mode=mode))
        assert "src/b.py" in found
        assert ".env" not in found
        assert "id_rsa" not in found
        assert "hard" not in found
    assert "is not open to tools" in search(pattern="needle", path=str(workplace.home / ".env"))["error"]
    assert "is not open to tools" in search(pattern="needle", path="/proc/self")["error"]
    assert "holds no files" in search(pattern="needle", path="/proc")["error"]


def test_a_pattern_that_takes_for_ever_ends_in_time_with_what_was_found(search, tree):
    (tree / "README.md").write_text("aaaa\n")
    (tree / "src/a.py").write_text("a" * 64 + "b\n")
    started = time.monotonic()

    result = search(pattern=r"^(a|a)*\1$|^(a+)+$", deadline_s=2)

    assert result["matches"] == ["README.md:1:aaaa"]
    assert result["incomplete"].startswith("stopped after 2 s")
    assert time.monotonic() - started < 60


def test_files_are_found_by_name(search, tree):
    assert search(pattern="*.py", target="files") == {"files": ["src/a.py", "src/b.py"]}
    assert search(pattern="ci", target="files") == {"files": [".github/ci.yml"]}
    assert search(pattern="**/deep/*", target="files") == {"files": ["src/deep/c.txt"]}
    assert search(pattern="*", target="files", limit=2) == {"files": [".github/ci.yml", "README.md"], "next_offset": 2}


def test_a_choice_that_is_none_is_refused(search, tree):
    assert "expected one of content, files" in search(pattern="x", target="all")["error"]
    assert "expected one of content, files_only, count" in search(pattern="x", output_mode="json")["error"]


def test_an_interrupt_ends_a_search(workplace):
    (workplace.cwd / "a.txt").write_text("a" * 64 + "b\n")
    threading.Timer(0.5, workplace.cancelled.set).start()
    started = time.monotonic()

    outcome = workplace.outcome("search_files", {"pattern": "(?=a)^(a+)+$"})

    assert outcome.status == "cancelled"
    assert time.monotonic() - started < 25


def test_a_search_needs_nobodys_word(workplace):
    workplace.call("search_files", pattern="x")

    assert workplace.person.asked == []
