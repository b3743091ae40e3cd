"""How many commands one caller of the exec socket may run at once, and the places that are left for root.

systemd 256 counts the connections of a user by itself (`MaxConnectionsPerSource=`), earlier ones do not. Each unit
therefore looks at the control groups of the others: systemd calls them `NAME@NUMBER-PID-UID.service` by the
connection, and a command can change neither the groups nor their names. Imports little.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

__all__ = ["find_refusal"]

CALLER_LIMIT, TOTAL_LIMIT = "HERMES_EXEC_PER_CALLER", "HERMES_EXEC_MOST"
"""Variables of the unit: most commands of one user, and of all users but root together."""
DEFAULTS = {CALLER_LIMIT: 48, TOTAL_LIMIT: 60}
_ROOTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup/systemd"))


class _Instance(NamedTuple):
    number: int
    """Of the connection, in the order in which they came."""
    uid: int


def find_refusal() -> str:
    """Return why the caller of this unit may run no further command now; empty when it may."""
    most = {name: int(os.environ.pop(name, "") or value) for name, value in DEFAULTS.items()}
    own, others = _find_instances()
    if own is None or own.uid == 0:
        return ""
    before = [other for other in others if other.number < own.number and other.uid != 0]
    mine = sum(other.uid == own.uid for other in before)
    if mine >= most[CALLER_LIMIT]:
        return (
            f"user {own.uid} runs {mine} commands at once already ({CALLER_LIMIT}={most[CALLER_LIMIT]}); wait for one"
        )
    if len(before) >= most[TOTAL_LIMIT]:
        return f"{len(before)} commands run at once already ({TOTAL_LIMIT}={most[TOTAL_LIMIT]}); wait for one"
    return ""


def _find_instances() -> tuple[_Instance | None, list[_Instance]]:
    """Return the instance that this process is in, None where it is in none, and those that are there with it."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kind, path = line.split(":", 2)
        group = Path(path)
        own = _instance(group.name)
        if own is None or kind not in ("", "name=systemd"):
            continue
        prefix = group.name.partition("@")[0]
        for root in _ROOTS:
            directory = root / group.parent.relative_to("/")
            if (directory / group.name).is_dir():
                return own, list(_read(prefix, (path.name for path in directory.iterdir())))
    return None, []


def _read(prefix: str, names: Iterable[str]) -> Iterable[_Instance]:
    for name in names:
        instance = _instance(name)
        if instance is not None and name.startswith(f"{prefix}@"):
            yield instance


def _instance(unit: str) -> _Instance | None:
    """Read `NAME@NUMBER-PID-UID.service`; None for anything else."""
    words = unit.partition("@")[2].removesuffix(".service").split("-")
    if not unit.endswith(".service") or len(words) != 3 or not all(word.isdigit() for word in words):
        return None
    return _Instance(int(words[0]), int(words[2]))
