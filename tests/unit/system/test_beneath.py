"""Nothing that is opened below a directory lies elsewhere, with `openat2` and without."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attack.racing import exchanging
from hermes_agent.system.files import (
    DIRECTORY,
    hold_directory,
    load_openat2,
    open_beneath,
    open_by_parts,
    open_directory,
)


@pytest.fixture(params=["openat2", "by parts"])
def opens(request: pytest.FixtureRequest) -> Callable[..., int]:
    """`open_beneath` in both ways, one after the other."""
    call = load_openat2() if request.param == "openat2" else open_by_parts
    if call is None:
        pytest.skip("the kernel has no openat2")
    return functools.partial(open_beneath, opener=call)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "root" / "a" / "b").mkdir(parents=True)
    (tmp_path / "root" / "a" / "b" / "file").write_text("inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("outside")
    for name, target in {"a/link": "b", "a/out": "../../outside", "self": "/proc/self/fd/0", "loop": "loop"}.items():
        (tmp_path / "root" / name).symlink_to(target)
    handle = open_directory(str(tmp_path / "root"))
    yield handle
    os.close(handle)


def text(handle: int) -> str:
    with os.fdopen(handle) as file:
        return file.read()


def test_a_path_below_is_opened_and_made(opens: Callable[..., int], root: int, tmp_path: Path) -> None:
    assert text(opens(root, "a//./b/file", os.O_RDONLY)) == "inside"
    handle = opens(root, "a/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
    assert os.fstat(handle).st_mode & 0o777 == 0o640 and not os.get_inheritable(handle)
    os.close(handle)
    with hold_directory(f"{tmp_path}/root/x/y/z") as made:
        assert os.path.samestat(os.fstat(made), (tmp_path / "root/x/y/z").stat())
    with pytest.raises(FileNotFoundError):
        open_directory(f"{tmp_path}/root/none")


@pytest.mark.attack("races")
@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("a/link/file", errno.ELOOP),
        ("a/out/file", errno.ELOOP),
        ("a/out", errno.ELOOP),
        ("self", errno.ELOOP),
        ("loop", errno.ELOOP),
        ("..", errno.EXDEV),
        ("a/../../outside/file", errno.EXDEV),
        ("/etc/passwd", errno.EXDEV),
        ("a/b/file/c", errno.ENOTDIR),
        ("a/none/c", errno.ENOENT),
    ],
)
def test_no_path_leads_out(opens: Callable[..., int], root: int, path: str, error: int) -> None:
    with pytest.raises(OSError) as caught:
        os.close(opens(root, path, os.O_RDONLY))
    assert caught.value.errno == error


@pytest.mark.attack("races")
def test_a_directory_that_becomes_a_link_leads_nowhere_else(
    opens: Callable[..., int], root: int, tmp_path: Path, attempt
) -> None:
    inside = 0
    with exchanging(tmp_path / "root/a/b", tmp_path / "root/a/out") as exchanged:
        while exchanged[0] < 2_000 or not inside:
            try:
                found = text(opens(root, "a/b/file", os.O_RDONLY))
            except OSError as exc:
                found = errno.errorcode[exc.errno or 0]
            inside += found == "inside"
            attempt(found != "outside", found)


def test_a_path_longer_than_the_kernel_takes_is_opened_in_pieces(opens: Callable[..., int], root: int) -> None:
    name, count = "d" * 200, 60
    handle = os.dup(root)
    for _ in range(count):
        os.mkdir(name, dir_fd=handle)
        deeper = opens(handle, name, DIRECTORY)
        os.close(handle)
        handle = deeper
    there = opens(root, "/".join([name] * count), DIRECTORY)
    assert os.path.sameopenfile(there, handle)
    os.close(there)
    os.close(handle)
