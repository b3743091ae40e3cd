"""The first tasks of a new user, done by `tasks/*.sh` with README and `--help` alone, in a container.

The container has what README's section Install names, and this section was executed in it once. Each task begins in an
empty home. `make test-readme` runs them, and `make test-light` those that need no answer of the embedded model.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from install_lines import install_block
from readme.container import FOR_INSTALL, LIGHT, ROOT, debian, run
from run_in_systemd import Container, unavailable

pytestmark = pytest.mark.readme

TASKS = {path.stem: path for path in sorted((ROOT / "tests" / "readme" / "tasks").glob("*.sh")) if path.stem != "lib"}
ASKS_THE_EMBEDDED_MODEL = "1-first-answer"
BOOTS = "6-at-boot"
LEFT = {BOOTS, ASKS_THE_EMBEDDED_MODEL} if LIGHT else {BOOTS}
CLEARED = "cd; find . -mindepth 1 -maxdepth 1 ! -name .local ! -name .cache -exec rm -rf {} +"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = debian(tmp_path_factory.mktemp("debian") / "root", FOR_INSTALL)
    done = run(root, f"cd\n{install_block().replace(str(ROOT), '/checkout')}", 1800)
    assert done.returncode == 0, done.stdout[-8000:]
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.mark.parametrize("task", [name for name in TASKS if name not in LEFT])
def test_a_new_user_does_it_without_a_stumble(installed: Path, task: str) -> None:
    script = f"{CLEARED}\nexec sh /checkout/tests/readme/tasks/{task}.sh"
    done = run(installed, script, 900, own_network=task != ASKS_THE_EMBEDDED_MODEL)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-8000:]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
    """A disk for what a container writes, in memory."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_new_user_has_a_daemon_that_starts_at_boot(installed: Path, kept: Path) -> None:
    """The container is booted with a systemd of its own, shut down, and booted again."""
    if why := unavailable(str(installed)):
        pytest.skip(f"no systemd can be booted here: {why}")
    machine = Container(root=str(installed), kept=kept, logins=True, environment={"HOME": "/root"})
    for phase in ("installed", "booted-again"):
        script = f"cd /root; exec sh /checkout/tests/readme/tasks/{BOOTS}.sh {phase}"
        done = machine.run(script if phase != "installed" else f"{CLEARED}\n{script}", timeout_s=300).succeeded()
        print(done.stdout)
