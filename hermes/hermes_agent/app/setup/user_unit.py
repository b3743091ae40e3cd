"""The daemon as a service of the systemd user manager: install, start and remove its unit."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path

from hermes_agent.core.errors import UserError
from hermes_agent.system.files import write_atomic
from hermes_agent.system.installation import stable_python

UNIT = "hermes-agent.service"
LINGERING = Path("/var/lib/systemd/linger")
"""Has a file for each user with a manager that runs without a login."""
LIMIT_S = 90.0
"""Time limit for `systemctl`, in seconds; a start waits until the daemon is ready."""

_TEXT = """\
# Written by `hermes setup`; `hermes setup --remove-service` removes it.
[Unit]
Description=hermes-agent
After=network-online.target

[Service]
Type=notify
NotifyAccess=main
FileDescriptorStoreMax=8
Environment=FDSTORE=8
Environment={home}
ExecStart={program} gateway run
ExecReload=kill -HUP $MAINPID
WatchdogSec=60
TimeoutStartSec=60
TimeoutStopSec=30
KillMode=mixed
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2 75 78
LimitNOFILE=1024:65536
UMask=0077

[Install]
WantedBy=default.target
"""


def unit_path() -> Path:
    """Return the path of the unit file for this user."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "systemd" / "user" / UNIT


def unit_text(home: Path) -> str:
    """Return the unit for the daemon of `home`.

    Raises:
        UserError: the program `hermes` is not found.
    """
    return _TEXT.format(home=_quote(f"HERMES_HOME={home}"), program=_quote(_program()))


def home_of_unit(text: str) -> Path:
    """Return the home that a unit of this program names."""
    found = re.search(r'^Environment="HERMES_HOME=(.*)"$', text, re.MULTILINE)
    quoted = found[1] if found is not None else str(Path.home() / ".hermes")
    return Path(quoted.replace("$$", "$").replace("%%", "%").replace('\\"', '"').replace("\\\\", "\\"))


def explain_no_manager() -> str:
    """Return why the systemd user manager cannot start a service, or "" if it can."""
    if shutil.which("systemctl") is None:
        return "systemd is not installed"
    if not os.environ.get("XDG_RUNTIME_DIR"):
        return "XDG_RUNTIME_DIR is not set: this is no login session"
    answers = _run("show-environment").returncode == 0
    return "" if answers else "the user manager of systemd does not answer"


def is_lingering() -> bool:
    """Return whether the user manager runs from boot on, without a login."""
    with contextlib.suppress(KeyError):  # a user without an entry has no manager
        return (LINGERING / pwd.getpwuid(os.getuid()).pw_name).exists()
    return False


def install_unit(home: Path) -> Path:
    """Write the unit for the daemon of `home`, start it, and return its path.

    Raises:
        UserError: there is no user manager, or the daemon does not start; the hint names its log.
    """
    if why := explain_no_manager():
        raise UserError(f"no user service can be started: {why}", hint="docs/operator/service.md has other ways.")
    path = unit_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, unit_text(home), mode=0o644)
    systemctl("daemon-reload")
    systemctl("enable", "--now", UNIT)
    return path


def remove_unit() -> Path | None:
    """Stop the service and remove its unit; return the path, or None if there was none."""
    path = unit_path()
    if not path.exists():
        return None
    if not explain_no_manager():
        systemctl("disable", "--now", UNIT)
    path.unlink()
    if not explain_no_manager():
        systemctl("daemon-reload")
    return path


def _program() -> str:
    """Return the path of the program `hermes` of this installation.

    Raises:
        UserError: it is not found.
    """
    sibling = stable_python().with_name("hermes")
    found = str(sibling) if sibling.exists() else shutil.which("hermes")
    if found is None:
        raise UserError("the program `hermes` is not on the PATH", hint="Install the agent (README.md, Install).")
    return found


def _quote(text: str) -> str:
    """Return a quoted word for a unit file, with `%` and `$` escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def systemctl(*arguments: str) -> None:
    """Run `systemctl --user`.

    Raises:
        UserError: it fails.
    """
    done = _run(*arguments)
    if done.returncode != 0:
        said = " ".join(done.stderr.split())
        raise UserError(
            f"`systemctl --user {' '.join(arguments)}` failed with status {done.returncode}: {said}",
            hint="`journalctl --user -u hermes-agent -n 20` says why.",
        )


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["systemctl", "--user", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"no answer within {LIMIT_S:g} seconds")
