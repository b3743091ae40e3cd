from __future__ import annotations

import os
import resource
import threading

import pytest


def test_lines_come_with_their_numbers(workplace):
    (workplace.cwd / "a.txt").write_text("one\n\nthree\n")

    assert workplace.call("read_file", path="a.txt") == {
        "path": "a.txt",
        "content": "1|one\n2|\n3|three\n",
        "total_lines": 3,
    }


def test_a_last_line_without_an_end_counts(workplace):
    (workplace.cwd / "a.txt").write_text("one\ntwo")

    assert workplace.call("read_file", path="a.txt")["total_lines"] == 2


def test_an_empty_file_has_no_lines(workplace):
    (workplace.cwd / "a.txt").touch()

    assert workplace.call("read_file", path="a.txt") == {"path": "a.txt", "content": "", "total_lines": 0}


def test_a_page_says_where_the_next_one_begins(workplace):
    (workplace.cwd / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 11)))

    first = workplace.call("read_file", path="a.txt", offset=3, limit=2)
    assert first == {"path": "a.txt", "content": "3|3\n4|4\n", "total_lines": 10, "next_offset": 5}
    last = workplace.call("read_file", path="a.txt", offset=9, limit=50)
    assert last == {"path": "a.txt", "content": "9|9\n10|10\n", "total_lines": 10}


def test_an_offset_after_the_end_is_said(workplace):
    (workplace.cwd / "a.txt").write_text("one\n")

    result = workplace.call("read_file", path="a.txt", offset=7)
    assert (result["content"], result["total_lines"]) == ("", 1)
    assert result["note"] == "offset 7 is after the end"


def test_numbers_as_text_are_taken_and_nonsense_is_refused(workplace):
    (workplace.cwd / "a.txt").write_text("one\ntwo\n")

    assert workplace.call("read_file", path="a.txt", offset="2")["content"] == "2|two\n"
    for name, value in (("offset", 0), ("offset", -1), ("limit", 0), ("limit", "many"), ("offset", 1.5)):
        assert f"`{name}` is" in workplace.call("read_file", path="a.txt", **{name: value})["error"]


def test_a_page_ends_before_it_is_too_long(workplace):
    (workplace.cwd / "a.txt").write_text(("x" * 1000 + "\n") * 500)

    result = workplace.call("read_file", path="a.txt")
    assert 95_000 < len(result["content"]) <= 100_000
    assert result["total_lines"] == 500
    again = workplace.call("read_file", path="a.txt", offset=result["next_offset"], limit=1)
    assert again["content"].startswith(f"{result['next_offset']}|x")


def test_a_long_line_is_cut_and_the_next_line_keeps_its_number(workplace):
    (workplace.cwd / "a.txt").write_text("a" * 2000 + "\n" + "b" * 2001 + "\r\n" + "c" * 3_000_000 + "\nend\n")

    lines = workplace.call("read_file", path="a.txt")["content"].splitlines()
    assert lines == [
        "1|" + "a" * 2000,
        "2|" + "b" * 2000 + "… [1 more characters]",
        "3|" + "c" * 2000 + "… [2,998,000 more characters]",
        "4|end",
    ]


def test_a_huge_file_without_a_line_break_takes_little_memory(workplace):
    path = workplace.cwd / "huge.txt"
    with path.open("wb") as file:
        for _ in range(300):
            file.write(b"x" * 1_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = workplace.call("read_file", path="huge.txt")
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    assert result["content"].endswith("… [299,998,000 more characters]\n")
    assert grown_kib < 100_000


def test_an_interrupt_ends_the_reading_of_a_huge_file(workplace):
    (workplace.cwd / "a.txt").write_text("x\n" * 10)
    workplace.cancelled.set()

    assert workplace.call("read_file", path="a.txt") == {"error": "interrupted by the user"}


def test_windows_line_ends_are_left_out_and_said(workplace):
    (workplace.cwd / "a.txt").write_bytes(b"one\r\ntwo\r\n")

    result = workplace.call("read_file", path="a.txt")
    assert (result["content"], result["line_ends"]) == ("1|one\n2|two\n", "crlf")


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        ("grün\n".encode("utf-8-sig"), "utf-8-sig"),
        ("grün\n".encode("utf-16"), "utf-16"),
        ("grün\n".encode("utf-32"), "utf-32"),
        ("grün\n".encode("latin-1"), "latin-1"),
    ],
)
def test_other_encodings_are_read_and_said(workplace, data, encoding):
    (workplace.cwd / "a.txt").write_bytes(data)

    result = workplace.call("read_file", path="a.txt")
    assert (result["content"], result["encoding"]) == ("1|grün\n", encoding)


