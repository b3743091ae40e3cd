"""What `command_allowlist` covers, judged on the parsed commands: each one needs an entry that names it.

An entry is the name of a dangerous pattern, or a glob for one simple command. What a wrapper runs (`sudo make`) needs
an entry that names both. Nothing covers what cannot be analysed, is made up while it runs, or changes the agent's own
rules.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from hermes_agent.policy.shell import ShellCommand, ShellScript, ShellVerdict
from hermes_agent.policy.shell.parser import read_script
from hermes_agent.policy.shell.programs import is_a, spellings
from hermes_agent.policy.shell.rules import RULES
from hermes_agent.policy.shell.rules.processes import OWN
from hermes_agent.policy.shell.rules.remote import COMPUTED, UNKNOWN_KEYS
from hermes_agent.policy.shell.verdict import UNREADABLE

_COMPUTED_RULES = re.compile(
    r"obfuscation|remote content|remote script|encoded command|followed by immediate execution"
)
"""Keys of commands whose program nobody has read."""
_MAKERS = frozenset({"eval", "source", "."})
_WILD = frozenset("*?[")
_HARMLESS_TARGETS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})


class _Entry(NamedTuple):
    """A simple command that an entry of the list names."""

    via: tuple[str, ...]
    glob: str
    program: str


def matching_rule(found: ShellVerdict, texts: Sequence[str], globs: Sequence[str]) -> str:
    """Return the first glob that the line or one of its commands matches, whatever runs the command; empty for none."""
    known = {" ".join(text.split()).lower() for text in texts}
    known |= {" ".join(said.split()).lower() for command in _commands(found) for said in spellings(command)}
    return next((glob for glob in globs if any(fnmatchcase(text, glob.lower()) for text in known)), "")


def is_uncertain(found: ShellVerdict, globs: Sequence[str]) -> bool:
    """Say whether a command is known so little that it may match a glob: `git $WHAT` and `git push*`."""
    heads = [re.split(r"[*?\[]", glob.lower(), maxsplit=1)[0] for glob in globs]
    for command in _commands(found):
        for said in spellings(command):
            known, unknown, _ = said.lower().partition("\N{OBJECT REPLACEMENT CHARACTER}")
            if unknown and any(head.startswith(known) and len(head) > len(known) for head in heads):
                return True
    return False


def is_computed(found: ShellVerdict) -> bool:
    """Say whether what runs cannot be told from the text, so that an answer can cover this call alone."""
    if any(key in (UNREADABLE, COMPUTED, *UNKNOWN_KEYS) or _COMPUTED_RULES.search(key) for key in found.keys):
        return True
    commands = list(_commands(found))
    return any(c.name in _MAKERS or (c.words and c.words[0].substituted) for c in commands)


def is_covered(found: ShellVerdict, allow: Sequence[str], *, confined: bool) -> bool:
    """Say whether the list covers every simple command of a line.

    Args:
        confined: a sandbox holds the line, so that its harmless commands need no entry.
    """
    barred = {OWN, UNREADABLE, COMPUTED, *UNKNOWN_KEYS}
    if not found.scripts or any(script.problem for script in found.scripts) or barred & set(found.keys):
        return False
    keys = set(allow)
    entries = [entry for text in allow for entry in _entries(text)]
    return all(_covers(script, found, keys, entries, confined) for script in found.scripts)


def _covers(script: ShellScript, found: ShellVerdict, keys: set[str], entries: list[_Entry], confined: bool) -> bool:
    named: set[str] = set()
    for command in script.commands:
        mine = {key for rule in RULES if (key := rule.key_for(command))}
        if _matches(command, entries) and not script.assigns:
            named |= mine
        elif mine:
            if not mine <= keys or not (confined or (_is_alone(command) and not script.assigns)):
                return False
        elif not confined:
            return False
    return bool(script.commands) and set(found.keys) <= keys | named


def _is_alone(command: ShellCommand) -> bool:
    """Say whether a command does nothing beside what its words say."""
    return all(not r.writes or r.target.text in _HARMLESS_TARGETS or r.target.text.isdigit() for r in command.redirects)


def _matches(command: ShellCommand, entries: list[_Entry]) -> bool:
    if command.redirects or command.heredoc or not all(w.is_known and not w.substituted for w in command.words):
        return False
    if any(word.sources for word in command.words) or not command.words:
        return False
    if command.before and (is_a(command.name, "shell") or is_a(command.name, "interpreter")):
        return False  # it runs what it reads
    text = _written(command)
    return any(
        command.via == entry.via
        and (not entry.program or command.words[0].text == entry.program)
        and fnmatchcase(text, entry.glob)
        for entry in entries
    )


def _entries(text: str) -> Iterator[_Entry]:
    """Yield the commands that an entry names: its own, and those that it runs (`sudo systemctl restart x*`)."""
    script = read_script(text)
    outer = [command for command in script.commands if not command.via]
    if script.problem or script.assigns or len(outer) != 1:
        return
    for command in script.commands:
        if not command.words or command.redirects or command.before:
            continue
        name = command.words[0].text
        wild = bool(_WILD & set(name)) or not command.words[0].is_known
        if wild and command.via:
            continue  # what a wrapper runs has to be named
        yield _Entry(command.via, _written(command), "" if wild else name)


def _written(command: ShellCommand) -> str:
    """Return the words in one line; a word with white space keeps its quotes."""
    texts = (word.text for word in command.words)
    return " ".join(shlex.quote(text) if not text or any(c.isspace() for c in text) else text for text in texts)


def _commands(found: ShellVerdict) -> Iterator[ShellCommand]:
    return (command for script in found.scripts for command in script.commands)
