"""Small acts on the container's file system, with errors that name the command."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from run_in_systemd.plan import HarnessError

__all__ = ["bind", "inside_path", "sh", "write"]


def sh(*argv: str) -> None:
    """Run a command; a failure is a HarnessError with its output."""
    ran = subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if ran.returncode:
        raise HarnessError(f"{shlex.join(argv)}: {ran.stdout.strip() or ran.returncode}")


def write(path: str, text: str, mode: int = 0o644) -> None:
    """Write a file with its directories."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    """Show `source` at `target`, which is made when it is missing."""
    if Path(source).is_dir():
        Path(target).mkdir(parents=True, exist_ok=True)
    elif not os.path.lexists(target):
        write(target, "")
    sh("mount", "--rbind", source, target)
    if read_only:
        sh("mount", "-o", "remount,bind,ro", target)


def inside_path(root: str, path: str) -> str:
    """Return where `path` of the container lies below `root`, its symbolic links followed, never leaving `root`."""
    out: list[str] = []
    todo = [part for part in path.split("/") if part not in ("", ".")]
    hops = 0
    while todo:
        part = todo.pop(0)
        if part == "..":
            out[-1:] = []
            continue
        here = os.path.join(root, *out, part)
        if not os.path.islink(here):
            out.append(part)
            continue
        hops += 1
        if hops > 40:
            raise HarnessError(f"{path}: too many symbolic links")
        target = os.readlink(here)
        if target.startswith("/"):
            out = []
        todo = [piece for piece in target.split("/") if piece not in ("", ".")] + todo
    return os.path.join(root, *out)
