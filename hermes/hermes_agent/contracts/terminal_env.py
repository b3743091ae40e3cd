"""Terminal backends and terminal environments: the places where the tool `terminal` runs commands.

Selected by `terminal.backend`. A `TerminalBackend` names the program of this machine that runs a shell script in the
backend. The host adds limits, interrupts, shell state and background processes. A bundled plugin in `terminal/` has its
backends in `BACKENDS`: name to a function of `BackendServices`, or to the class of a provider. A
`TerminalEnvironmentProvider` runs commands itself. Source: plugin contract §4.12; its names are those of later
versions of upstream, which published plugins import.
"""

from __future__ import annotations

import abc
import copy
import threading
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Protocol

from hermes_agent.contracts.kind import Kind, Provider, SelectedProvider, describe_unregistered, read_setting
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass

__all__ = [
    "BUILTIN_BACKENDS",
    "BackendCommand",
    "BackendServices",
    "BackendStart",
    "RemoteBackend",
    "TERMINAL_ENV",
    "TerminalBackend",
    "TerminalEnvironment",
    "TerminalEnvironmentProvider",
    "choose_terminal_env",
    "shell_words",
]

TERMINAL_ENV = Kind(
    "terminal_env", "register_terminal_environment_provider", "terminal environment provider", is_used=True
)

BUILTIN_BACKENDS = frozenset(
    {"local", "docker", "ssh", "singularity", "modal", "managed_modal", "daytona", "vercel_sandbox", "systemd", "bwrap"}
)
"""Reserved names, which plugins cannot use."""

_BEST_SHELL = 'if command -v bash >/dev/null 2>&1; then exec bash -c "$1" hermes; else exec sh -c "$1" hermes; fi'


def shell_words(script: str) -> list[str]:
    """Return the arguments that run a script in bash, or in sh where bash is missing."""
    return ["sh", "-c", _BEST_SHELL, "hermes", script]


