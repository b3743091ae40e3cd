"""The operator's rules for shell commands: refuse, allow, or ask the user.

The rules apply to the parsed commands, in this order: hard-line list, `approvals.deny`, `command_allowlist`.
Source: plugin contract §10.1 to §10.5.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass

if TYPE_CHECKING:
    from hermes_agent.policy.command_patterns import CommandPatterns


DEFAULT_HOME = "~/.hermes"
"""Spelling of the agent's home in the rules of `policy.shell`."""


class CommandReview(LazyNamedTuple):
    """The decision about one command."""

    verdict: Literal["refuse", "ask", "allow"]
    reason: str = ""
    """For `refuse`: the text for the model. For `allow`: the entry of the list."""
    keys: tuple[str, ...] = ()
    """Why the command is dangerous; empty when it is not."""
    once: bool = False
    """For `ask`: the text does not show what runs, so that an answer covers this call only."""
    mandatory: bool = False
    """For `ask`: the command would change the agent's own rules, so that the user decides each time."""
    unknown: bool = False
    """For `ask`: no part is known to be dangerous, but not every part is known to be harmless."""
    network: bool = False
    """Whether the command uses the network."""
    lasting: bool = False
    """For `ask`: whether an answer may cover other commands that are dangerous for the same reasons."""


@lazy_dataclass(frozen=True, slots=True)
class CommandPolicy:
    """The operator's lists, and the patterns of plugins."""

    deny: Sequence[str] = ()
    """`approvals.deny`: globs that ignore case."""
    allow: Sequence[str] = ()
    """`command_allowlist`: keys of dangerous patterns, or globs."""
    home: Path | None = None
    """The home in which `allow_always` saves; None saves nothing."""
    unconfined: Sequence[str] = ()
    """`terminal.unconfined_commands`: complete commands that leave the sandbox without a question."""
    patterns: CommandPatterns | None = None
    """Additional patterns of plugins."""
    _added: list[str] = field(default_factory=list)

    def review(
        self, command: str, *, functions: str = "", confined: bool = False, cwd: str = "", typed: bool = False
    ) -> CommandReview:
        """Judge a command. Outside a sandbox a harmless command that no list names asks, too.

        Args:
            functions: shell functions that the command may call.
            confined: a sandbox confines the command, so that the allow list need not cover its harmless parts.
            cwd: its working directory; empty when it is not known.
            typed: the text is input for a program and may not be a command: its words name no unknown program.
        """
        # loaded by the first command: they bring the grammar of shells
        from hermes_agent.policy.shell import judge, verdict
        from hermes_agent.policy.shell.rules.processes import OWN
        from hermes_agent.policy.shell.rules.remote import COMPUTED, PROGRAM

        text = f"{functions}\n{command}" if functions else command
        found = judge(text, self.patterns, also=self._by_home(text, cwd), guessed=typed)
        if cwd not in ("", "/") and ".." not in text and any(key.startswith(PROGRAM) for key in found.keys):
            # a program of the project, also where that is in the agent's home, as a daemon's workspace is
            near = judge(text.replace(f"{cwd}/", "./"), self.patterns, guessed=typed)
            found = found._replace(keys=tuple(k for k in found.keys if not k.startswith(PROGRAM) or k in near.keys))
        if found.hardline:
            return CommandReview(
                "refuse",
                f"BLOCKED (hardline): {found.hardline}. This command is never run, whatever is allowed; do not try"
                " another way to the same end. Tell the user what you wanted to do.",
                found.keys,
            )
        glob = verdict.matching_rule(found, (command,), self.deny) if self.deny else ""
        if glob:
            return CommandReview(
                "refuse",
                f"BLOCKED: this command matches the user-defined deny rule '{glob}' (approvals.deny in"
                " config.yaml). Do not try another way to the same end.",
                found.keys,
            )
        if self.deny and COMPUTED not in found.keys and verdict.is_uncertain(found, self.deny):
            found = found._replace(keys=(*found.keys, COMPUTED))
        allow = (*self.allow, *self._added)
        if allow and not functions and verdict.is_covered(found, allow, confined=confined):
            return CommandReview("allow", ", ".join(found.keys) or "command_allowlist", found.keys)
        lasting = bool(found.keys) and verdict.is_covered(found, found.keys, confined=confined)
        once, own = verdict.is_computed(found), OWN in found.keys
        return CommandReview("ask", "", found.keys, once, own, found.is_unknown, found.network, lasting)

    def _by_home(self, text: str, cwd: str) -> list[str]:
        """Return the text with the agent's home spelled as `DEFAULT_HOME`, or [] when it does not name it."""
        if self.home is None:
            return []
        homes = {str(self.home), os.path.realpath(self.home)}
        inside = next((home for home in homes if cwd == home or cwd.startswith(f"{home}/")), "")
        spelled = text
        for home in sorted(homes, key=len, reverse=True):
            spelled = spelled.replace(home, DEFAULT_HOME)
        if inside:
            spelled = f"cd {shlex.quote(DEFAULT_HOME + cwd[len(inside) :])}\n{spelled}"
        return [spelled] if spelled != text else []

    def may_leave_sandbox(self, command: str) -> bool:
        """Return whether the operator allows exactly this command outside the sandbox without a question."""
        if not self.unconfined:
            return False
        from hermes_agent.policy.shell.syntax import plain_words  # brings the grammar of shells

        words = plain_words(command)
        return words is not None and any(words == plain_words(entry) for entry in self.unconfined)

    def allow_always(self, keys: Sequence[str]) -> None:
        """Add keys to `command_allowlist`, in memory and in the config file.

        Raises:
            ConfigError: the file cannot be changed, or would become invalid.
            UserError: Nix declares the list.
        """
        if self.home is not None:
            from hermes_agent.config.edit import set_value  # a slow import, for the rare answer `always`

            present = [*self.allow, *self._added]
            set_value(self.home, ("command_allowlist",), [*present, *(key for key in keys if key not in present)])
        self._added.extend(keys)
