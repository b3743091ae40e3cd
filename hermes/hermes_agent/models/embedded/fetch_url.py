"""Download by HTTP into a file that grows; what is there already is not fetched again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hermes_agent.core.errors import HermesError
from hermes_agent.models.embedded.progress import Progress, human

if TYPE_CHECKING:
    import httpx

__all__ = ["SourceFailed", "append_from_url", "shown_url"]

TRIES = 5
"""Connections in a row that may bring nothing; one that brings bytes starts the count anew."""
CONNECT_TIMEOUT_S = 15.0
READ_TIMEOUT_S = 60.0

_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class SourceFailed(HermesError):
    """This source does not give the file; the text says why, another source may."""


class _Cut(Exception):
    """The connection ended early, or the server asked to come back: the same request may go on."""


def append_from_url(
    url: str, part: Path, size: int, progress: Progress, *, pause: Callable[[float], None] = time.sleep
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
                _once(client, url, part, have, size, progress)
                reason = "it ended early"
            except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.TooManyRedirects) as exc:
                raise SourceFailed(f"{shown_url(url)}: {exc}") from exc
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as exc:
                if not begun:
                    raise SourceFailed(f"{shown_url(url)} cannot be reached ({_why(exc)})") from exc
                reason = _why(exc)
            except (httpx.TransportError, httpx.StreamError, _Cut) as exc:
                reason = _why(exc)
            got = _length(part)
            if got >= size:
                break
            begun = begun or got > have
            tries = TRIES if got > have else tries - 1
            if not tries:
                raise SourceFailed(f"{shown_url(url)} broke off {TRIES} times at {human(got)} ({reason})")
            progress.note(f"{shown_url(url)}: {reason}; going on at {human(got)}")
            pause(2.0 ** (TRIES - tries))


def shown_url(url: str) -> str:
    """Return the URL without user, password, query and fragment."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _once(client: httpx.Client, url: str, part: Path, have: int, size: int, progress: Progress) -> None:
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with client.stream("GET", url, headers=headers) as response:
        start = _start_of(response, url, have, size)
        if start != have:
            progress.note(f"{shown_url(url)} cannot go on in the middle; it starts from the beginning")
        with part.open("r+b" if part.exists() else "wb") as file:
            file.truncate(start)
            file.seek(start)
            done = start
            for chunk in response.iter_bytes():  # as the pieces come: a size would lose the last one of a cut
                file.write(chunk)
                done += len(chunk)
                progress.at(done)
                if done > size:
                    file.truncate(0)
                    raise SourceFailed(f"{shown_url(url)} is longer than the {size} bytes that are expected")


def _start_of(response: httpx.Response, url: str, have: int, size: int) -> int:
    """Return the position at which the answer's bytes begin."""
    status = response.status_code
    if status == 429 or status >= 500:
        raise _Cut(f"it answers {status} {response.reason_phrase}".strip())
    if status == 206:
        found = _RANGE.match(response.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != have:
            raise SourceFailed(f"{shown_url(url)} answered another range than was asked for")
        _same_length(found[2], url, size)
        return have
    if status == 200:
        _same_length(response.headers.get("Content-Length", "*"), url, size)
        return 0
    if status == 416:
        raise SourceFailed(f"{shown_url(url)} is shorter than the {size} bytes that are expected")
    raise SourceFailed(f"{shown_url(url)} answers {status} {response.reason_phrase}".rstrip())


def _same_length(said: str, url: str, size: int) -> None:
    if said.isdigit() and int(said) != size:
        raise SourceFailed(f"{shown_url(url)} has {said} bytes, {size} are expected: it is another file")


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__