def test_a_character_across_the_end_of_the_sample_is_no_reason_for_another_encoding(workplace):
    (workplace.cwd / "a.txt").write_text("x" * 8191 + "ü\n")

    assert "encoding" not in workplace.call("read_file", path="a.txt")


def test_a_binary_file_is_refused_with_its_size(workplace):
    (workplace.cwd / "a.bin").write_bytes(b"\x7fELF\0\0\0\0")

    assert "is a binary file of 8 bytes" in workplace.call("read_file", path="a.bin")["error"]


def test_what_is_no_file_is_refused_at_once(workplace):
    os.mkfifo(workplace.cwd / "pipe")

    assert "is a named pipe" in workplace.call("read_file", path="pipe")["error"]
    assert "is a device" in workplace.call("read_file", path="/dev/zero")["error"]
    assert "No such file" in workplace.call("read_file", path="gone.txt")["error"]
    assert "`path` is missing" in workplace.call("read_file")["error"]
    assert "`path`" in workplace.call("read_file", path="a\0b")["error"]
    assert "error" in workplace.call("read_file", path="x" * 5000)


def test_a_loop_of_links_is_an_error(workplace):
    (workplace.cwd / "a").symlink_to("b")
    (workplace.cwd / "b").symlink_to("a")

    assert "error" in workplace.call("read_file", path="a")


def test_the_home_directory_may_be_written_as_a_tilde(workplace):
    (workplace.cwd.parent / "a.txt").write_text("one\n")

    assert workplace.call("read_file", path="~/a.txt")["content"] == "1|one\n"


def test_a_long_result_is_never_moved_to_a_file(workplace):
    (workplace.cwd / "a.txt").write_text(("é" * 1900 + "\n") * 60)

    assert "<persisted-output>" not in workplace.outcome("read_file", {"path": "a.txt"}).result


def _secrets(workplace):
    user, home = workplace.cwd.parent, workplace.home
    files = [home / name for name in (".env", "auth.json", "api_server.key", "state.db", "state.db-wal")]
    files += [user / ".ssh/id_ed25519", user / ".netrc", user / ".aws/credentials", user / ".gnupg/private-keys-v1.d/k"]
    files.append(workplace.cwd.parents[1] / "credentials" / "OPENAI_API_KEY")
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("topsecretvalue\n")
    return files


def test_credentials_are_not_read_by_their_name(workplace):
    for path in _secrets(workplace):
        result = workplace.outcome("read_file", {"path": str(path)}).result
        assert "is not open to tools" in result, path
        assert "topsecretvalue" not in result


def test_credentials_are_not_read_through_links_and_detours(workplace):
    secret = _secrets(workplace)[0]
    (workplace.cwd / "soft").symlink_to(secret)
    (workplace.cwd / "dir").symlink_to(secret.parent)
    os.link(secret, workplace.cwd / "hard")

    for path in ("soft", "dir/.env", "hard", "../.hermes/.env", "~/.hermes/./.env", f"/proc/self/root{secret}"):
        result = workplace.outcome("read_file", {"path": path}).result
        assert "is not open to tools" in result, path


def test_what_is_public_beside_credentials_of_the_agent_is_read(workplace):
    (workplace.home / "config.yaml").write_text("model: x\n")
    assert workplace.call("read_file", path="~/.hermes/config.yaml")["content"] == "1|model: x\n"


def test_the_inside_of_processes_is_closed(workplace):
    for path in ("/proc/self/environ", f"/proc/{os.getpid()}/environ", "/proc/1/environ", "/proc/thread-self/mem"):
        assert "the inside of a process" in workplace.call("read_file", path=path)["error"]
    assert "content" in workplace.call("read_file", path="/proc/meminfo")


def test_reading_never_hangs_on_a_kernel_file_that_waits(workplace):
    done = threading.Event()

    def read():
        workplace.outcome("read_file", {"path": "/proc/kmsg"})
        done.set()

    threading.Thread(target=read, daemon=True).start()
    assert done.wait(5)