@lazy_dataclass(frozen=True, slots=True)
class BackendCommand:
    """A command for a backend."""

    command: str
    cwd: str
    """Directory of the backend in which it runs; empty: the default of the backend."""
    timeout_s: float
    task_id: str = ""
    network: str = ""
    """Owner of the network that it shares; empty: it has a network of its own."""
    root: str = ""
    """Directory of this machine that it may change when it is confined."""
    work_dir: str = ""
    """The working directory, if it is not `root`."""
    tool_socket: str = ""
    """Path of the only socket outside the confinement that it can reach."""
    confined: bool = True
    output_bytes: int = 50_000
    """Limit of the kept output, in bytes."""
    stdin: bytes = b""
    tty: bool = False
    """Whether the command has a terminal."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    on_output: Callable[[bytes], None] | None = None


class BackendStart(LazyNamedTuple):
    """How to start a script: a program of this machine."""

    argv: list[str]
    env: dict[str, str]
    cwd: str = "/"
    has_tty: bool = False
    """Whether the program creates the terminal of the command; otherwise the host does."""
    finish: Callable[[], tuple[str, ...]] = tuple
    """Release the resources of the start after the program ended; return the limits that it reached."""
    before: Any = None
    """Steering files where it may write (`BackendServices.check_steering`); new ones are set aside afterwards."""


class TerminalBackend(abc.ABC):
    """A place where commands run."""

    name: str
    own_files: bool = True
    """Whether its files are those of this machine, so that file tools access them directly."""
    throwaway: bool = False
    """Whether it is disposable, so that dangerous commands need no approval."""
    opens: bool = False
    """Whether a command may request to write in a folder outside the working directory."""
    can_leave: bool = False
    """Whether a command may request to run without confinement."""

    @property
    def confines(self) -> bool:
        """Whether it confines commands, so that harmless commands need no approval."""
        return True

    @property
    def offline(self) -> bool:
        """Whether a confined command can reach no network but its own."""
        return False

    def is_read_only(self, directory: str) -> bool:
        """Return whether confined commands cannot write to a working directory, which then cannot be used."""
        return False

    @property
    def refusal(self) -> str:
        """The reason why no command may run; "" if commands may run."""
        return ""

    @property
    def description(self) -> str:
        """Description of the backend for the model; "" for none."""
        return ""

    def checks(self) -> list[tuple[bool, str, str]]:
        """Return rows of `(ok, label, detail)` for `hermes doctor`."""
        return []

    def network_problem(self) -> str:
        """Return why commands lack the network that `terminal.network` requires; "" if they have it."""
        return ""

    @abc.abstractmethod
    def start(self, script: str, call: BackendCommand) -> BackendStart:
        """Return how to start a shell script.

        Raises:
            ToolFailed: the backend is not usable; with the reason.
        """

    def base(self) -> Mapping[str, str] | None:
        """Return the environment of a shell in the backend; None if only the backend knows it."""
        return None

    def prelude(self) -> str:
        """Return lines that every script begins with."""
        return ""

    def close(self, task_id: str) -> None:
        """Release the resources of a task. By default there are none."""
        return

    def close_all(self) -> None:
        """Release the resources of all tasks."""
        return


class RemoteBackend(TerminalBackend):
    """A backend with a file system of its own, reached through a program of this machine.

    The end of that program does not end the command: the host also ends the processes in the backend.
    """

    own_files = False


class BackendServices(LazyNamedTuple):
    """What the host gives the constructor of a backend."""

    settings: Mapping[str, Any]
    """The block `terminal` of the config."""
    environ: Mapping[str, str]
    """Environment of the daemon."""
    home: str
    """`HERMES_HOME`; it distinguishes the resources of this agent from those of others."""
    tool_environment: Callable[[Mapping[str, str]], dict[str, str]]
    """Return the part of an environment that a tool process gets."""
    check_steering: Callable[[str], Any]
    """Check the steering files in a directory of this machine before a command that may write there.

    Returns the value for `BackendStart.before`. Raises ToolFailed if the directory cannot be read.
    """


class TerminalEnvironment(Protocol):
    """What `create_environment` returns: the environment of one task until `cleanup`."""

    def execute(
        self, command: str, cwd: str = "", *, timeout: float | None = None, stdin_data: str | None = None
    ) -> Mapping[str, Any]:
        """Run a shell command and wait for its end; keywords that it does not name are not passed.

        Returns:
            `output`, and `returncode` or `exit_code`; 124 means that the time limit was exceeded.
        """
        ...

    def cleanup(self) -> None:
        """Release its resources."""
        ...


class TerminalEnvironmentProvider(Provider):
    """A provider that creates terminal environments."""

    is_remote: bool = True
    """Whether the commands run on another machine."""
    is_container: bool = True
    """Whether it has a file system of its own."""
    session_isolated_when_nonpersistent: bool = False
    """Whether each session has its own environment with `terminal.container_persistent: false`."""

    @property
    def description(self) -> str:
        """Description in one sentence, for users."""
        return f"Run commands in {self.display_name}."

    @property
    def skip_container_guards(self) -> bool:
        """Whether it is disposable, so that dangerous commands need no approval."""
        return self.is_container

    @property
    def cache_path_base(self) -> str | None:
        """Where the agent's cached files appear in it; None if none are copied."""
        return None

    @property
    def strip_env_keys(self) -> frozenset[str]:
        """Variables that no tool process may get, even if `terminal.env_passthrough` names them."""
        return frozenset()

    @property
    def env_description(self) -> str:
        """Description of the environment for the model."""
        return f"a {self.display_name} environment"

    @abc.abstractmethod
    def is_available(self) -> bool:
        """Return whether it can be used now, without a network request."""

    @abc.abstractmethod
    def create_environment(
        self,
        *,
        cwd: str,
        timeout: int,
        task_id: str = "default",
        image: str | None = None,
        container_config: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> TerminalEnvironment:
        """Return the environment of a task.

        Args:
            cwd: initial directory; empty: the default of the environment.
            timeout: default time limit of a command, in seconds.
            kwargs: `backend_config`, and additions of later versions.
        """

    def check_requirements(self, config: dict[str, Any]) -> bool:
        """Return whether it can be used with these settings; by default `is_available()`."""
        return self.is_available()

    def probe(self) -> tuple[str, str]:
        """Return `ready`, `needs_setup` or `unavailable`, and a sentence about it."""
        return ("ready", "") if self.is_available() else ("needs_setup", f"{self.display_name} is not configured.")

    def probe_with_config(self, config: Mapping[str, Any]) -> tuple[str, str]:
        """Return `probe()` for these settings; by default without them."""
        return self.probe()

    def setup_instructions(self) -> list[str]:
        """Return lines that the setup prints after its selection."""
        return []

    def post_setup(self) -> None:
        """Prompt for what it needs, after the setup selected it."""
        return

    def doctor_checks(self) -> list[tuple[bool, str, str]]:
        """Return rows of `(ok, label, detail)` for `hermes doctor`."""
        status, detail = self.probe()
        return [(status == "ready", f"{self.display_name} backend", detail)]

    def get_config_schema(self) -> dict[str, dict[str, Any]]:
        """Return the settings under `terminal.backends.<name>`: name to `type`, `description` and so on."""
        return {}

    def resolve_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings with defaults and secrets; by default a copy."""
        return copy.deepcopy(dict(config))


def choose_terminal_env(
    providers: Mapping[str, TerminalEnvironmentProvider], values: Mapping[str, Any]
) -> SelectedProvider[TerminalEnvironmentProvider]:
    """Return the provider that `terminal.backend` names; none for a built-in backend."""
    path = "terminal.backend"
    name = read_setting(values, path).lower()
    if not name or name in BUILTIN_BACKENDS:
        return SelectedProvider(None, f"{path} is `{name or 'local'}`, which is built in")
    if name in providers:
        return SelectedProvider(providers[name], f"{path} names it")
    return SelectedProvider(None, describe_unregistered(path, name, "terminal"))
