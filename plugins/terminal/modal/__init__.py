"""Commands in sandboxes of Modal, by its SDK (extra `modal`).

Written after the SDK's documentation and tested with a stand-in for its client; not run against the real service.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from hermes_agent.contracts.kind import install_hint
from hermes_agent.contracts.terminal_env import TerminalEnvironmentProvider
from hermes_agent.core.errors import ToolFailed

APP = "hermes-agent"


class Modal(TerminalEnvironmentProvider):
    """Sandboxes of Modal."""

    name = "modal"

    def is_available(self) -> bool:
        return importlib.util.find_spec("modal") is not None

    def check_requirements(self, config: dict[str, Any]) -> bool:
        if not self.is_available():
            raise ToolFailed(f"terminal.backend is `modal`, and its SDK is missing: {install_hint('modal')}")
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


BACKENDS = {"modal": Modal}
