"""Commands on another machine, by the OpenSSH client; one connection serves all of them."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes_agent.contracts.terminal_env import BackendCommand, BackendServices, BackendStart, RemoteBackend
from hermes_agent.core.errors import ToolFailed

CONNECT_LIMIT_S = 60.0


class SshBackend(RemoteBackend):
    """One machine; the keys of machines that it learns are kept in the agent's home."""

    name = "ssh"

    def __init__(self, services: BackendServices) -> None:
        self._settings = {**services.settings, **_from_variables(services.settings, services.environ)}
        self._services = services
        self._directory = ""
        self._lock = threading.Lock()

    @property
    def confines(self) -> bool:
        return False

    @property
    def description(self) -> str:
        return f"Commands and file tools work on the machine {self._settings['ssh_host']}."

    def start(self, script: str, call: BackendCommand) -> BackendStart:
        return BackendStart(
            [*self._client(), "-tt" if call.tty else "-T", "--", self._settings["ssh_host"], _posix(script)],
            self._env(),
        )

    def close(self, task_id: str) -> None:
        """Do nothing: the connection serves all tasks, and ends by itself or with `close_all`."""

    def close_all(self) -> None:
        """End the connection."""
        with self._lock:
            directory, self._directory = self._directory, ""
        if directory:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                argv = ["ssh", "-o", f"ControlPath={directory}/%C", "-O", "exit", *self._where(), "--"]
                subprocess.run(
                    [*argv, self._settings["ssh_host"]], env=self._env(), capture_output=True, timeout=10, check=False
                )
            shutil.rmtree(directory, ignore_errors=True)

    def _client(self) -> list[str]:
        """Return the command of the client; the first call connects."""
        if not self._settings["ssh_host"]:
            raise ToolFailed("terminal.backend is `ssh`, and terminal.ssh_host names no machine")
        with self._lock:
            if not self._directory or not any(Path(self._directory).iterdir()):
                self._connect()
            return self._words()

    def _connect(self) -> None:
        if not self._directory:
            self._directory = tempfile.mkdtemp(prefix="hermes-far-")  # a socket's path must be short
        argv = [*self._words(), "-o", "ControlMaster=yes", "-o", "ControlPersist=600", "-fNT", "--"]
        try:
            # what the master prints later must not hold a pipe open
            with tempfile.TemporaryFile() as said:
                done = subprocess.run(
                    [*argv, self._settings["ssh_host"]], env=self._env(), stdin=subprocess.DEVNULL, stdout=said,
                    stderr=said, timeout=CONNECT_LIMIT_S, check=False, start_new_session=True,
                )  # fmt: skip
                said.seek(0)
                text = said.read().decode("utf-8", "replace").strip()
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise ToolFailed(f"no connection to {self._settings['ssh_host']}: {exc}") from exc
        if done.returncode:
            raise ToolFailed(f"no connection to {self._settings['ssh_host']}: {text or 'ssh failed'}")

    def _words(self) -> list[str]:
        options = ["BatchMode=yes", "ServerAliveInterval=15", "ServerAliveCountMax=3", "ConnectTimeout=20"]
        options += [f"ControlPath={self._directory}/%C", "LogLevel=ERROR"]
        # the first key of a machine is accepted, another one later is not
        known = f'UserKnownHostsFile="{self._services.home}/ssh_known_hosts" ~/.ssh/known_hosts ~/.ssh/known_hosts2'
        options += ["StrictHostKeyChecking=accept-new", known]
        return ["ssh", *(word for option in options for word in ("-o", option)), *self._where()]

    def _where(self) -> list[str]:
        s = self._settings
        words = ["-p", str(s["ssh_port"])] if s["ssh_port"] else []
        words += ["-l", s["ssh_user"]] if s["ssh_user"] else []
        return [*words, "-i", str(Path(s["ssh_key"]).expanduser())] if s["ssh_key"] else words

    def _env(self) -> dict[str, str]:
        environ = self._services.environ
        agent = {k: v for k, v in environ.items() if k == "SSH_AUTH_SOCK"}
        return {**self._services.tool_environment(environ), **agent}


def _posix(script: str) -> str:
    """Return the command for a login shell of any kind: it runs a POSIX shell."""
    return shlex.join(["sh", "-c", script])


def _from_variables(settings: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what the config leaves out and upstream's variables (`TERMINAL_SSH_HOST`, …) say."""
    names = [name for name in ("ssh_host", "ssh_user", "ssh_port", "ssh_key") if not settings[name]]
    return {name: environ.get(f"TERMINAL_{name.upper()}") or settings[name] for name in names}


BACKENDS = {"ssh": SshBackend}
