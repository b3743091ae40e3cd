"""What the tests under a real systemd share: the harness, the tests' own daemon, and the packaged unit."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hermes_agent
from run_in_systemd import Container, Interpreter, unavailable

HERE = Path(__file__).resolve().parent
PACKAGING = HERE.parent.parent / "packaging" / "systemd"
UNIT = "hermes-agent.service"
QUICK = """[Service]
WatchdogSec=2
RestartSec=200ms
TimeoutStopSec=10
"""
"""Shorter limits, and nothing else, so that the packaged unit is what is tested."""
HIDDEN = "/opt/hidden"
HERMES = """#!/bin/sh
if [ "$1" = logs ]; then shift; exec {python} -m stand_in_logs "$@"; fi
exec {python} -m stand_in "$@"
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if item.path.is_relative_to(HERE)]
    why = unavailable() if mine else None
    for item in mine:
        item.add_marker("service")
        if why is not None:
            item.add_marker(pytest.mark.skip(reason=f"no systemd can be booted here: {why}"))


@pytest.fixture
def daemon() -> Callable[..., Container]:
    """Make a container with the packaged unit, whose `hermes` is the tests' own daemon.

    Args: `site` is a directory of installed packages more; `without_extra` hides systemd-python; the rest goes to
    the unit's environment.
    """

    def make(*, site: Path | None = None, without_extra: bool = False, **environment: str) -> Container:
        sources = [Path(hermes_agent.__file__).parent.parent, HERE / "daemon", *([site] if site else [])]
        python = Interpreter.of_this_process(*sources)
        if without_extra:
            python.environment["PYTHONPATH"] = f"{HIDDEN}:{python.environment['PYTHONPATH']}"
        variables = "".join(f'Environment="{name}={value}"\n' for name, value in environment.items())
        return Container(
            units={UNIT: PACKAGING / UNIT},
            files={
                "/opt/hermes-agent/bin/hermes": HERMES.format(python=python.executable),
                f"/etc/systemd/system/{UNIT}.d/test.conf": f"{QUICK}{python.unit_environment()}\n{variables}",
                f"{HIDDEN}/systemd.py": "raise ImportError('hidden by the test')\n",
                "/etc/sysusers.d/hermes-agent.conf": (PACKAGING / "hermes-agent.sysusers.conf").read_text(),
                "/etc/tmpfiles.d/hermes-agent.conf": (PACKAGING / "hermes-agent.tmpfiles.conf").read_text(),
            },
            binds=dict(python.binds),
            environment={
                "HERMES_HOME": "/var/lib/hermes/.hermes",
                "PATH": "/opt/hermes-agent/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                **python.environment,
            },
        )

    return make


@pytest.fixture(scope="session")
def systemd_python(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """A directory with systemd-python, None when the tests' interpreter has it; skips where it cannot be built."""
    if importlib.util.find_spec("systemd") is not None:
        return None
    site = tmp_path_factory.mktemp("systemd-python")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), "systemd-python"]
    try:
        made = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("systemd-python could not be installed within 90 s")
    if made.returncode:
        pytest.skip(f"systemd-python cannot be installed here: {made.stderr.strip()[-300:]}")
    site.chmod(0o755)  # the unit's user reads it too
    return site
