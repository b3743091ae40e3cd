"""What the user sends: queued messages, long pastes, images, and output of the user's own commands."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import mimetypes
import os
import re
import secrets
import shlex
import signal
import threading
import urllib.parse
from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.messages import Content
from hermes_agent.core.redaction import redactor
from hermes_agent.core.untrusted import mark_untrusted
from hermes_agent.system.processes import tool_environment

MAX_QUEUED = 32


class QueuedInput(LazyNamedTuple):
    """One input."""

    text: str
    is_typed: bool = True
    """Whether the user typed it; a text of a plugin is never read as a command."""


class InputQueue:
    """A bounded queue, safe for threads.

    Args:
        on_plugin: called, in the thread of the caller, when a plugin has injected a text.
    """

    def __init__(self, on_plugin: Callable[[], None]) -> None:
        self._on_plugin = on_plugin
        self._items: deque[QueuedInput] = deque()
        self._lock = threading.Lock()

    def add_typed(self, line: str) -> bool:
        """Add a message of the user; return False if the queue is full."""
        with self._lock:
            if len(self._items) >= MAX_QUEUED:
                return False
            self._items.append(QueuedInput(line))
            return True

    def add_injected(self, text: str) -> bool:
        """Add a text of a plugin, before the messages of the user; return False if the queue is full."""
        with self._lock:
            if len(self._items) >= MAX_QUEUED:
                return False
            place = next((i for i, item in enumerate(self._items) if item.is_typed), len(self._items))
            self._items.insert(place, QueuedInput(text, is_typed=False))
        self._on_plugin()
        return True

    def take(self) -> QueuedInput | None:
        """Remove and return the next input, or None."""
        with self._lock:
            return self._items.popleft() if self._items else None

    def take_typed(self) -> list[str]:
        """Remove and return the messages of the user."""
        with self._lock:
            typed = [item.text for item in self._items if item.is_typed]
            self._items = deque(item for item in self._items if not item.is_typed)
            return typed

    def take_back(self) -> str:
        """Remove and return the last message of the user, or ""."""
        with self._lock:
            if self._items and self._items[-1].is_typed:
                return self._items.pop().text
            return ""

    def texts(self) -> list[str]:
        """Return the texts that wait, in order."""
        with self._lock:
            return [item.text for item in self._items]

    def __len__(self) -> int:
        return len(self._items)


FOLDED_LINES = 8
"""A paste of more lines is shown folded."""
FOLDED_CHARS = 2_000
MAX_IMAGE_BYTES = 5_000_000
MAX_IMAGES = 8
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")

_FOLD = re.compile(r"\[pasted [\d,]+ (?:lines|characters) #(\w+)\]")
_SESSION = re.compile(r"(?:(?<=\s)|^)@session:([\w.-]*\w)")
_MENTION = re.compile(r'(?:(?<=\s)|^)@(?:"([^"\n]+)"|(\S+))')


class PasteStore:
    """Long pastes, shown as `[pasted 5,000 lines #a1b2]` until the text is sent.

    Args:
        directory: where relative paths of dropped files begin.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._texts: dict[str, str] = {}

    def fold(self, text: str) -> str:
        """Return what is inserted for a paste: the text, a mark for a long one, `@path` for dropped files."""
        files = dropped_files(text, self._directory)
        if files:
            return "".join(mention_of(path, self._directory) for path in files)
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if lines <= FOLDED_LINES and len(text) <= FOLDED_CHARS:
            return text
        mark = secrets.token_hex(2)
        self._texts[mark] = text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        return f"[pasted {size} #{mark}]"

    def expand(self, text: str) -> str:
        """Return a text with its pastes in place of their marks."""
        return _FOLD.sub(lambda match: self._texts.get(match[1], match[0]), text)


def dropped_files(text: str, directory: Path) -> list[Path]:
    """Return the files that a paste names, as terminals paste what is dropped on them; [] for other text."""
    text = text.strip()
    if "\n" in text or len(text) > 4_096 or not re.match(r"['\"]?(?:/|~|\./|file://)", text):
        return []
    try:
        words = shlex.split(text)
    except ValueError:
        return []
    paths = [directory / _path_of(word) for word in words]
    try:
        return paths if all(path.is_file() for path in paths) else []
    except OSError:
        return []


def _path_of(word: str) -> Path:
    """Return the path of a word: a path, or the URL of a file on this machine."""
    if word.startswith("file://"):
        return Path(urllib.parse.unquote("/" + word.removeprefix("file://").partition("/")[2]))
    return Path(word).expanduser()


def mention_of(path: Path, directory: Path) -> str:
    """Return `@path ` for a file; relative to the directory if it is below it."""
    shown = str(path.relative_to(directory)) if path.is_relative_to(directory) else str(path)
    return f'@"{shown}" ' if " " in shown else f"@{shown} "


def mentioned_images(text: str, directory: Path) -> list[Path]:
    """Return the image files that a message names with `@`."""
    found = []
    for match in _MENTION.finditer(text):
        name = match[1] or match[2]
        if name.lower().endswith(IMAGE_SUFFIXES):
            path = directory / Path(name).expanduser()
            if path.is_file() and path not in found:
                found.append(path)
    return found[:MAX_IMAGES]


def session_notes(text: str, known: Collection[str]) -> list[str]:
    """Return a sentence for the model about each known session that a message names with `@session:`."""
    found = [f"[@session:{name} is an earlier session; session_search with session_id={name!r} reads it.]"
             for name in dict.fromkeys(_SESSION.findall(text)) if name in known]  # fmt: skip
    return [note for note in found if note not in text]


def content_with_images(text: str, images: list[Path]) -> tuple[Content, list[str]]:
    """Return the content of a user message, and a warning for each image that is left out. Reads files."""
    parts, warnings = [], []
    for path in images:
        kind = mimetypes.guess_type(path.name)[0] or "image/png"
        try:
            size = path.stat().st_size
            data = path.read_bytes() if size <= MAX_IMAGE_BYTES else b""
        except OSError as exc:
            warnings.append(f"{path}: {exc.strerror or exc}; the image is not sent")
            continue
        if not data:
            warnings.append(f"{path} has {size:,} bytes; an image of at most {MAX_IMAGE_BYTES:,} is sent")
            continue
        url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        parts.append({"type": "image_url", "image_url": {"url": url}})
    return ([{"type": "text", "text": text}, *parts] if parts else text), warnings


MAX_OUTPUT_CHARS = 20_000
"""The end of the output that the model is offered."""
LINE_BYTES = 1 << 20


class UserCommand:
    """One run of a command, in a process group of its own.

    The environment has none of the agent's credentials. The command has no input, since the chat has the terminal.
    """

    def __init__(self, command: str, directory: Path) -> None:
        self._command = command
        self._directory = directory
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, show: Callable[[str], None]) -> str:
        """Run it and return the text for the model; `show` gets the output as it comes."""
        self._process = process = await asyncio.create_subprocess_shell(
            self._command,
            cwd=self._directory,
            env=tool_environment(os.environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            limit=LINE_BYTES,
        )
        assert process.stdout is not None
        output = ""
        while data := await process.stdout.read(LINE_BYTES):
            text = data.decode("utf-8", "replace")
            output = (output + text)[-MAX_OUTPUT_CHARS:]
            show(text.rstrip("\n"))
        status = await process.wait()
        if status:
            show(f"(exit status {status})")
        output_text = mark_untrusted(redactor(output.strip()), "a command of the user")
        return f"[The user ran this command (exit status {status}): {redactor(self._command)}]\n{output_text}"

    def stop(self) -> None:
        """Terminate it."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
