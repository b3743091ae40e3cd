"""What the operator's rules say of a shell command: refused, allowed, or somebody is asked.

Source: plugin contract §10.1 to §10.5. The order is hard-line list, `approvals.deny`, `command_allowlist`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from hermes_agent.policy.patterns import CommandPatterns

__all__ = ["CommandPolicy", "Review"]

OPERATORS = frozenset(";&|<>`$()\n")
"""A command with one of these is matched by no glob of the allow list: the glob would cover what follows."""


class Review(NamedTuple):
    """What the rules say of one command."""

    verdict: Literal["refuse", "ask", "allow"]
    reason: str = ""
    """For `refuse`: what the model is told. For `allow`: the entry of the list."""
    keys: tuple[str, ...] = ()
    """Why the command is dangerous, as far as it is."""


@dataclass(frozen=True, slots=True)
class CommandPolicy:
    """The operator's lists."""

    deny: Sequence[str] = ()
    """`approvals.deny`: globs that ignore case."""
    allow: Sequence[str] = ()
    """`command_allowlist`: keys of dangerous patterns, or globs."""
    home: Path | None = None
    """Where `allow_always` writes; None writes nowhere."""
    patterns: CommandPatterns | None = None
    """What plugins want judged, too."""
    _added: list[str] = field(default_factory=list)

    def review(self, command: str, *, functions: str = "") -> Review:
        """Judge a command; a harmless one that no list names is asked about, too, as long as nothing confines it.

        Args:
            functions: shell functions that it may call.
        """
        from hermes_agent.policy.shell import judge  # the grammar of shells: for the first command

        found = judge(f"{functions}\n{command}" if functions else command, self.patterns)
        if found.hardline:
            return Review(
                "refuse",
                f"BLOCKED (hardline): {found.hardline}. This command is never run, whatever is allowed; do not try"
                " another way to the same end. Tell the user what you wanted to do.",
                found.keys,
            )
        folded = " ".join(command.split()).lower()
        for glob in self.deny:
            if fnmatchcase(folded, glob.lower()):
                return Review(
                    "refuse",
                    f"BLOCKED: this command matches the user-defined deny rule '{glob}' (approvals.deny in"
                    " config.yaml). Do not try another way to the same end.",
                    found.keys,
                )
        if found.keys and set(found.keys) <= {*self.allow, *self._added}:
            return Review("allow", ", ".join(found.keys), found.keys)
        if not OPERATORS & set(command.strip()):
            for glob in self.allow:
                if fnmatchcase(command.strip(), glob):
                    return Review("allow", glob, found.keys)
        return Review("ask", keys=found.keys)

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
