"""The Python of the tests, as units in the container can use it.

A unit with ProtectHome= or DynamicUser= does not reach a virtual environment, a source tree or an interpreter below a
home directory, so all of them are shown under /opt.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Interpreter"]

VENV, BASE, SOURCES = "/opt/venv", "/opt/python", "/opt/sources"
SYSTEM = ("/usr", "/nix/store")


@dataclass(frozen=True)
class Interpreter:
    """What to bind, what to start, with which environment."""

    binds: dict[str, str]
    executable: str
    environment: dict[str, str]

    @classmethod
    def of_this_process(cls, *sources: Path, venv: Path | None = None) -> Interpreter:
        """Return the interpreter that runs the tests, with its installed packages.

        Args:
            sources: directories to import from besides.
            venv: another virtual environment of the same interpreter; None means this process's own.
        """
        prefix = str(venv or sys.prefix)
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        binds = {str(source): f"{SOURCES}/{number}" for number, source in enumerate(sources)}
        path = list(binds.values())
        environment = {"PYTHONDONTWRITEBYTECODE": "1"}
        executable = sys.executable
        if prefix != sys.base_prefix:
            binds[prefix] = VENV
            executable = f"{VENV}/bin/python3"
        if not sys.base_prefix.startswith(SYSTEM):
            binds[sys.base_prefix] = BASE
            executable = f"{BASE}/bin/{version}"
            environment["LD_LIBRARY_PATH"] = f"{BASE}/lib"
            path.append(f"{VENV}/lib/{version}/site-packages")
        if path:
            environment["PYTHONPATH"] = ":".join(path)
        return cls(binds, executable, environment)

    def unit_environment(self) -> str:
        """Return the lines `Environment=…` for a unit file."""
        return "\n".join(f'Environment="{name}={value}"' for name, value in self.environment.items())
