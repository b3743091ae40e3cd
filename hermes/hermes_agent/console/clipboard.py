"""The clipboard of the desktop: images and text are read, and text is written."""

from __future__ import annotations

import base64
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.system.files import write_atomic
from hermes_agent.system.processes import tool_environment

TIMEOUT_S = 5
KEPT_IMAGES = 50
"""Images that are kept in the home; older ones are deleted."""
MAX_ESCAPE_CHARS = 74_994
"""Characters of base64 that terminals accept in an escape sequence."""
_TYPES = {"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp", "image/gif": ".gif"}


class _Program(LazyNamedTuple):
    """A program that reads the clipboard."""

    name: str
    needs: str
    """A variable without which it has no clipboard to read, or ""."""
    types: tuple[str, ...]
    """Arguments that list the types of the content; () means that it reads PNG only."""
    image: tuple[str, ...]
    """Arguments that write an image; `{}` is its type."""
    text: tuple[str, ...]
    """Arguments that write text, or ()."""


_PROGRAMS = (
    _Program("wl-paste", "WAYLAND_DISPLAY", ("--list-types",), ("--type", "{}"), ("--no-newline",)),
    _Program(
        "xclip", "DISPLAY", ("-selection", "clipboard", "-t", "TARGETS", "-o"),
        ("-selection", "clipboard", "-t", "{}", "-o"), ("-selection", "clipboard", "-o"),
    ),
    _Program("pngpaste", "", (), ("-",), ()),
)  # fmt: skip


_WRITERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("wl-copy", "WAYLAND_DISPLAY", ()),
    ("xclip", "DISPLAY", ("-selection", "clipboard")),
    ("xsel", "DISPLAY", ("--clipboard", "--input")),
    ("pbcopy", "", ()),
    ("clip.exe", "WSL_DISTRO_NAME", ()),
    ("tmux", "TMUX", ("load-buffer", "-w", "-")),
)
"""Programs that write the clipboard: name, the variable without which there is none, arguments."""


def copy_by_program(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Copy a text and return the name of the program that took it, or ""; in a worker."""
    for name, needs, arguments in _WRITERS:
        path = _find(name, needs, environ)
        if path and _output([path, *arguments], environ, text.encode("utf-8", "replace")) is not None:
            return name
    return ""


def copy_sequence(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the escape sequence by which the terminal copies a text; "" for a long text.

    The sequence is OSC 52, which also works over ssh. In tmux it is wrapped, so that it reaches the terminal outside
    where `allow-passthrough` is on.
    """
    data = base64.b64encode(text.encode("utf-8", "replace")).decode()
    if len(data) > MAX_ESCAPE_CHARS:
        return ""
    sequence = f"\x1b]52;c;{data}\x07"
    return f"\x1bPtmux;\x1b{sequence}\x1b\\" if environ.get("TMUX") else sequence


def paste_from_clipboard(folder: Path, environ: Mapping[str, str] = os.environ) -> Path | str:
    """Return a file with the image of the clipboard, or its text; in a worker.

    Args:
        folder: where the image is written, for this user alone.

    Raises:
        UserError: no program can read the clipboard, or it is empty.
    """
    programs = [(each, path) for each in _PROGRAMS if (path := _find(each.name, each.needs, environ))]
    if not programs:
        raise UserError("the clipboard cannot be read", hint=_remedy(environ))
    for program, path in programs:
        for kind in _image_types(program, path, environ):
            if data := _output([path, *(word.format(kind) for word in program.image)], environ):
                return _write_image(folder, data, _TYPES[kind])
        if program.text and (data := _output([path, *program.text], environ)):
            return data.decode("utf-8", "replace")
    raise UserError("the clipboard has neither an image nor text", hint="Copy an image first, or name a file with @.")


def _find(name: str, needs: str, environ: Mapping[str, str]) -> str:
    """Return the path of a program that can be used here, or ""."""
    if needs and not environ.get(needs):
        return ""
    return shutil.which(name, path=environ.get("PATH")) or ""


def _remedy(environ: Mapping[str, str]) -> str:
    if environ.get("SSH_CONNECTION"):
        return "Over ssh the clipboard stays on your machine: copy the image here, and name it with @."
    if environ.get("WAYLAND_DISPLAY"):
        return "Install wl-clipboard, or name the image with @."
    if environ.get("DISPLAY"):
        return "Install xclip, or name the image with @."
    return "Install pngpaste, or name the image with @." if sys.platform == "darwin" else "Name the image with @."


def _image_types(program: _Program, path: str, environ: Mapping[str, str]) -> Iterator[str]:
    if not program.types:
        yield "image/png"
        return
    offered = (_output([path, *program.types], environ) or b"").decode("utf-8", "replace").split()
    yield from (kind for kind in _TYPES if kind in offered)


def _output(command: list[str], environ: Mapping[str, str], given: bytes | None = None) -> bytes | None:
    """Return what a program writes; None if it fails.

    Args:
        given: its input. What it writes is ignored then: a program that holds the clipboard keeps its output open.
    """
    names = ("WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "DISPLAY", "XAUTHORITY", "TMUX")
    env = tool_environment(environ) | {name: environ[name] for name in names if name in environ}
    stdout = subprocess.PIPE if given is None else subprocess.DEVNULL
    try:
        done = subprocess.run(
            command, env=env, input=given or b"", stdout=stdout, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S,
            check=False, start_new_session=True,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout or b""


def _write_image(folder: Path, data: bytes, suffix: str) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"clip_{time.strftime('%Y%m%d_%H%M%S')}_{secrets.token_hex(2)}{suffix}"
    write_atomic(path, data, mode=0o600)
    for old in sorted(folder.glob("clip_*"))[:-KEPT_IMAGES]:
        old.unlink(missing_ok=True)
    return path
