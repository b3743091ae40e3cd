"""What is filled into the text of a skill before the model sees it. Source: plugin contract §6.3."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hermes_agent.core.redact import redactor
from hermes_agent.io.processes import run, tool_environment
from hermes_agent.tools import current_scope

__all__ = ["Rendering"]

logger = logging.getLogger(__name__)

OUTPUT_CHARS = 4_000
_COMMAND = re.compile(r"!`([^`\n]+)`")


@dataclass(frozen=True, slots=True)
class Rendering:
    """The rules, from `skills.template_vars`, `skills.inline_shell` and `skills.inline_shell_timeout` (seconds).

    Attributes:
        passthrough: variables that a command is given beyond the usual ones (`terminal.env_passthrough`).
    """

    variables: bool = True
    shell: bool = False
    shell_timeout_s: float = 10.0
    passthrough: tuple[str, ...] = ()

    def __call__(self, text: str, directory: Path, session_id: str) -> str:
        """Return the text with its variables, and the output of its commands where the operator allows them."""
        if self.variables:
            text = text.replace("${HERMES_SKILL_DIR}", str(directory)).replace("${HERMES_SESSION_ID}", session_id)
        if self.shell:
            text = _COMMAND.sub(lambda match: self._output(match[1], directory, os.environ), text)
        return text

    def _output(self, command: str, directory: Path, environ: Mapping[str, str]) -> str:
        scope = current_scope.get()
        try:
            done = run(
                command,
                cwd=directory,
                env=tool_environment(environ, passthrough=self.passthrough),
                timeout_s=self.shell_timeout_s,
                output_limit_bytes=4 * OUTPUT_CHARS,
                cancelled=threading.Event() if scope is None else scope.cancelled,
            )
        except (OSError, ValueError) as exc:
            logger.warning("a command of the skill in %s could not be started: %s", directory, exc)
            return f"[could not be started: {exc}]"
        if done.timed_out:
            logger.warning("a command of the skill in %s took longer than %g s", directory, self.shell_timeout_s)
            return f"[stopped after {self.shell_timeout_s:g} s: {command}]"
        text = redactor((done.head + done.tail).decode("utf-8", "replace")).strip()
        return text if len(text) <= OUTPUT_CHARS else text[: OUTPUT_CHARS - 1] + "…"
