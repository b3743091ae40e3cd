"""Files where the commands run, when that is not this machine: read, written and searched by a shell over there."""

from __future__ import annotations

import base64
import binascii
import posixpath
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_agent.core.errors import ToolFailed
from hermes_agent.io.processes import CommandResult
from hermes_agent.workspace.backends.backend import Backend, BackendCommand
from hermes_agent.workspace.regular import IsDirectory
from hermes_agent.workspace.shell_state import ShellState

if TYPE_CHECKING:
    from hermes_agent.workspace.listing import Listing

__all__ = ["RemoteFiles"]

MOST_BYTES = 20_000_000
"""A longer file is read up to here."""
LIMIT_S = 60.0
MISSING, DIRECTORY, SPECIAL = 44, 45, 46


@dataclass(frozen=True, slots=True)
class RemoteFiles:
    """The files of one call's backend.

    Attributes:
        cwd: where relative paths count from; empty is the backend's own choice.
    """

    backend: Backend
    task_id: str
    cwd: str

    def resolve(self, path: str) -> str:
        """Return the path as it is meant there; links are followed there alone."""
        if path == "~" or path.startswith("~/"):
            return path
        return posixpath.normpath(posixpath.join(self.cwd, path))

    def read(self, path: str) -> tuple[bytes, int]:
        """Return the content, up to `MOST_BYTES`, and the file's size.

        Raises:
            ToolFailed: there is no such file, or it cannot be read.
        """
        p = _word(path)
        done = self._sh(
            f"[ -e {p} ] || exit {MISSING}; [ -d {p} ] && exit {DIRECTORY}; [ -f {p} ] || exit {SPECIAL};"
            f" wc -c < {p} && head -c {MOST_BYTES} < {p} | base64",
            limit=MOST_BYTES * 2,
        )
        if done.exit_code == MISSING:
            raise ToolFailed(f"{path} does not exist ({self.backend.name})")
        if done.exit_code == DIRECTORY:
            raise IsDirectory(f"{path} is a directory")
        if done.exit_code == SPECIAL:
            raise ToolFailed(f"{path} is no regular file")
        size, _, text = done.output.partition(b"\n")
        try:
            if done.exit_code or done.truncated:
                raise ValueError
            return base64.b64decode(text), int(size)
        except (ValueError, binascii.Error):
            said = done.output[:500].decode("utf-8", "replace").strip()
            raise ToolFailed(f"{path} cannot be read ({self.backend.name}): {said}") from None

    def list_directory(self, path: str, offset: int, limit: int) -> Listing:
        """Return entries of a directory, from number `offset` on.

        Raises:
            ToolFailed: it cannot be read.
        """
        from hermes_agent.workspace.listing import MOST_ENTRIES, read_ls  # few calls list a directory

        p = _word(path)
        done = self._sh(
            f"cd {p}/ && {{ [ -r . ] || {{ echo 'Permission denied'; exit 1; }}; }}"
            f" && LC_ALL=C ls -lAn | head -n {MOST_ENTRIES + 2}",
            limit=MOST_BYTES,
        )
        if done.exit_code:
            said = done.output[:500].decode("utf-8", "replace").strip()
            raise ToolFailed(f"{path} cannot be read ({self.backend.name}): {said}")
        found = read_ls(done.output.decode("utf-8", "surrogateescape"), offset, limit)
        return found._replace(is_complete=found.is_complete and not done.truncated)

    def write(self, path: str, data: bytes) -> None:
        """Replace a file, whole or not at all; missing directories are made.

        Raises:
            ToolFailed: it cannot be written.
        """
        p, d = _word(path), _word(posixpath.dirname(path) or ".")
        done = self._sh(
            f'mkdir -p {d} && t=$(mktemp {d}/.hermes.XXXXXX) && {{ cp -p {p} "$t" 2>/dev/null || chmod 644 "$t"; }};'
            f' base64 -d > "$t" && mv -f "$t" {p} || {{ rm -f "$t"; exit 1; }}',
            stdin=base64.encodebytes(data),
        )
        if done.exit_code:
            said = done.output[:500].decode("utf-8", "replace").strip()
            raise ToolFailed(f"{path} cannot be written ({self.backend.name}): {said}")

    def remove(self, path: str) -> None:
        """Delete a file.

        Raises:
            ToolFailed: it cannot be.
        """
        done = self._sh(f"rm -- {_word(path)}")
        if done.exit_code:
            raise ToolFailed(f"{path} cannot be deleted: {done.output[:500].decode('utf-8', 'replace').strip()}")

    def search(self, pattern: str, path: str, glob: str, *, names: bool, limit: int) -> list[str]:
        """Return lines `PATH:NUMBER:TEXT` that hold an extended regular expression, or paths by a glob.

        Raises:
            ToolFailed: the pattern means nothing to `grep`.
        """
        p, only = _word(path), f"--include={shlex.quote(glob)} " if glob else ""
        if names:
            name = pattern if any(c in pattern for c in "*?[") else f"*{pattern}*"
            words = f"find {p} -type f -name {shlex.quote(name)} -print 2>/dev/null"
        else:
            words = f"grep -rnIE {only}-e {shlex.quote(pattern)} -- {p} 2>&1"
        done = self._sh(f"{words} | head -n {limit}", limit=2_000_000)
        lines = done.output.decode("utf-8", "replace").splitlines()
        if lines and lines[0].startswith("grep: ") and ": No such file" not in lines[0]:
            raise ToolFailed(lines[0])
        return lines

    def _sh(self, script: str, *, stdin: bytes = b"", limit: int = 100_000) -> CommandResult:
        call = BackendCommand(script, self.cwd, LIMIT_S, self.task_id, output_bytes=limit, stdin=stdin)
        done = self.backend.execute(call, ShellState())
        if done.timed_out:
            raise ToolFailed(f"{self.backend.name} did not answer within {LIMIT_S:g} s")
        return done


def _word(path: str) -> str:
    """Return a path as a word of a shell; `~` stays what it is."""
    if path == "~" or path.startswith("~/"):
        return f'"$HOME"{shlex.quote(path[1:])}' if path[1:] else '"$HOME"'
    return shlex.quote(f"./{path}" if path.startswith("-") else path)
