"""Whether this machine can boot a systemd, and if not, why."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from run_in_systemd.cgroups import own_cgroup
from run_in_systemd.plan import PATH, HarnessError

__all__ = ["PACKAGES", "systemd_version", "unavailable"]

PACKAGES = {
    "systemd": "PID 1, systemctl, journald, journalctl, systemd-analyze",
    "dbus": "system bus inside: systemd-run --wait, busctl, is-system-running --wait",
    "libnss-systemd": "names of DynamicUser= resolve",
    "util-linux": "unshare, mount, pivot_root",
}
"""Debian packages and what they are for."""

_PROGRAMS = {
    "unshare": "util-linux",
    "mount": "util-linux",
    "pivot_root": "util-linux",
    "systemctl": "systemd",
    "journalctl": "systemd",
}
_BUSES = ("usr/bin/dbus-daemon", "usr/bin/dbus-broker-launch")


def unavailable(root: str = "/") -> str | None:
    """Return why no container can be booted here; None when one can."""
    if os.geteuid() != 0:
        return "needs root"
    if not _has_overlayfs():
        return "the kernel has no overlayfs"
    if missing := _missing(Path(root)):
        return f"needs the Debian packages {' '.join(missing)}"
    try:
        probe = Path(own_cgroup()) / f"run-in-systemd-probe-{os.getpid()}"
        probe.mkdir()
        probe.rmdir()
    except (HarnessError, OSError) as exc:
        return f"cannot make a cgroup: {exc}"
    made = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--cgroup", "--uts", "--ipc", "--net", "true"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return f"cannot make namespaces: {made.stderr.strip()}" if made.returncode else None


def systemd_version(root: str = "/") -> int:
    """Return the version of the systemd that is booted, 0 when it does not say."""
    command = ["systemctl", "--version"] if root == "/" else ["chroot", root, "systemctl", "--version"]
    told = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)
    match = re.match(r"systemd (\d+)", told.stdout)
    return int(match[1]) if match else 0


def _has_overlayfs() -> bool:
    known = Path("/proc/filesystems")
    if "\toverlay\n" not in known.read_text() and shutil.which("modprobe"):
        subprocess.run(["modprobe", "overlay"], capture_output=True, timeout=30, check=False)
    return "\toverlay\n" in known.read_text()


def _missing(root: Path) -> list[str]:
    path = f"{os.environ.get('PATH', '')}:{PATH}"
    missing = {package for program, package in _PROGRAMS.items() if not shutil.which(program, path=path)}
    if not (root / "lib/systemd/systemd").exists():
        missing.add("systemd")
    if not any((root / bus).exists() for bus in _BUSES):
        missing.add("dbus")
    return sorted(missing)
