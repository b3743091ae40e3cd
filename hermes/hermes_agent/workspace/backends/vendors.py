"""Commands in vendors' sandboxes, by their SDKs (extras `modal` and `daytona`).

Written after the SDKs' documentation and tested with stand-ins for their clients; not run against the real services.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from hermes_agent.contracts.terminal_env import TerminalEnvironmentProvider
from hermes_agent.core.errors import ToolFailed
from hermes_agent.system.installation import install_hint

APP = "hermes-agent"


class _Vendor(TerminalEnvironmentProvider):
    """A provider that needs the module of its name."""

    name = ""

    def is_available(self) -> bool:
        return importlib.util.find_spec(self.name) is not None

    def check_requirements(self, config: dict[str, Any]) -> bool:
        if not self.is_available():
            raise ToolFailed(f"terminal.backend is `{self.name}`, and its SDK is missing: {install_hint(self.name)}")
        return True


class Modal(_Vendor):
    """Sandboxes of Modal."""

    name = "modal"

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
        import modal  # an extra

        limits = container_config or {}
        app = modal.App.lookup(APP, create_if_missing=True)
        sandbox = modal.Sandbox.create(
            app=app,
            image=modal.Image.from_registry(image),
            cpu=limits.get("container_cpu") or None,
            memory=limits.get("container_memory") or None,
            timeout=24 * 3600,
        )
        return _ModalSandbox(sandbox)


class _ModalSandbox:
    def __init__(self, sandbox: Any) -> None:
        self._sandbox = sandbox

    def execute(
        self, command: str, cwd: str = "", *, timeout: float | None = None, stdin_data: str | None = None
    ) -> dict[str, Any]:
        import modal  # an extra

        process = self._sandbox.exec(
            "sh", "-c", f"{{ {command}\n}} 2>&1", workdir=cwd or None, timeout=int(timeout) if timeout else None
        )
        try:
            if stdin_data:
                process.stdin.write(stdin_data)
            process.stdin.write_eof()
            process.stdin.drain()
            output = process.stdout.read()
            return {"output": output, "returncode": process.wait()}
        except modal.exception.TimeoutError:
            return {"output": "", "returncode": 124}

    def cleanup(self) -> None:
        self._sandbox.terminate()


class Daytona(_Vendor):
    """Sandboxes of Daytona."""

    name = "daytona"

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


VENDORS: dict[str, Callable[[], TerminalEnvironmentProvider]] = {"modal": Modal, "daytona": Daytona}
