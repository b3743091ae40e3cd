"""A built system in a container with a real systemd: its units, its files, its users, its commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from run_in_systemd import Container, Interpreter, Process

__all__ = ["container"]

PATH = "/run/current-system/sw/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def container(
    nix: Any,
    host: str,
    *,
    enable: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    binds: Sequence[str | Path] = (),
    processes: Sequence[Process] = (),
    units: Mapping[str, str] | None = None,
) -> Container:
    """Return a container that boots `host`, an attribute of default.nix such as `systems.calculator`.

    Args:
        enable: units that start with it.
        files: more of them; those of the system come first.
        binds: paths of this machine, at the same place. The store is there.
        units: more of them, by name.
    """
    system, commands = nix.build(f"{host}.toplevel").path, nix.build(f"{host}.sw").path
    python = Interpreter.of_this_process()
    etc = {f"/{path.relative_to(system)}": path.read_text() for path in (system / "etc").rglob("*") if path.is_file()}
    return Container(
        units={path.name: path for path in system.iterdir() if path.suffix in (".service", ".socket")}
        | dict(units or {}),
        enable=enable,
        binds={path: str(path) for path in ("/nix/store", *binds)} | python.binds,
        files={
            **etc,
            "/etc/sysusers.d/system.conf": (system / "sysusers.conf").read_text(),
            "/etc/tmpfiles.d/system.conf": f"L /run/current-system/sw - - - - {commands}\n"
            + (system / "tmpfiles.conf").read_text(),
            **(files or {}),
        },
        processes=processes,
        environment={**python.environment, "PATH": PATH},
    )
