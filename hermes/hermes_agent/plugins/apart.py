"""`hermes plugins check` in the sandbox: a stranger's plugin is loaded where there are no keys, no home and no network.

The box is that of commands (`workspace.bwrap`), with an empty home and the limits of the sandbox. Of this machine it
has what programs need, the plugins, and the places that Python imports from.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import hermes_agent
from hermes_agent.core.errors import UserError
from hermes_agent.io.environment import tool_environment
from hermes_agent.io.processes import CommandResult, run

if TYPE_CHECKING:
    from hermes_agent.workspace.bounds import CommandLimits
    from hermes_agent.workspace.bwrap import BubblewrapSandbox

__all__ = ["SandboxedCheck", "check_in_sandbox"]

SANDBOX_LIMIT_S = 600.0
OUTPUT_BYTES = 1_000_000
REPORT_BYTES = 32_000_000
TMP_MB, MEMORY_MB, PROCESSES = 512, 2048, 256
HIDDEN = "hidden-from-plugins-check"
_KEPT_VARIABLES = ("HERMES_BUNDLED_PLUGINS",)
_REMOVED_VARIABLES = ("HOME", "TMPDIR", "TMP", "TEMP", "USER", "LOGNAME")
_LEAST_SECRET = 4
"""Letters of a value that is hidden: a shorter one is no secret, and occurs in other words."""


class SandboxedCheck(NamedTuple):
    """What came of loading plugins in the sandbox."""

    outcome: dict[str, Any] | None
    """What the check wrote down; None when it did not come to that."""
    output: str
    """What the check and the plugins printed."""
    how: str
    """How the check ended, where it wrote nothing."""


def check_in_sandbox(
    directories: Sequence[str], *, config: str = "", limit_s: float = SANDBOX_LIMIT_S
) -> SandboxedCheck:
    """Run `hermes plugins check` over these directories, in the sandbox.

    Args:
        config: a config file, of which the box has a copy without its secrets; empty for none.

    Raises:
        UserError: no sandbox can be made here, or the config cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="hermes-plugins-apart-", ignore_cleanup_errors=True) as name:
        place = Path(os.path.realpath(name))
        work, user = place / "work", place / "user"
        work.mkdir()
        user.mkdir()
        words = [
            sys.executable,
            "-m",
            "hermes_agent",
            "plugins",
            "check",
            "--no-sandbox",
            "--report",
            str(work / "out"),
        ]
        if config:
            (work / "config.yaml").write_bytes(_without_secrets(config))
            words += ["--config", str(work / "config.yaml")]
        box, bounds = _make_sandbox(place, directories)
        inside = bounds.inside([*words, *directories])
        bounded = bounds.wrap(*box.wrap(inside, str(work), _environment(work), root=str(work)))
        try:
            done = run(
                bounded.argv,
                cwd=Path("/"),
                env=bounded.env,
                timeout_s=limit_s,
                output_limit_bytes=OUTPUT_BYTES,
                cancelled=threading.Event(),
            )
        finally:
            bounded.finish()
        return _read_result(done, work / "out")


def _read_result(done: CommandResult, report: Path) -> SandboxedCheck:
    said = done.output.decode("utf-8", "replace")
    how = "it took too long" if done.timed_out else f"the check ended with status {done.exit_code}"
    try:
        outcome = json.loads(_read_regular(report))  # a plugin may have put anything in its place
    except (OSError, ValueError):
        outcome = None
    return SandboxedCheck(outcome if isinstance(outcome, dict) else None, said, how)


def _make_sandbox(place: Path, directories: Sequence[str]) -> tuple[BubblewrapSandbox, CommandLimits]:
    """Return a box that sees the plugins and nobody's home, and its limits.

    Raises:
        UserError: none can be made.
    """
    from hermes_agent.workspace.bounds import CommandLimits, ProcessLimits
    from hermes_agent.workspace.bwrap import BubblewrapSandbox
    from hermes_agent.workspace.places import PathRules

    shown = [*map(os.path.realpath, directories), *directories, *_import_roots()]
    places = PathRules(str(place / "agent"), str(place / "user"), added=shown)
    box = BubblewrapSandbox(places, path=os.environ.get("PATH"), tmp_mb=TMP_MB)
    if box.problem:
        raise UserError(
            f"plugins are not loaded, since no sandbox can be made: {box.problem}",
            hint="Install bubblewrap and allow user namespaces; `hermes plugins check --no-sandbox` loads them "
            "without one, where the machine is a sandbox itself (the builder of a container).",
        )
    return box, CommandLimits(os.environ, ProcessLimits(MEMORY_MB, PROCESSES))


def _import_roots() -> Iterator[str]:
    """Yield the directories that Python and the agent read, but for one that is a home or has one in it."""
    home, here = str(Path.home().resolve()), str(Path.cwd().resolve())
    own = Path(hermes_agent.__file__).resolve().parent
    yield from (str(own.parent), os.path.realpath(own / "_bundled"))
    declared = os.environ.get("HERMES_BUNDLED_PLUGINS", "").split(":")
    for path in (*declared, *sys.path):
        real = os.path.realpath(path)
        is_here = real == here and not any(Path(real).glob("*.dist-info"))
        if path and not is_here and real != "/" and not f"{home}/".startswith(f"{real}/"):
            yield from (path, real)


def _environment(work: Path) -> dict[str, str]:
    """Return what is listed of the surrounding environment: no key is in it, nor in `/proc/PID/environ`."""
    listed = tool_environment(os.environ).items()
    environ = {k: v for k, v in listed if not k.lower().endswith("_proxy") and k not in _REMOVED_VARIABLES}
    passed = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**environ, **passed, "HOME": str(work), "HERMES_HOME": str(work / "home"), "PYTHONPATH": paths}


def _without_secrets(config: str) -> bytes:
    """Return the text of a config file with its secrets exchanged; lines stay as they are.

    Raises:
        UserError: it cannot be read.
    """
    from hermes_agent.config.secrets import file_secrets
    from hermes_agent.config.yamlfile import read_file

    try:
        text = Path(config).read_text(encoding="utf-8", errors="replace")
    except OSError as exc:
        raise UserError(f"cannot read {config}: {exc.strerror}") from exc
    secrets = {value for value in file_secrets(read_file(Path(config)).value) if len(value) >= _LEAST_SECRET}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text.encode()


def _read_regular(path: Path) -> bytes:
    """Read a file that a plugin may have exchanged: no link, no pipe, and not more than a report is."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        return file.read(REPORT_BYTES)
