"""Terminal backends, and terminal environments: the places where the tool `terminal` runs commands.

Selected by `terminal.backend`. A `TerminalBackend` says which program of this machine runs a shell script there; the
host does the rest: limits, interrupt, what lasts between commands, background processes. A bundled plugin in
`terminal/` has its backends as `BACKENDS`: name to a function of `BackendServices`, or to a provider's class.

A `TerminalEnvironmentProvider` runs commands itself. Source: plugin contract §4.12; the provider's names are upstream's
later ones, which published plugins import.
"""

from __future__ import annotations

import abc
import copy
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from hermes_agent.contracts.kind import Kind, Provider, SelectedProvider, describe_unregistered, read_setting

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
"""Names that are the agent's, or upstream's; a plugin cannot have one."""

_BEST_SHELL = 'if command -v bash >/dev/null 2>&1; then exec bash -c "$1" hermes; else exec sh -c "$1" hermes; fi'


def shell_words(script: str) -> list[str]:
    """Return the words that run a script in the best shell that is there."""
    return ["sh", "-c", _BEST_SHELL, "hermes", script]


@dataclass(frozen=True, slots=True)
class BackendCommand:
    """One command."""

    command: str
    cwd: str
    """The directory in the backend where it runs; empty for the backend's own choice."""
    timeout_s: float
    task_id: str = ""
    network: str = ""
    """Owner of the network that it shares; empty: it has one of its own."""
    root: str = ""
    """The directory of this machine that it may change when it is confined."""
    beside: str = ""
    """The working directory, where that is another one than `root`."""
    tool_socket: str = ""
    """Path of the one socket of a program outside that it reaches when it is confined."""
    confined: bool = True
    output_bytes: int = 50_000
    """How much output is kept."""
    stdin: bytes = b""
    tty: bool = False
    """Whether the command has a terminal."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    on_output: Callable[[bytes], None] | None = None


class BackendStart(NamedTuple):
    """How a script is started: a program of this machine."""

    argv: list[str]
    env: dict[str, str]
    cwd: str = "/"
    has_tty: bool = False
    """The program makes the command's terminal itself; otherwise it has to be given one."""
    finish: Callable[[], tuple[str, ...]] = tuple
    """Gives back what the start took, once the program has ended; returns the limits that it reached."""
    before: Any = None
    """Steering files where it may write (`BackendServices.check_steering`); what is new afterwards is set aside."""


class TerminalBackend(abc.ABC):
    """A place where commands run."""

    name: str
    own_files: bool = True
    """Its files are this machine's, so that file tools act on them directly."""
    throwaway: bool = False
    """It can be thrown away: dangerous commands need no approval."""
    opens: bool = False
    """A command may ask to write in a folder of the user's instead of the working directory."""
    can_leave: bool = False
    """A command may ask to run outside of its confinement."""

    @property
    def confines(self) -> bool:
        """Whether a harmless command can do no harm, so that it needs no approval."""
        return True

    @property
    def offline(self) -> bool:
        """Whether a confined command is known to reach no network but its own."""
        return False

    def is_read_only(self, directory: str) -> bool:
        """Say whether confined commands cannot write to a working directory, which is then no place of work."""
        return False

    @property
    def refusal(self) -> str:
        """Why no command may run at all; empty when they may."""
        return ""

    @property
    def description(self) -> str:
        """What the model is told about the place; empty for nothing."""
        return ""

    def checks(self) -> list[tuple[bool, str, str]]:
        """Return rows of `(ok, label, detail)` for `hermes doctor`."""
        return []

    def network_problem(self) -> str:
        """Return why commands do not have the network that `terminal.network` asks for; empty when they have."""
        return ""

    @abc.abstractmethod
    def start(self, script: str, call: BackendCommand) -> BackendStart:
        """Return how a shell script is started there.

        Raises:
            ToolFailed: the place cannot be used, with the reason.
        """

    def base(self) -> Mapping[str, str] | None:
        """Return the environment that a shell has there; None when only the place knows."""
        return None

    def prelude(self) -> str:
        """Return lines that every script begins with."""
        return ""

    def close(self, task_id: str) -> None:
        """Give back what is held for a task. By default nothing is."""
        return

    def close_all(self) -> None:
        """Give back what is held for all of them."""
        return


class RemoteBackend(TerminalBackend):
    """A place with files of its own, to which a program of this machine leads.

    Ending that program ends nothing there: the host also ends the command's processes in the place itself.
    """

    own_files = False


