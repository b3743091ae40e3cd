"""Unix sockets of programs outside of the sandbox, in directories that commands see.

To connect takes no more than the name, and a read-only mount does not keep anybody from it. So each that is there when
a command begins is covered. One that a program outside makes later, in a directory that a running command sees, is
not, nor one of a program in another network namespace (a container's), which the kernel does not list here.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from functools import cache

__all__ = ["bound"]

LIST = "/proc/net/unix"


def bound() -> Iterator[str]:
    """Yield the real paths of the sockets that programs of this network namespace listen on."""
    cwds = cache(_cwds)
    for name in _names():
        for path in [name] if name.startswith("/") else [f"{cwd}/{name}" for cwd in cwds()]:
            if not path.startswith("/proc/"):
                directory, _, last = path.rpartition("/")
                with contextlib.suppress(OSError, ValueError):
                    real = f"{os.path.realpath(directory)}/{last}"
                    if stat.S_ISSOCK(os.lstat(real).st_mode):
                        yield real


def _names() -> set[str]:
    """Return the names that sockets were bound to, relative ones too; of these one has nobody's directory."""
    try:
        with open(LIST, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123 - `errors`, line by line
            fields = [line.rstrip("\n").split(None, 7) for line in file]
    except OSError:
        return set()
    return {each[7] for each in fields[1:] if len(each) == 8 and not each[7].startswith("@")}


def _cwds() -> set[str]:
    """Return the working directories of the programs that this user may look at."""
    found: set[str] = set()
    for process in os.scandir("/proc"):
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"/proc/{process.name}/cwd"))  # noqa: PTH115 - some hundreds
    return found
