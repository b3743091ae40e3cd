"""Places where commands run, for the suites over them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.config.schema import default, lookup
from hermes_agent.contracts.kind import SelectedProvider
from hermes_agent.contracts.terminal_env import BackendCommand, TerminalBackend
from hermes_agent.system.processes import CommandResult
from hermes_agent.workspace.backend import ShellState, run_command
from hermes_agent.workspace.backend_selection import LocalBackend, choose_backend
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox
from hermes_agent.workspace.sandbox.sandbox import SandboxSelector, SystemdSandbox
from peers.sshd import SshServer

ENVIRON = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent", "OPENAI_API_KEY": "sk-0123456789abcdef"}


class Place:
    """A backend, and one task in it."""

    def __init__(self, backend: TerminalBackend, cwd: str) -> None:
        self.backend, self.cwd, self.state = backend, cwd, ShellState()
        self.finish: Callable[[], object] = lambda: None

    def close(self) -> None:
        """Give everything back."""
        self.backend.close("task")
        self.backend.close_all()
        self.finish()

    def __call__(self, command: str, *, cwd: str | None = None, **more: Any) -> CommandResult:
        """Run a command where the last one ended."""
        where = (self.state.cwd or self.cwd) if cwd is None else cwd
        call = BackendCommand(command, where, more.pop("timeout_s", 30), "task", root=self.cwd, **more)
        return run_command(self.backend, call, self.state)

    def say(self, command: str, **more: Any) -> str:
        """Run a command and return its output."""
        return self(command, **more).output.decode()


def local(tmp_path: Path) -> Place:
    return Place(LocalBackend(ENVIRON), str(tmp_path))


def bwrap(tmp_path: Path) -> Place:
    sandbox = SandboxSelector(
        [BubblewrapSandbox(PathRules(str(tmp_path / "home"), str(tmp_path)), path=ENVIRON["PATH"])]
    )
    if not sandbox.works:
        pytest.skip(f"no sandbox can be made here: {sandbox.problem}")
    work = tmp_path / "work"
    work.mkdir()
    return Place(LocalBackend(ENVIRON, sandbox=sandbox), str(work))


def systemd(tmp_path: Path) -> Place:
    """Inside the container of tests/service alone, which names the socket."""
    socket = os.environ.get("HERMES_TEST_EXEC_SOCKET")
    if not socket:
        pytest.skip("no hermes-exec.socket: tests/service/test_exec_unit.py runs this under a real systemd")
    work = os.environ["HERMES_TEST_EXEC_WORK"]
    sandbox = SandboxSelector([SystemdSandbox(socket, work)], mode="systemd")
    assert not sandbox.refusal, sandbox.refusal
    return Place(LocalBackend(ENVIRON, sandbox=sandbox), work)


def settings(**more: Any) -> dict[str, Any]:
    """Return the block `terminal` of an empty config, and what is different."""
    node = lookup(("terminal",))
    assert node is not None
    return {**default(node), **more}


def bundled(name: str, home: Path, environ: Mapping[str, str] = ENVIRON, **more: Any) -> TerminalBackend:
    """Return a bundled backend; `more` differs from the default settings."""
    block, none = settings(backend=name, **more), SelectedProvider[Any](None, "")
    return choose_backend(block, environ, SandboxSelector([]), lambda values: none, home=str(home))


def program(tmp_path: Path, name: str) -> dict[str, str]:
    """Put a stand-in for docker or apptainer on a PATH of its own; return the environment."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "state").mkdir()
    script = tmp_path / "bin" / name
    fake = Path(__file__).with_name("fake_containers.py")
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -S {fake} {tmp_path}/state {name} "$@"\n')
    script.chmod(0o755)
    return {**ENVIRON, "PATH": f"{tmp_path}/bin:{ENVIRON['PATH']}"}


def docker(tmp_path: Path) -> Place:
    return Place(bundled("docker", tmp_path, program(tmp_path, "docker"), docker_env={"GIVEN": "yes"}), "")


PODMAN = """#!/bin/sh
export CONTAINERS_CONF={here}/containers.conf CONTAINERS_STORAGE_CONF={here}/storage.conf
exec unshare --mount --propagation private sh -c '
    umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup
    exec {podman} "$@"' podman "$@"
"""
"""crun runs nothing where cgroups are of both kinds: it is shown those of the second one alone."""
PODMAN_CONF = """[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "crun"
"""


def podman(tmp_path: Path, *, wanted: bool = bool(os.environ.get("HERMES_PODMAN"))) -> Place:
    """A real one, as root, with an image of busybox and bash; a directory of the machine is in the container."""
    if not wanted:
        pytest.skip("`make test-podman` runs the suite over a real podman")
    needed = ("podman", "crun", "unshare", "busybox")
    if os.getuid() != 0 or not all(shutil.which(name, path=ENVIRON["PATH"]) for name in needed):
        pytest.skip("podman with crun and busybox-static is not there, or not for root (`make test-podman`)")
    here = tmp_path / "podman"
    root, work, script = here / "root", tmp_path / "work", here / "podman"
    for folder in (work, *(root / name for name in ("bin", "proc", "dev", "sys", "tmp", "etc", "run"))):
        folder.mkdir(parents=True)
    busybox = str(shutil.which("busybox", path=ENVIRON["PATH"]))
    shutil.copy(busybox, root / "bin/busybox")
    for name in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if name != "busybox":
            (root / "bin" / name).symlink_to("busybox")
    libraries = subprocess.run(["ldd", "/bin/bash"], capture_output=True, text=True, check=True).stdout.split()
    for file in ("/bin/bash", *(word for word in libraries if word.startswith("/"))):
        (root / file[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, root / file[1:])
    (here / "containers.conf").write_text(PODMAN_CONF)
    (here / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{here}/store"\nrunroot = "{here}/run"\n'
    )
    script.write_text(PODMAN.format(here=here, podman=shutil.which("podman", path=ENVIRON["PATH"])))
    script.chmod(0o755)
    subprocess.run(["tar", "-C", str(root), "-cf", str(here / "image.tar"), "."], check=True)
    subprocess.run([str(script), "import", str(here / "image.tar"), "small"], check=True, capture_output=True)
    made = bundled(
        "docker", tmp_path, {**ENVIRON, "HERMES_DOCKER_BINARY": str(script)}, docker_env={"GIVEN": "yes"},
        docker_image="localhost/small", docker_volumes=[f"{work}:{work}"], container_persistent=False,
        container_memory=0, container_cpu=0,
    )  # fmt: skip
    place = Place(made, str(work))
    place.finish = lambda: subprocess.run([str(script), "rm", "--all", "--force", "--time", "0"], capture_output=True)
    return place


def singularity(tmp_path: Path) -> Place:
    return Place(bundled("singularity", tmp_path, program(tmp_path, "apptainer")), "")


def ssh(tmp_path: Path) -> Place:
    """A real sshd on loopback."""
    if not SshServer.is_there():
        pytest.skip("sshd (package openssh-server) is not there")
    server = SshServer(tmp_path / "ssh", ENVIRON["PATH"]).__enter__()
    made = bundled("ssh", tmp_path, ssh_host="127.0.0.1", ssh_port=server.port, ssh_key=str(server.key))
    place = Place(made, str(tmp_path))
    place.finish = server.__exit__
    return place


OWN = {
    "local": local,
    "bwrap": bwrap,
    "systemd": systemd,
    "docker": docker,
    "podman": podman,
    "singularity": singularity,
    "ssh": ssh,
}
"""The agent's own backends."""
