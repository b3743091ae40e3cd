"""Which start of the machine this is."""

from __future__ import annotations

from pathlib import Path

__all__ = ["boot_id"]


def boot_id() -> str:
    """Return the kernel's id of this start of the machine; empty where it gives none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
