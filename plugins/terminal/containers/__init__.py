"""Commands in containers, one for each task: docker, podman, singularity or apptainer."""

from __future__ import annotations

import abc
import hashlib
import logging
import os
import shutil
import subprocess
import threading

from hermes_agent.contracts.terminal_env import (
    BackendCommand,
    BackendServices,
    BackendStart,
    RemoteBackend,
    shell_words,
)
from hermes_agent.core.errors import ToolFailed

logger = logging.getLogger(__name__)

START_LIMIT_S = 600.0
"""An image may have to be fetched."""
STOP_LIMIT_S = 60.0
WORK = "/workspace"


class ContainerBackend(RemoteBackend):
    """A container for each task, made by the program of one kind."""

    programs: tuple[str, ...]
    """The first of them that is there is used."""

    def __init__(self, services: BackendServices) -> None:
        self._services = services
        self._settings, self._environ = services.settings, services.environ
        self._running: dict[str, str] = {}
        self._lock = threading.Lock()

    @property
    def throwaway(self) -> bool:  # type: ignore[override]
        """Whether nothing of this machine is in it."""
        return not (self._settings["docker_volumes"] or self._settings["docker_mount_cwd_to_workspace"])

    @property
    def description(self) -> str:
        return f"Commands and file tools work in a {self.name} container of this conversation, below {WORK}."

    @abc.abstractmethod
    def create(self, name: str, call: BackendCommand) -> None:
        """Start the container of that name."""

    @abc.abstractmethod
    def inside(self, name: str, call: BackendCommand) -> list[str]:
        """Return the words that run what follows them in the container."""

    def forwarded(self) -> dict[str, str]:
        """Return what of the agent's environment the container is given; its program has it in its own."""
        return {}

    @abc.abstractmethod
    def remove(self, name: str) -> None:
        """End the container."""

    def start(self, script: str, call: BackendCommand) -> BackendStart:
        with self._lock:
            if call.task_id not in self._running:
                digest = hashlib.sha256(f"{self._services.home}\0{call.task_id}".encode()).hexdigest()[:16]
                self.create(f"hermes-{digest}", call)
                self._running[call.task_id] = f"hermes-{digest}"
        words = [*self.inside(self._running[call.task_id], call), *shell_words(script)]
        before = None
        if self._settings["docker_mount_cwd_to_workspace"] and call.root:
            before = self._services.check_steering(call.root)
        return BackendStart([self.program(), *words], {**self._client_environment(), **self.forwarded()}, before=before)

    def close(self, task_id: str) -> None:
        with self._lock:
            name = self._running.pop(task_id, None)
        if name is not None:
            try:
                self.remove(name)
            except ToolFailed as exc:
                logger.warning("the container %s could not be ended: %s", name, exc)

    def program(self) -> str:
        """Return the program.

        Raises:
            ToolFailed: there is none.
        """
        for name in (self._environ.get(f"HERMES_{self.name.upper()}_BINARY"), *self.programs):
            if name and (found := shutil.which(name, path=self._environ.get("PATH"))):
                return found
        raise ToolFailed(f"terminal.backend is `{self.name}`, and neither {' nor '.join(self.programs)} is there")

    def call_program(self, *words: str, limit_s: float = STOP_LIMIT_S, may_fail: bool = False) -> str:
        """Run the program and return what it says.

        Raises:
            ToolFailed: it failed, with its own words.
        """
        argv = [self.program(), *words]
        try:
            done = subprocess.run(
                argv, capture_output=True, env=self._client_environment(), timeout=limit_s, stdin=subprocess.DEVNULL
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise ToolFailed(f"{argv[0]} {words[0]} failed: {exc}") from exc
        if done.returncode and not may_fail:
            said = done.stderr.decode("utf-8", "replace").strip() or f"exit status {done.returncode}"
            raise ToolFailed(f"{argv[0]} {words[0]} says: {said}")
        return done.stdout.decode("utf-8", "replace").strip()

    def _client_environment(self) -> dict[str, str]:
        """Return what the program itself needs: the listed part, and where its daemon is."""
        own = {k: v for k, v in self._environ.items() if k.startswith(("DOCKER_", "CONTAINER", "XDG_RUNTIME"))}
        return {**self._services.tool_environment(self._environ), **own}


class DockerBackend(ContainerBackend):
    """docker, or podman."""

    name = "docker"
    programs = ("docker", "podman")

    def create(self, name: str, call: BackendCommand) -> None:
        s = self._settings
        state = self.call_program("ps", "-a", "--filter", f"name=^/?{name}$", "--format", "{{.State}}")
        if state and s["container_persistent"]:
            if state != "running":
                self.call_program("start", name)
            return
        if state:
            self.remove(name)
        words = ["run", "-d", "--name", name, "--init"]
        words += ["--cap-drop", "ALL", "--cap-add", "DAC_OVERRIDE", "--cap-add", "CHOWN", "--cap-add", "FOWNER"]
        words += ["--security-opt", "no-new-privileges", "--pids-limit", str(s["max_processes"] or -1)]
        if s["container_memory"]:
            words += ["--memory", f"{s['container_memory']}m"]
        if s["container_cpu"]:
            words += ["--cpus", str(s["container_cpu"])]
        if s["network"] != "on":  # a container has all of it or nothing
            words += ["--network", "none"]
        for volume in s["docker_volumes"]:
            words += ["--volume", volume]
        if s["docker_mount_cwd_to_workspace"]:
            words += ["--volume", f"{call.root}:{WORK}"]
        self.call_program(*words, s["docker_image"], "sleep", "infinity", limit_s=START_LIMIT_S)
        # docker makes the directory of --workdir where an image has none, podman refuses to start
        self.call_program("exec", name, "mkdir", "-p", WORK)

    def inside(self, name: str, call: BackendCommand) -> list[str]:
        words = [w for name in self.forwarded() for w in ("--env", name)]  # arguments are there for everybody to see
        words += [w for n, v in self._settings["docker_env"].items() for w in ("--env", f"{n}={v}")]
        return ["exec", "-it" if call.tty else "-i", "--workdir", WORK, *words, name]

    def forwarded(self) -> dict[str, str]:
        return {n: self._environ[n] for n in self._settings["docker_forward_env"] if n in self._environ}

    def remove(self, name: str) -> None:
        if self._settings["container_persistent"]:
            self.call_program("stop", "--time", "2", name)
        else:
            self.call_program("rm", "--force", name)


class SingularityBackend(ContainerBackend):
    """apptainer, or singularity: an instance without anything of this machine but what is bound."""

    name = "singularity"
    programs = ("apptainer", "singularity")

    def create(self, name: str, call: BackendCommand) -> None:
        s = self._settings
        words = ["instance", "start", "--containall", "--no-home", "--writable-tmpfs"]
        if s["container_memory"] and os.getuid() == 0:  # with the others it needs a delegated cgroup
            words += ["--memory", f"{s['container_memory']}M"]
        if s["network"] != "on":  # a container has all of it or nothing
            words += ["--net", "--network", "none"]
        if s["docker_mount_cwd_to_workspace"]:
            words += ["--bind", f"{call.root}:{WORK}"]
        for volume in s["docker_volumes"]:
            words += ["--bind", volume]
        self.call_program("instance", "stop", name, may_fail=True)
        self.call_program(*words, s["singularity_image"], name, limit_s=START_LIMIT_S)

    def inside(self, name: str, call: BackendCommand) -> list[str]:
        return ["exec", f"instance://{name}"]

    def remove(self, name: str) -> None:
        self.call_program("instance", "stop", name)


BACKENDS = {"docker": DockerBackend, "singularity": SingularityBackend}
