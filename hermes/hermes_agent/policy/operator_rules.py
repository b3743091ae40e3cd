"""What the operator's rules say of a shell command: refused, allowed, or somebody is asked.

All lists are judged on the parsed commands (`covering`), in this order: hard-line list, `approvals.deny`,
`command_allowlist`.
Source: plugin contract §10.1 to §10.5.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from hermes_agent.policy.command_patterns import CommandPatterns


DEFAULT_HOME = "~/.hermes"
"""How the rules about the agent's home spell it."""


class CommandReview(NamedTuple):
    """What the rules say of one command."""

    verdict: Literal["refuse", "ask", "allow"]
    reason: str = ""
    """For `refuse`: what the model is told. For `allow`: the entry of the list."""
    keys: tuple[str, ...] = ()
    """Why the command is dangerous, as far as it is."""
    once: bool = False
    """For `ask`: what runs cannot be told from the text, so that an answer covers this call alone."""
    mandatory: bool = False
    """For `ask`: it would change the agent's own rules, so that the user decides each time."""
    unknown: bool = False
    """For `ask`: nothing of it is known to be dangerous, but not all of it is known to be harmless."""
    network: bool = False
    """Whether it reaches the network, where there is one."""
    lasting: bool = False
    """For `ask`: whether an answer may cover other commands that are dangerous for the same reasons."""


@dataclass(frozen=True, slots=True)
class CommandPolicy:
    """The operator's lists."""

    deny: Sequence[str] = ()
    """`approvals.deny`: globs that ignore case."""
    allow: Sequence[str] = ()
    """`command_allowlist`: keys of dangerous patterns, or globs."""
    home: Path | None = None
    """Where `allow_always` writes; None writes nowhere."""
    unconfined: Sequence[str] = ()
    """`terminal.unconfined_commands`: complete commands that leave the sandbox without a question."""
    patterns: CommandPatterns | None = None
    """What plugins want judged, too."""
    _added: list[str] = field(default_factory=list)

    def review(
        self, command: str, *, functions: str = "", confined: bool = False, cwd: str = "", typed: bool = False
    ) -> CommandReview:
        """Judge a command; a harmless one that no list names is asked about, too, as long as nothing confines it.

        Args:
            functions: shell functions that it may call.
            confined: a sandbox holds it, so that the allow list need not cover what is harmless.
            cwd: where it runs; empty where that is not known.
            typed: it is input of a program, and only perhaps a command: its words name no unknown program.
        """
        from hermes_agent.policy.shell import (
            allowlist,  # with the grammar of shells: for the first command
            judge,
        )
        from hermes_agent.policy.shell.rules.processes import OWN
        from hermes_agent.policy.shell.rules.remote import COMPUTED

        text = f"{functions}\n{command}" if functions else command
        found = judge(text, self.patterns, also=self._by_home(text, cwd), guessed=typed)
        if found.hardline:
            return CommandReview(
                "refuse",
                f"BLOCKED (hardline): {found.hardline}. This command is never run, whatever is allowed; do not try"
                " another way to the same end. Tell the user what you wanted to do.",
                found.keys,
            )
        glob = allowlist.matching_rule(found, (command,), self.deny) if self.deny else ""
        if glob:
            return CommandReview(
                "refuse",
                f"BLOCKED: this command matches the user-defined deny rule '{glob}' (approvals.deny in"
                " config.yaml). Do not try another way to the same end.",
                found.keys,
            )
        if self.deny and COMPUTED not in found.keys and allowlist.is_uncertain(found, self.deny):
            found = found._replace(keys=(*found.keys, COMPUTED))
        allow = (*self.allow, *self._added)
        if allow and not functions and allowlist.is_covered(found, allow, confined=confined):
            return CommandReview("allow", ", ".join(found.keys) or "command_allowlist", found.keys)
        lasting = bool(found.keys) and allowlist.is_covered(found, found.keys, confined=confined)
        once, own = allowlist.is_computed(found), OWN in found.keys
        return CommandReview("ask", "", found.keys, once, own, found.is_unknown, found.network, lasting)

    def _by_home(self, text: str, cwd: str) -> list[str]:
        """Return the text with the agent's home as it is spelled by default, where it is about that directory."""
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
        """Say whether the operator lets exactly this command run outside the sandbox without a question."""
        if not self.unconfined:
            return False
        from hermes_agent.policy.shell.syntax import plain_words  # as above

        words = plain_words(command)
        return words is not None and any(words == plain_words(entry) for entry in self.unconfined)

    def allow_always(self, keys: Sequence[str]) -> None:
        """Add keys to `command_allowlist`, here and in the file.

        Raises:
            ConfigError: the file cannot be changed, or would not be valid.
            UserError: Nix declares the list.
        """
        if self.home is not None:
            from hermes_agent.config.edit import set_value  # a round-trip parser; an answer `always` is rare

            present = [*self.allow, *self._added]
            set_value(self.home, ("command_allowlist",), [*present, *(key for key in keys if key not in present)])
        self._added.extend(keys)
