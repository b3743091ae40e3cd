"""The verdict on a command: never, ask, or let it run."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hermes_agent.policy.command_patterns import CommandPattern, CommandPatterns
from hermes_agent.policy.shell.parser import read_script
from hermes_agent.policy.shell.paths import resolve_place
from hermes_agent.policy.shell.programs import is_a
from hermes_agent.policy.shell.rules import HARDLINE, RULES
from hermes_agent.policy.shell.rules.processes import FORK_BOMB
from hermes_agent.policy.shell.rules.remote import DOWNLOADED, PROGRAM, SOURCING, download_targets, is_unknown
from hermes_agent.policy.shell.rules.services import NEW_REMOTE, git_remotes
from hermes_agent.policy.shell.script import NETWORK, ShellCommand, ShellScript, fold, fold_names

UNREADABLE = "a command that cannot be analysed"
"""Key of a text that the grammar does not take; somebody must look at it."""
_CONTINUED = re.compile(r"(?<=\S)\\\n(?=\S)")
"""The end of a line within a word."""
RUN_AFTER_CHMOD = "chmod +x followed by immediate execution"


class ShellVerdict(NamedTuple):
    """What was found."""

    hardline: str = ""
    """Why it never runs; empty when it may."""
    keys: tuple[str, ...] = ()
    """Why somebody must be asked, most important first; empty when it is harmless."""
    problem: str = ""
    """Why it could not be told; then `UNREADABLE` is among the keys."""
    scripts: tuple[ShellScript, ...] = ()
    """The readings of the text that were judged."""
    network: bool = False
    """Whether one of its commands reaches the network, where there is one."""

    @property
    def is_dangerous(self) -> bool:
        """Whether it must not simply run."""
        return bool(self.hardline or self.keys)

    @property
    def is_unknown(self) -> bool:
        """Whether it is only not known to be harmless: somebody must be asked where it can do harm."""
        return not self.hardline and bool(self.keys) and all(map(is_unknown, self.keys))


def judge(
    text: str, added: CommandPatterns | None = None, *, also: Sequence[str] = (), guessed: bool = False
) -> ShellVerdict:
    """Judge a shell command. Never raises, reads nothing but the text.

    Args:
        added: what plugins want judged, too.
        also: other spellings of the same command.
        guessed: it only may be a command: its words name no unknown program.
    """
    joined = (_CONTINUED.sub("", text),) if "\\\n" in text else ()
    variants = dict.fromkeys((text, *joined, fold(text), fold_names(fold(text)), *also))
    scripts = [read_script(variant, guessed=guessed) for variant in variants]
    hardline = next((reason for script in scripts if (reason := _hardline(script))), "")
    keys = list(dict.fromkeys(key for script in scripts for key in _keys(script)))
    if added is not None and (patterns := (added.patterns_for("hardline"), added.patterns_for("dangerous"))) != (
        [],
        [],
    ):
        texts = _texts(variants, scripts)
        hardline = hardline or next(iter(_found(patterns[0], texts)), "")
        keys = list(dict.fromkeys((*keys, *_found(patterns[1], texts))))
    keys.sort(key=lambda key: key.startswith(PROGRAM))
    problem = next((script.problem for script in scripts if script.problem), "")
    network = any(_reaches_network(command) for script in scripts for command in script.commands)
    return ShellVerdict(hardline, tuple([*keys, UNREADABLE] if problem else keys), problem, tuple(scripts), network)


def _reaches_network(command: ShellCommand) -> bool:
    return NETWORK in command.marks or any(
        r.target.text.startswith(("/dev/tcp/", "/dev/udp/")) for r in command.redirects
    )


def _texts(variants: Iterable[str], scripts: Sequence[ShellScript]) -> list[str]:
    """Return what patterns are searched for in: the text as it is written, and each command as the shell sees it."""
    commands = [command for script in scripts for command in script.commands]
    plain = (
        " ".join((command.text, *(f"{to.operator} {to.target.text}" for to in command.redirects)))
        for command in commands
    )
    return list(dict.fromkeys((*variants, *plain)))


def _found(patterns: Sequence[CommandPattern], texts: Sequence[str]) -> list[str]:
    return [pattern.description for pattern in patterns if pattern.matches(texts)]


def _hardline(script: ShellScript) -> str:
    if script.fork_bomb:
        return FORK_BOMB
    return next((rule.key for rule in HARDLINE for command in script.commands if rule.test(command)), "")


def _keys(script: ShellScript) -> list[str]:
    found = list(dict.fromkeys(key for rule in RULES for command in script.commands if (key := rule.key_for(command))))
    if script.fork_bomb:
        found.append(FORK_BOMB)
    if _runs_what_it_made_executable(script):
        found.append(RUN_AFTER_CHMOD)
    if _runs_what_it_downloaded(script):
        found.append(DOWNLOADED)
    remotes = [git_remotes(command) for command in script.commands]
    if {added for added, _ in remotes} & {pushed for _, pushed in remotes} - {""} and NEW_REMOTE not in found:
        found.append(NEW_REMOTE)
    return found


def _runs_what_it_downloaded(script: ShellScript) -> bool:
    fetched: set[str] = set()
    for command in script.commands:
        fetched |= set(download_targets(command))
        runner = command.name in SOURCING or is_a(command.name, "shell") or is_a(command.name, "interpreter")
        run = command.operands[:1] if runner else [w.text for w in command.words[:1]]
        if any(resolve_place(command, text) in fetched for text in run):
            return True
    return False


def _runs_what_it_made_executable(script: ShellScript) -> bool:
    made: set[str] = set()
    for command in script.commands:
        if command.name == "chmod" and any("x" in o or o.isdigit() for o in (*command.operands[:1], *command.args[:1])):
            made |= {posixpath.normpath(operand) for operand in command.operands}
        elif (command.words and posixpath.normpath(command.words[0].text) in made) or (
            command.name in ("sh", "bash", "zsh") and made & {posixpath.normpath(o) for o in command.operands}
        ):
            return True
    return False
