"""Who is at the other end of the control socket, as the kernel tells it.

In its unit the daemon may live among users of its own (`PrivateUsers=`) and see no process but its own
(`ProtectProc=`): then everybody but root and itself is the user 65534, a group that is not its own is 65534 too, and
`/proc/PID` of another is not there. What is asked here can be told all the same.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from pathlib import Path
from typing import Literal

from hermes_agent.service.state import own_unit, unit_of

__all__ = ["Role", "peer_role", "peer_user"]

Role = Literal["owner", "member", "stranger", "own process"]
"""`owner`: root, and the daemon's user; `member`: somebody else of its group; `own process`: what it started itself."""

SO_PEERGROUPS = 59
GROUPS_MAX = 256
"""What Python reads of a peer's groups; who is in more counts as in none."""


def peer_user(peer: socket.socket) -> int:
    """Return the uid of who connected."""
    uid: int = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[1]
    return uid


def peer_role(peer: socket.socket) -> Role:
    """Say who connected."""
    pid, uid, gid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if uid not in (os.geteuid(), 0):
        return "member" if os.getegid() in {gid, *_groups(peer)} else "stranger"
    return "own process" if _is_own_process(pid) else "owner"


def _groups(peer: socket.socket) -> tuple[int, ...]:
    try:
        found = peer.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, GROUPS_MAX * 4)
    except OSError:
        return ()
    return struct.unpack(f"{len(found) // 4}I", found)


def _is_own_process(pid: int) -> bool:
    """Say whether a process descends from this one, or is in its unit; one that cannot be told counts as such."""
    unit = own_unit()
    try:
        if unit is not None and unit_of(Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")) == unit:
            return True
        while pid > 1 and pid != os.getpid():
            pid = _parent(pid)
    except FileNotFoundError:
        return unit is None or not _lives_outside(pid)
    except (OSError, ValueError):
        return True
    return pid == os.getpid()


def _parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(stat.rpartition(")")[2].split()[1])


def _lives_outside(pid: int) -> bool:
    """Say whether a process that /proc does not show lives, and not in the control group of this one's unit."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        inside = _control_group()
        ended = select.poll()
        ended.register(process, select.POLLIN)
        # It lived when the list was read, so that it would stand there.
        return inside is not None and pid not in inside and not ended.poll(0)
    finally:
        os.close(process)


def _control_group() -> set[int] | None:
    """Return the processes in the control group of this one, and below; None where it cannot be read."""
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        number, controllers, path = line.split(":", 2)
        roots = ["", "unified"] if number == "0" else ["systemd"] if controllers == "name=systemd" else []
        for root in roots:
            place = Path("/sys/fs/cgroup", root, path.lstrip("/"))
            if path.strip("/") and (place / "cgroup.procs").exists():
                return {int(pid) for each in place.rglob("cgroup.procs") for pid in each.read_text().split()}
    return None
