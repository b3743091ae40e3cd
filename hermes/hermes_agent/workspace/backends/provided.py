"""A backend that a plugin brings: a terminal environment provider. Source: `contracts.terminal_env`."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Mapping
from typing import Any

from hermes_agent.contracts.terminal_env import TerminalEnvironment, TerminalEnvironmentProvider
from hermes_agent.core.errors import ToolFailed
from hermes_agent.io.processes import CommandResult
from hermes_agent.workspace.backends.backend import Backend, BackendCommand, BackendStart
from hermes_agent.workspace.shell_state import ShellState, ShellStateFilter

__all__ = ["PluginBackend"]

logger = logging.getLogger(__name__)

EXIT_TIMEOUT = 124


class PluginBackend(Backend):
    """The environments of one provider, one for each task.

    Args:
        settings: of the block `terminal`.
        image: for one of the agent's own; a plugin's has it in its settings.
    """

    own_files = False

    def __init__(
        self, provider: TerminalEnvironmentProvider, settings: Mapping[str, Any], *, image: str | None = None
    ) -> None:
        self._image = image
        self.name = provider.name
        self._provider, self._settings = provider, settings
        self._made: dict[str, TerminalEnvironment] = {}
        self._lock = threading.Lock()

    @property
    def throwaway(self) -> bool:  # type: ignore[override]
        return self._flag("skip_container_guards")

    @property
    def confines(self) -> bool:
        return self._flag("is_container")

    @property
    def description(self) -> str:
        return f"Commands run in {self._ask('env_description', 'another place')}."

    def checks(self) -> list[tuple[bool, str, str]]:
        try:
            return [(bool(ok), str(label), str(detail)) for ok, label, detail in self._provider.doctor_checks()]
        except Exception as exc:  # noqa: BLE001 - a plugin's code
            return [(False, f"{self.name} cannot be checked", f"{type(exc).__name__}: {exc}")]

    def start(self, script: str, call: BackendCommand) -> BackendStart:
        raise ToolFailed(f"the terminal backend {self.name} runs no background processes")

    def execute(self, call: BackendCommand, state: ShellState) -> CommandResult:
        """Run a command in the task's environment, which is made at its first one."""
        environment = self._environment(call)
        recorder = ShellStateFilter()
        script = state.script(call.command, recorder, cwd=call.cwd)
        wanted = {"cwd": call.cwd, "timeout": call.timeout_s}
        if call.stdin:
            wanted["stdin_data"] = call.stdin.decode("utf-8", "replace")
        try:
            answer = environment.execute(script, **_accepted_keywords(environment.execute, wanted))
        except Exception as exc:
            raise ToolFailed(f"the terminal backend {self.name} failed: {type(exc).__name__}: {exc}") from exc
        code = answer.get("returncode", answer.get("exit_code"))
        output = str(answer.get("output") or "").encode("utf-8", "replace")
        text = recorder.feed(output) + recorder.rest()
        state.load_report(recorder.report)
        over = max(len(text) - call.output_bytes, 0)
        head = int(call.output_bytes * 0.4) if over else len(text)
        return CommandResult(
            int(code if code is not None else -1),
            text[:head],
            text[head + over :],
            over,
            timed_out=code == EXIT_TIMEOUT,
        )

    def close(self, task_id: str) -> None:
        with self._lock:
            environment = self._made.pop(task_id, None)
        if environment is not None:
            try:
                environment.cleanup()
            except Exception as exc:  # noqa: BLE001 - a plugin's code, and the task is over
                logger.warning("the terminal backend %s could not give back %s: %s", self.name, task_id, exc)

    def _environment(self, call: BackendCommand) -> TerminalEnvironment:
        with self._lock:
            if call.task_id not in self._made:
                self._made[call.task_id] = self._make(call)
            return self._made[call.task_id]

    def _make(self, call: BackendCommand) -> TerminalEnvironment:
        get = self._settings.get
        own = self._settings.get("backends") or {}
        container = {f"container_{key}": get(f"container_{key}") for key in ("cpu", "memory", "disk", "persistent")}
        try:
            if not self._provider.check_requirements({**self._settings, **container}):
                raise ToolFailed(f"the terminal backend {self.name} is not ready: {self._provider.probe()[1]}")
            return self._provider.create_environment(
                cwd=call.cwd,
                timeout=int(get("timeout") or 180),
                task_id=call.task_id or "default",
                image=self._image,
                container_config=container if self.confines else None,
                backend_config=self._provider.resolve_config(own.get(self.name) or {}),
            )
        except ToolFailed:
            raise
        except Exception as exc:
            raise ToolFailed(f"the terminal backend {self.name} cannot be used: {type(exc).__name__}: {exc}") from exc

    def _flag(self, name: str) -> bool:
        return bool(self._ask(name, False))

    def _ask(self, name: str, default: Any) -> Any:
        """Return what the provider says of itself; one that raises has the careful answer."""
        try:
            return getattr(self._provider, name)
        except Exception as exc:  # noqa: BLE001 - a plugin's code
            logger.warning("the terminal backend %s cannot say %s: %s", self.name, name, exc)
            return default


def _accepted_keywords(function: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords that a function takes."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return wanted
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return wanted
    return {name: value for name, value in wanted.items() if name in parameters}
