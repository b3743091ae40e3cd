"""A Debian that has what the bundled skills are about, made once into `.cache/skills` and booted copy-on-write."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["image"]

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = CHECKOUT / ".cache" / "skills"
SUITE = "bookworm"
PACKAGES = (
    *("systemd", "systemd-sysv", "systemd-resolved", "systemd-journal-remote", "dbus", "libnss-systemd"),
    *("procps", "iproute2", "python3", "git", "openssh-server", "openssh-client", "openssl", "ca-certificates"),
    *("nginx-light", "postgresql", "restic", "sudo", "acl", "bind9", "bind9-dnsutils", "cron", "lsof", "nix-bin"),
    *("podman", "crun", "catatonit", "docker.io", "busybox-static"),
    *("smartmontools", "lm-sensors", "needrestart", "dnf", "rpm", "createrepo-c", "pacman-package-manager"),
)


def image() -> Path:
    """Return the root file system; skip the test where none can be made."""
    digest = hashlib.sha256(repr((SUITE, sorted(PACKAGES))).encode()).hexdigest()[:12]
    kept = CACHE / f"{SUITE}-{digest}"
    if not kept.exists():
        if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
            pytest.skip("making a Debian needs root and mmdebstrap (`packaging/debian-packages skills`)")
        CACHE.mkdir(parents=True, exist_ok=True)
        unfinished = CACHE / f"unfinished-{os.getpid()}"
        line = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(unfinished)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=2400, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        unfinished.rename(kept)
    return kept
