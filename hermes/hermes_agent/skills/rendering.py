"""How the model sees skills: their list in the system prompt, and what is filled into the text of one.

The list is made when a session starts and stays as it is with the session's prompt, so that the provider's cached
prefix holds. Skills of plugins are not in it. Source: plugin contract §6.3, §6.4.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from hermes_agent.core.redact import redactor
from hermes_agent.io.processes import run, tool_environment
from hermes_agent.skills.finding import LocalSkill
from hermes_agent.tools import current_scope

__all__ = ["INDEX_CHARS", "SkillTextRules", "index_text"]

logger = logging.getLogger(__name__)

LINE_CHARS = 200
"""Longest description; the whole one is in `skills_list`."""
INDEX_CHARS = 12_000
"""Longest index; what does not fit is counted, and `skills_list` has it."""
DEFAULT_CATEGORY = "general"
"""What skills without a category are shown under."""

_HEAD = (
    "## Skills (mandatory)\n"
    "A skill says how something is done here. Before you act, look whether one of these is about what is asked; if so, "
    "open it with skill_view(name) and keep to it.\n"
    "<available_skills>\n"
)
_TAIL = "</available_skills>"


def index_text(skills: Sequence[LocalSkill], *, of_others: int = 0) -> str:
    """Return the block for the system prompt; empty without skills.

    Args:
        of_others: how many there are that others wrote.
    """
    if not skills and not of_others:
        return ""
    ordered = sorted(skills, key=lambda skill: (skill.category or DEFAULT_CATEGORY, skill.name))
    lines: list[str] = []
    size, left_out = len(_HEAD) + len(_TAIL), 0
    for category, group in groupby(ordered, key=lambda skill: skill.category or DEFAULT_CATEGORY):
        block = [f"  {_safe(category)}:"]
        for skill in group:
            line = f"    - {_safe(skill.name)}: {_short(_safe(skill.document.description))}"
            size += len(line) + 1
            if size > INDEX_CHARS:
                left_out += 1
            else:
                block.append(line)
        if len(block) > 1:
            lines += block
    if left_out:
        lines.append(f"  ({left_out} more: skills_list has them)")
    if of_others:
        lines.append(f"  ({of_others} more that others wrote: skills_list has them, as foreign text)")
    return f"{_HEAD}{chr(10).join(lines)}\n{_TAIL}"


def _short(text: str) -> str:
    return text if len(text) <= LINE_CHARS else text[: LINE_CHARS - 1] + "…"


def _safe(text: str) -> str:
    """A description must not end the block that it stands in."""
    return " ".join(text.replace("<", "‹").replace(">", "›").split())


OUTPUT_CHARS = 4_000
_COMMAND = re.compile(r"!`([^`\n]+)`")


@dataclass(frozen=True, slots=True)
class SkillTextRules:
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
