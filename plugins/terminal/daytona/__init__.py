"""Commands in sandboxes of Daytona, by its SDK (extra `daytona`).

Written after the SDK's documentation and tested with a stand-in for its client; not run against the real service.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from hermes_agent.contracts.kind import install_hint
from hermes_agent.contracts.terminal_env import TerminalEnvironmentProvider
from hermes_agent.core.errors import ToolFailed


class Daytona(TerminalEnvironmentProvider):
    """Sandboxes of Daytona."""

    name = "daytona"

    def is_available(self) -> bool:
        return importlib.util.find_spec("daytona") is not None

    def check_requirements(self, config: dict[str, Any]) -> bool:
        if not self.is_available():
            raise ToolFailed(f"terminal.backend is `daytona`, and its SDK is missing: {install_hint('daytona')}")
        return True

    def create_environment(
        self,
        *,
        cwd: str,
        timeout: int,
        task_id: str = "default",
        image: str | None = None,
        container_config: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        import daytona  # an extra

        limits = container_config or {}
        client = daytona.Daytona()
        resources = daytona.Resources(
            cpu=limits.get("container_cpu") or None,
            memory=max(int(limits.get("container_memory") or 0) // 1024, 1),
            disk=max(int(limits.get("container_disk") or 0) // 1024, 1),
        )
        labels = {"hermes-task": task_id}
        sandbox = client.create(
            daytona.CreateSandboxFromImageParams(image=image, resources=resources, labels=labels), timeout=600
        )
        return _DaytonaSandbox(client, sandbox)


class _DaytonaSandbox:
    def __init__(self, client: Any, sandbox: Any) -> None:
        self._client, self._sandbox = client, sandbox

    def execute(self, command: str, cwd: str = "", *, timeout: float | None = None) -> dict[str, Any]:
        import daytona  # an extra

        try:
            answer = self._sandbox.process.exec(
                f"{{ {command}\n}} 2>&1", cwd=cwd or None, timeout=int(timeout) if timeout else None
            )
        except daytona.DaytonaTimeoutError:
            return {"output": "", "returncode": 124}
        return {"output": answer.result, "returncode": answer.exit_code}

    def cleanup(self) -> None:
        self._client.delete(self._sandbox)


BACKENDS = {"daytona": Daytona}
