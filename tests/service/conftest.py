"""What the tests under a real systemd share: a machine with the packaged unit and the real daemon."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import hermes_agent
from run_in_systemd import Container, Interpreter, unavailable

HERE = Path(__file__).resolve().parent
PACKAGING = HERE.parent.parent / "packaging" / "systemd"
UNIT = "hermes-agent.service"
HOME = "/var/lib/hermes/.hermes"
HIDDEN = "/opt/hidden"
"""Where the unit finds a `systemd` module that cannot be imported."""
HERMES = """#!/bin/sh
exec {python} -m hermes_agent "$@"
"""
MODEL = """#!/bin/sh
exec {python} /opt/peers/obedient.py "$1"
"""
MakeMachine = Callable[..., Container]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if str(item.path).startswith(f"{HERE}/")]
    why = unavailable() if mine else None
    for item in mine:
        item.add_marker("service")
        if why is not None:
            item.add_marker(pytest.mark.skip(reason=f"no systemd can be booted here: {why}"))


@pytest.fixture(scope="session")
def machine() -> MakeMachine:
    """Make a container with the packaged unit, whose program is this checkout's `hermes gateway run`.

    The script finds `hermes` and `model-server FILE`, which writes the base URL of `peers/obedient.py` into FILE, on
    its PATH, and the plugin `probe` in `/opt/machine/probe`.

    Args: `service` is text for the unit's section `[Service]`; `site` is a directory of installed packages more;
    `without_extra` hides systemd-python; `files` are further files.
    """

    def make(
        service: str = "",
        *,
        site: Path | None = None,
        without_extra: bool = False,
        files: Mapping[str, str] | None = None,
    ) -> Container:
        sources = Path(hermes_agent.__file__).resolve().parent.parent
        python = Interpreter.of_this_process(sources, *([site] if site else []))
        if without_extra:
            python.environment["PYTHONPATH"] = f"{HIDDEN}:{python.environment['PYTHONPATH']}"
        plugins = (sources / "hermes_agent" / "_bundled").resolve()
        return Container(
            units={UNIT: PACKAGING / UNIT},
            files={
                "/opt/hermes-agent/bin/hermes": HERMES.format(python=python.executable),
                "/opt/hermes-agent/bin/model-server": MODEL.format(python=python.executable),
                f"/etc/systemd/system/{UNIT}.d/test.conf": f"[Service]\n{service}\n{python.unit_environment()}\n",
                f"{HIDDEN}/systemd.py": "raise ImportError('hidden by the test')\n",
                "/etc/sysusers.d/hermes-agent.conf": (PACKAGING / "hermes-agent.sysusers.conf").read_text(),
                "/etc/tmpfiles.d/hermes-agent.conf": (PACKAGING / "hermes-agent.tmpfiles.conf").read_text(),
                **(files or {}),
            },
            binds={
                **python.binds,
                str(plugins): "/opt/sources/plugins",
                str(HERE / "machine"): "/opt/machine",
                str(HERE.parent / "peers"): "/opt/peers",
            },
            environment={
                "HERMES_HOME": HOME,
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
