"""Files that calls of providers pass to the process of a plugin and back: sounds, images, videos.

The process sees no file of the agent, and the agent none of a plugin's unit. A file that an argument or a result names
goes over the socket: the plugin finds it at a path of its own for the time of the call, and the agent stores the result
where it asked for it, or in its cache of media.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.adapters.media import get_image_cache_dir, get_video_cache_dir
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.messages import new_id
from hermes_agent.plugins.isolation.values import UnusableValue

MAX_BYTES = 20 * 2**20
"""Largest file that is passed."""


class PassedFile(LazyNamedTuple):
    """A file in a message."""

    name: str
    data: bytes


class FileUse(LazyNamedTuple):
    """Which arguments and results of a method name files."""

    inputs: Mapping[str, int]
    """Position of each argument with a path, or a list of paths; -1 for keywords alone."""
    output: tuple[str, int] | None = None
    """The argument with the path of the result, and its position."""
    result: str = ""
    """Key of the result with a path; a result that is a text is the path itself."""


_PICTURES = {"image_url": -1, "reference_image_urls": -1}
USES: Mapping[tuple[str, str], FileUse] = {
    ("tts", "synthesize"): FileUse({}, ("output_path", 1)),
    ("transcription", "transcribe"): FileUse({"file_path": 0}),
    ("image_gen", "generate"): FileUse(_PICTURES, result="image"),
    ("video_gen", "generate"): FileUse(_PICTURES, result="video"),
}
"""By kind of provider and method."""

Arguments = tuple[list[Any], dict[str, Any]]


def _changed(use: FileUse, args: Any, kwargs: Mapping[str, Any], change: Any) -> Arguments:
    """Return the arguments, with `change(name, value)` of those that name files."""
    given, named = list(args), dict(kwargs)
    for name, position in [*use.inputs.items(), *([use.output] if use.output else [])]:
        if name in named:
            named[name] = change(name, named[name])
        elif 0 <= position < len(given):
            given[position] = change(name, given[position])
    return given, named


def _is_path(value: Any) -> bool:
    """Return whether a value is a path, not an address or data."""
    return isinstance(value, Path) or (isinstance(value, str) and value.startswith(("/", "~", ".")))


def _packed(value: Any) -> Any:
    """Return the file of a path, the files of a list, or the value itself if it names no file.

    Raises:
        UnusableValue: the file is too large.
    """
    if isinstance(value, list | tuple):
        return [_packed(each) for each in value]
    if not _is_path(value):
        return value
    path = Path(value)
    try:
        if not path.is_file():
            return value
        size = path.stat().st_size
    except (OSError, ValueError):  # also a text that is too long for a path
        return value
    if size > MAX_BYTES:
        raise UnusableValue(f"{path} has {size} bytes; at most {MAX_BYTES} are passed to and from a plugin's process")
    return PassedFile(path.name, path.read_bytes())


class AgentFiles:
    """The files of one call, on the side of the agent.

    Args:
        use: what names files.
    """

    def __init__(self, use: FileUse) -> None:
        self._use = use
        self._target: Path | None = None

    def pack(self, args: Any, kwargs: Mapping[str, Any]) -> Arguments:
        """Return the arguments with files in place of paths.

        Raises:
            UnusableValue: a file is too large.
        """

        def change(name: str, value: Any) -> Any:
            if self._use.output is None or name != self._use.output[0]:
                return _packed(value)
            self._target = Path(value)
            return PassedFile(self._target.name, b"")

        return _changed(self._use, args, kwargs, change)

    def unpack(self, result: Any) -> Any:
        """Return the result with the paths of stored files.

        Raises:
            UnusableValue: the result names a file that the plugin does not have, or that would replace another one.
        """
        if isinstance(result, PassedFile):
            return self._store(result)
        named = result.get(self._use.result) if isinstance(result, Mapping) else result
        if isinstance(named, PassedFile):
            return {**result, self._use.result: self._store(named)}
        if (self._use.output or self._use.result) and _is_path(named):
            raise UnusableValue(f"the plugin answers with the file {named!s:.200}, which it does not have")
        return result

    def _store(self, file: PassedFile) -> str:
        name = Path(file.name).name
        if self._target is not None:  # the plugin may choose another format, but replaces no other file
            place = self._target.with_suffix(Path(name).suffix or self._target.suffix)
        else:
            folder = get_video_cache_dir() if self._use.result == "video" else get_image_cache_dir()
            place = folder / f"{new_id('made')}{Path(name).suffix}"
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            with place.open("wb" if place == self._target else "xb") as stream:
                stream.write(file.data)
        except FileExistsError as exc:
            raise UnusableValue(f"the plugin answers with {name!r:.200}, and {place} is another file already") from exc
        return str(place)


class HostedFiles:
    """The files of one call, in the process of the plugin; use it as a context."""

    def __init__(self, use: FileUse) -> None:
        self._use = use

    @contextlib.contextmanager
    def unpacked(self, args: Any, kwargs: Mapping[str, Any]) -> Iterator[Arguments]:
        """Give the arguments with paths of files that exist within the context."""
        with tempfile.TemporaryDirectory(prefix="hermes-call-") as folder:
            numbers = iter(range(1_000))

            def place(value: Any) -> Any:
                if isinstance(value, list):
                    return [place(each) for each in value]
                if not isinstance(value, PassedFile):
                    return value
                path = Path(folder, str(next(numbers)), Path(value.name).name or "file")
                path.parent.mkdir()
                if value.data:
                    path.write_bytes(value.data)
                return str(path)

            yield _changed(self._use, args, kwargs, lambda name, value: place(value))

    def pack(self, result: Any) -> Any:
        """Return the result with files in place of paths.

        Raises:
            UnusableValue: a file is too large.
        """
        if isinstance(result, str | Path):
            return _packed(result)
        if isinstance(result, Mapping) and self._use.result in result:
            return {**result, self._use.result: _packed(result[self._use.result])}
        return result
