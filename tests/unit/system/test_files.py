from __future__ import annotations

import os
import stat
import threading

import pytest

from hermes_agent.system.files import PRIVATE, FileStamp, JsonFile, replace_at, write_atomic
from hermes_agent.system.locks import FileLock


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_text_and_bytes_are_written(tmp_path):
    write_atomic(tmp_path / "a", "grün\n")
    write_atomic(tmp_path / "b", b"\x00\xff")

    assert (tmp_path / "a").read_bytes() == "grün\n".encode()
    assert (tmp_path / "b").read_bytes() == b"\x00\xff"
    assert mode(tmp_path / "a") == 0o644


def test_a_mode_is_set_and_otherwise_kept(tmp_path):
    path = tmp_path / "key"
    write_atomic(path, "1", mode=PRIVATE)
    assert mode(path) == 0o600
    write_atomic(path, "2")
    assert mode(path) == 0o600
    write_atomic(path, "3", mode=0o640)
    assert mode(path) == 0o640


def test_a_private_file_is_at_no_moment_readable_by_others(tmp_path):
    seen, stop = set(), threading.Event()

    def watch():
        while not stop.is_set():
            for entry in os.scandir(tmp_path):
                try:
                    seen.add(stat.S_IMODE(entry.stat().st_mode))
                except FileNotFoundError:
                    continue

    thread = threading.Thread(target=watch)
    thread.start()
    for _ in range(200):
        write_atomic(tmp_path / "key", "x" * 10_000, mode=PRIVATE)
    stop.set()
    thread.join()
    assert seen <= {0o600}


def test_a_link_is_followed(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_atomic(tmp_path / "link", "new")

    assert (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "link").is_symlink()


def test_in_an_open_directory_a_link_is_replaced(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    directory = os.open(tmp_path, os.O_PATH)
    replace_at(directory, "link", b"new")
    os.close(directory)

    assert (tmp_path / "real").read_text() == "old"
    assert (tmp_path / "link").read_text() == "new"


def test_the_longest_name_that_a_file_may_have_works(tmp_path):
    path = tmp_path / ("ü" * 127)
    write_atomic(path, "x")

    assert path.read_text() == "x"


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError):
        write_atomic(tmp_path / "a", "x")
    with pytest.raises(OSError):
        write_atomic(tmp_path / "gone" / "a", "x")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(tmp_path / "b", "\ud800")

    assert os.listdir(tmp_path) == ["a"]


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path):
    path = tmp_path / "a"
    texts = {"a" * 100_000, "b" * 100_000}
    write_atomic(path, "a" * 100_000)
    stop, seen = threading.Event(), set()

    def read():
        while not stop.is_set():
            seen.add(path.read_text())

    thread = threading.Thread(target=read)
    thread.start()
    for n in range(100):
        write_atomic(path, "ab"[n % 2] * 100_000)
    stop.set()
    thread.join()
    assert seen <= texts


def test_a_json_file_is_changed_whole_and_private(tmp_path):
    file = JsonFile(tmp_path / "a" / "b.json")
    assert file.read() == {}
    with file.change() as value:
        value["x"] = "ü"
    assert file.read() == {"x": "ü"}
    assert mode(file.path) == 0o600
    with pytest.raises(RuntimeError), file.change() as value:
        value["x"] = 2
        raise RuntimeError
    with file.change() as value:
        before = file.path.stat().st_ino
    assert file.path.stat().st_ino == before, "nothing changed, nothing written"
    assert file.read() == {"x": "ü"}


def test_changes_of_many_threads_are_all_kept(tmp_path):
    def add(name):
        for n in range(20):
            with JsonFile(tmp_path / "a.json").change() as value:
                value[f"{name}{n}"] = n

    threads = [threading.Thread(target=add, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(JsonFile(tmp_path / "a.json").read()) == 60


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_broken_json_file_counts_as_empty_and_is_kept_aside(tmp_path, text, caplog):
    file = JsonFile(tmp_path / "a.json")
    file.path.write_text(text)
    assert file.read() == {}
    assert "a.json is not used" in caplog.text
    with file.change() as value:
        value["x"] = 1
    assert (tmp_path / "a.json.broken").read_text() == text
    assert file.read() == {"x": 1}


def test_a_json_file_that_another_holds_too_long_is_an_os_error(tmp_path):
    change = JsonFile(tmp_path / "a.json", timeout_s=0.01).change()
    with FileLock.for_file(tmp_path / "a.json"), pytest.raises(OSError, match=r"a\.json is locked by process"):
        change.__enter__()


def test_a_stamp_changes_with_the_file_and_its_content_part_only_with_the_content(tmp_path):
    path = tmp_path / "a"
    assert FileStamp.of(path) is None
    path.write_text("1")
    first = FileStamp.of(path)
    assert first == FileStamp.of(path.stat()) == FileStamp.of(str(path))
    os.utime(path, ns=(1, first.mtime_ns))
    path.chmod(0o600)
    assert FileStamp.of(path).content == first.content
    path.write_text("22")
    assert FileStamp.of(path).content != first.content
