"""`read_file` of a directory."""

from __future__ import annotations

import os

from hermes_agent.workspace import remote_files


def test_a_directory_is_listed_with_kinds_and_sizes_and_directories_first(workplace):
    src = workplace.cwd / "src"
    (src / "deep").mkdir(parents=True)
    (src / "deep" / "a.py").write_text("x")
    (src / "z.txt").write_text("x" * 1_234)
    (src / "empty").touch()
    (src / "link").symlink_to("z.txt")
    (src / "way").symlink_to("deep")
    (src / "broken").symlink_to("gone")
    os.mkfifo(src / "pipe")
    result = workplace.call("read_file", path="src")

    assert (result["path"], result["kind"], result["total_entries"]) == ("src", "directory", 7)
    assert result["content"].splitlines() == [
        "deep/",
        "broken (link to gone)",
        "empty (0 bytes)",
        "link (link to z.txt)",
        "pipe (a named pipe)",
        "way/ (link to deep)",
        "z.txt (1,234 bytes)",
    ]
    assert result["note"].startswith("src is a directory with 1 directory and 6 files directly in it; `content` has")
    assert "Directories may contain more files" in result["note"] and "next_offset" not in result


def test_an_empty_directory_is_called_so_and_one_with_directories_alone_is_not(workplace):
    (workplace.cwd / "a" / "b").mkdir(parents=True)

    assert workplace.call("read_file", path="a/b")["note"] == "a/b is an empty directory."
    note = workplace.call("read_file", path="a/")["note"]
    assert "1 directory and 0 files directly in it" in note and "may contain more files" in note
    assert workplace.call("read_file", path=".")["content"] == "a/\n"


def test_a_long_directory_comes_in_pages(workplace):
    for number in range(502):
        (workplace.cwd / f"f{number:03}").touch()
    first = workplace.call("read_file", path=".")
    assert (first["next_offset"], first["total_entries"], first["content"].count("\n")) == (501, 502, 500)
    rest = workplace.call("read_file", path=".", offset=first["next_offset"])
    assert rest["content"] == "f500 (0 bytes)\nf501 (0 bytes)\n" and "these are 501 to 502" in rest["note"]
    few = workplace.call("read_file", path=".", offset=2, limit=3)
    assert (few["content"].split()[::3], few["next_offset"]) == (["f001", "f002", "f003"], 5)
    assert "offset 600 is after the end" in workplace.call("read_file", path=".", offset=600)["note"]


def test_what_is_too_long_to_be_counted_says_so():
    lines = "\n".join(f"-rw-r--r-- 1 0 0 7 Nov 23 14:00 f{n:06}" for n in range(remote_files.MOST_ENTRIES + 1))
    page = remote_files.listing_page(
        "big", lambda first, count: remote_files.read_ls(lines, first, count), 1, None, 2_000, 100_000
    )
    assert page["total_entries"] == remote_files.MOST_ENTRIES and page["content"].startswith("f000000 (7 bytes)\n")
    assert "100,000 files directly in it, and more: after 100,000 entries the count ended" in page["note"]


def test_the_text_of_a_listing_is_bounded(place_with):
    place = place_with("file_read_max_chars: 1000\nterminal: {sandbox: off}\n")
    for number in range(40):
        (place.cwd / f"{number:02}{'x' * 60}").touch()
    result = place.call("read_file", path=".")
    assert len(result["content"]) <= 1_000 and result["next_offset"] == result["content"].count("\n") + 1


def test_names_cannot_forge_entries_or_hide(workplace):
    (workplace.cwd / "a\nb (5 bytes)").touch()
    (workplace.cwd / "gpj\u202e.exe").touch()
    (workplace.cwd / os.fsdecode(b"\xff")).touch()
    result = workplace.call("read_file", path=".")

    assert result["total_entries"] == result["content"].count("\n") == 3
    assert set(result["content"].splitlines()) == {
        "a\\nb (5 bytes) (0 bytes)",
        "gpj\\u202e.exe (0 bytes)",
        "\ufffd (0 bytes)",
    }


def test_credentials_are_named_and_stay_closed(workplace):
    (workplace.home / ".env").write_text("KEY=x")
    result = workplace.call("read_file", path=str(workplace.home))

    assert ".env (holds credentials: not open to tools)" in result["content"]
    assert "is not open to tools" in workplace.call("read_file", path="/proc/self")["error"]
    directory = workplace.cwd / "closed"
    directory.symlink_to("/proc/self")
    assert "is not open to tools" in workplace.call("read_file", path="closed")["error"]
