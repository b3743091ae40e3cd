"""The clipboard of the desktop: images, or text where it has none."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from hermes_agent.core.errors import UserError
from hermes_agent.system.files import write_atomic
from hermes_agent.system.processes import tool_environment

TIMEOUT_S = 5
KEPT_IMAGES = 50
"""Images that are kept in the home; older ones are deleted."""
_TYPES = {"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp", "image/gif": ".gif"}


class _Program(NamedTuple):
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


def paste_from_clipboard(folder: Path, environ: Mapping[str, str] = os.environ) -> Path | str:
    """Return a file with the image of the clipboard, or its text; in a worker.

    Args:
        folder: where the image is written, for this user alone.

    Raises:
        UserError: no program can read the clipboard, or it is empty.
    """
    programs = [(each, path) for each in _PROGRAMS if (path := _find(each, environ))]
    if not programs:
        raise UserError("the clipboard cannot be read", hint=_remedy(environ))
    for program, path in programs:
        for kind in _image_types(program, path, environ):
            if data := _output([path, *(word.format(kind) for word in program.image)], environ):
                return _write_image(folder, data, _TYPES[kind])
        if program.text and (data := _output([path, *program.text], environ)):
            return data.decode("utf-8", "replace")
    raise UserError("the clipboard has neither an image nor text", hint="Copy an image first, or name a file with @.")


def _find(program: _Program, environ: Mapping[str, str]) -> str:
    """Return the path of a program that can be used here, or ""."""
    if program.needs and not environ.get(program.needs):
        return ""
    return shutil.which(program.name, path=environ.get("PATH")) or ""


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
    offered = _output([path, *program.types], environ).decode("utf-8", "replace").split()
    yield from (kind for kind in _TYPES if kind in offered)


def _output(command: list[str], environ: Mapping[str, str]) -> bytes:
    """Return what a program writes; b"" if it fails."""
    names = ("WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "DISPLAY", "XAUTHORITY")
    env = tool_environment(environ) | {name: environ[name] for name in names if name in environ}
    try:
        done = subprocess.run(command, env=env, capture_output=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return b"" if done.returncode else done.stdout


def _write_image(folder: Path, data: bytes, suffix: str) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"clip_{time.strftime('%Y%m%d_%H%M%S')}_{secrets.token_hex(2)}{suffix}"
    write_atomic(path, data, mode=0o600)
    for old in sorted(folder.glob("clip_*"))[:-KEPT_IMAGES]:
        old.unlink(missing_ok=True)
    return path