class BackendServices(NamedTuple):
    """What a backend is made with."""

    settings: Mapping[str, Any]
    """The block `terminal`."""
    environ: Mapping[str, str]
    """The agent's environment."""
    home: str
    """`HERMES_HOME`; tells what belongs to this agent from what belongs to another one."""
    tool_environment: Callable[[Mapping[str, str]], dict[str, str]]
    """Returns the part of an environment that a process which works for the model is given."""
    check_steering: Callable[[str], Any]
    """Looks at the steering files in a directory of this machine before a command that may write there.

    Returns what `BackendStart.before` takes; raises ToolFailed when the directory cannot be looked through.
    """


class TerminalEnvironment(Protocol):
    """What `create_environment` returns: one place, for one task, until `cleanup`."""

    def execute(
        self, command: str, cwd: str = "", *, timeout: float | None = None, stdin_data: str | None = None
    ) -> Mapping[str, Any]:
        """Run a shell command and wait for it; keywords that it does not know are not passed.

        Returns:
            `output`, and `returncode` or `exit_code`; 124 means that the time was over.
        """
        ...

    def cleanup(self) -> None:
        """Give back what it holds."""
        ...


class TerminalEnvironmentProvider(Provider):
    """Makes terminal environments."""

    is_remote: bool = True
    """The commands run on another machine."""
    is_container: bool = True
    """It has a file system of its own, away from this machine's."""
    session_isolated_when_nonpersistent: bool = False
    """With `terminal.container_persistent: false` each session has its own."""

    @property
    def description(self) -> str:
        """What it is, in one sentence for people."""
        return f"Run commands in {self.display_name}."

    @property
    def skip_container_guards(self) -> bool:
        """Whether it can be thrown away, so that nobody is asked about dangerous commands in it."""
        return self.is_container

    @property
    def cache_path_base(self) -> str | None:
        """Where the agent's cached files appear in it; None when nothing is copied there."""
        return None

    @property
    def strip_env_keys(self) -> frozenset[str]:
        """Variables that no process of the agent may be given, though `terminal.env_passthrough` names them."""
        return frozenset()

    @property
    def env_description(self) -> str:
        """Where commands run, as the model is told."""
        return f"a {self.display_name} environment"

    @abc.abstractmethod
    def is_available(self) -> bool:
        """Say whether it could be used now; without asking the network."""

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
        """Make the environment of one task.

        Args:
            cwd: where commands begin; empty means its own choice.
            timeout: of a command that names none, in seconds.
            kwargs: `backend_config`, and what later versions add.
        """

    def check_requirements(self, config: dict[str, Any]) -> bool:
        """Say whether it can be used with these settings; by default `is_available()`."""
        return self.is_available()

    def probe(self) -> tuple[str, str]:
        """Return `ready`, `needs_setup` or `unavailable`, and a sentence about it."""
        return ("ready", "") if self.is_available() else ("needs_setup", f"{self.display_name} is not configured.")

    def probe_with_config(self, config: Mapping[str, Any]) -> tuple[str, str]:
        """`probe` with the settings; by default without them."""
        return self.probe()

    def setup_instructions(self) -> list[str]:
        """Return the lines that setup prints once it is selected."""
        return []

    def post_setup(self) -> None:
        """Ask for what it needs, when setup selected it."""
        return

    def doctor_checks(self) -> list[tuple[bool, str, str]]:
        """Return rows of `(ok, label, detail)` for people who look for a fault."""
        status, detail = self.probe()
        return [(status == "ready", f"{self.display_name} backend", detail)]

    def get_config_schema(self) -> dict[str, dict[str, Any]]:
        """Return the settings under `terminal.backends.<name>`: name to `type`, `description`, …"""
        return {}

    def resolve_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings with defaults and secrets filled in; by default a copy."""
        return copy.deepcopy(dict(config))


def choose_terminal_env(
    providers: Mapping[str, TerminalEnvironmentProvider], values: Mapping[str, Any]
) -> SelectedProvider[TerminalEnvironmentProvider]:
    """Return the provider that `terminal.backend` names; none when it is one of the agent's own."""
    path = "terminal.backend"
    name = read_setting(values, path).lower()
    if not name or name in BUILTIN_BACKENDS:
        return SelectedProvider(None, f"{path} is `{name or 'local'}`, one of the agent's own")
    if name in providers:
        return SelectedProvider(providers[name], f"{path} names it")
    return SelectedProvider(None, describe_unregistered(path, name, "terminal"))
