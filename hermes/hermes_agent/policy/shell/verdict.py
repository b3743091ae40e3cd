"""The verdict on a shell command: refuse, ask, or run; and which lists of the operator cover it.

`judge` is the entry. `is_covered` decides about `command_allowlist`: each parsed command needs an entry that names it.
An entry is the key of a dangerous pattern, or a glob for one simple command. What a wrapper runs (`sudo make`) needs an
entry that names both. Nothing covers a command that cannot be analysed, is computed while it runs, or changes the
agent's own rules.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.policy.command_patterns import CommandPattern, CommandPatterns
from hermes_agent.policy.shell.parser import read_script
from hermes_agent.policy.shell.paths import resolve_place
from hermes_agent.policy.shell.programs import is_a, spellings
from hermes_agent.policy.shell.rules import HARDLINE, RULES
from hermes_agent.policy.shell.rules.processes import FORK_BOMB, OWN
from hermes_agent.policy.shell.rules.remote import (
    COMPUTED,
    DOWNLOADED,
    PROGRAM,
    SOURCING,
    UNKNOWN_KEYS,
    download_targets,
    is_unknown,
)
from hermes_agent.policy.shell.rules.services import NEW_REMOTE, git_remotes
from hermes_agent.policy.shell.script import NETWORK, ShellCommand, ShellScript, fold, fold_names

UNREADABLE = "a command that cannot be analysed"
"""Key of a text that cannot be parsed; the user must decide."""
_CONTINUED = re.compile(r"(?<=\S)\\\n(?=\S)")
"""A line continuation within a word."""
_IF_SET = re.compile(r"\{\w+:?\+")
"""An expansion that has a text only if a variable is set: `${x:+-rf}`."""
RUN_AFTER_CHMOD = "chmod +x followed by immediate execution"
_COMPUTED_RULES = re.compile(
    r"obfuscation|remote content|remote script|encoded command|followed by immediate execution"
)
"""Keys of commands that run code which was not judged."""
_MAKERS = frozenset({"eval", "source", "."})
_WILD = frozenset("*?[")
_HARMLESS_TARGETS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})


class ShellVerdict(LazyNamedTuple):
    """The verdict on a command."""

    hardline: str = ""
    """Why the command never runs; empty when it may run."""
    keys: tuple[str, ...] = ()
    """Why the user must be asked, most important first; empty when the command is harmless."""
    problem: str = ""
    """Why the command could not be analysed; then `UNREADABLE` is among the keys."""
    scripts: tuple[ShellScript, ...] = ()
    """The parsed variants of the text that were judged."""
    network: bool = False
    """Whether one of its commands uses the network."""

    @property
    def is_dangerous(self) -> bool:
        """Whether the command needs a decision."""
        return bool(self.hardline or self.keys)

    @property
    def is_unknown(self) -> bool:
        """Whether the command is neither known to be dangerous nor to be harmless."""
        return not self.hardline and bool(self.keys) and all(map(is_unknown, self.keys))


def judge(
    text: str, added: CommandPatterns | None = None, *, also: Sequence[str] = (), guessed: bool = False
) -> ShellVerdict:
    """Judge a shell command from its text alone. Never raises.

    Args:
        text: the command.
        added: additional patterns of plugins.
        also: other spellings of the same command.
        guessed: the text may not be a command, so that its words do not count as unknown programs.
    """
    joined = (_CONTINUED.sub("", text),) if "\\\n" in text else ()
    variants = dict.fromkeys((text, *joined, fold(text), fold_names(fold(text)), *also))
    scripts = [read_script(variant, guessed=guessed) for variant in variants]
    scripts += [read_script(variant, guessed=guessed, unset=True) for variant in variants if _IF_SET.search(variant)]
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
    """Return the texts in which patterns are searched: as written, and each command as parsed."""
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
        places = [resolve_place(command, text) for text in run]
        if any(place == path or place.startswith(f"{path}/") for place in places for path in fetched):
            return True
    return False


def _is_run(program: str, executables: set[str], names: set[str]) -> bool:
    """Return whether a program is one of the files, or has one of their names (`./name`)."""
    return posixpath.normpath(program) in executables or (program.startswith("./") and program[2:] in names)


def _runs_what_it_made_executable(script: ShellScript) -> bool:
    executables, names = set[str](), set[str]()
    for command in script.commands:
        if command.name == "chmod" and any("x" in o or o.isdigit() for o in (*command.operands[:1], *command.args[:1])):
            executables |= {posixpath.normpath(operand) for operand in command.operands}
            names |= {posixpath.basename(operand) for operand in executables}
        elif (command.words and _is_run(command.words[0].text, executables, names)) or (
            command.name in ("sh", "bash", "zsh") and executables & {posixpath.normpath(o) for o in command.operands}
        ):
            return True
    return False


class _Entry(LazyNamedTuple):
    """A simple command that an entry of `command_allowlist` names."""

    via: tuple[str, ...]
    glob: str
    program: str


def matching_rule(found: ShellVerdict, texts: Sequence[str], globs: Sequence[str]) -> str:
    """Return the first glob that matches a text or one of its commands; empty when none does."""
    known = {" ".join(text.split()).lower() for text in texts}
    known |= {" ".join(text.split()).lower() for command in _commands(found) for text in spellings(command)}
    return next((glob for glob in globs if any(fnmatchcase(text, glob.lower()) for text in known)), "")


def is_uncertain(found: ShellVerdict, globs: Sequence[str]) -> bool:
    """Return whether an unknown part of a command may match a glob: `git $WHAT` and `git push*`."""
    heads = [re.split(r"[*?\[]", glob.lower(), maxsplit=1)[0] for glob in globs]
    for command in _commands(found):
        for spelling in spellings(command):
            known, unknown, _ = spelling.lower().partition("\N{OBJECT REPLACEMENT CHARACTER}")
            if unknown and any(head.startswith(known) and len(head) > len(known) for head in heads):
                return True
    return False


def is_computed(found: ShellVerdict) -> bool:
    """Return whether the text does not show what runs, so that an answer covers this call only."""
    if any(key in (UNREADABLE, COMPUTED, *UNKNOWN_KEYS) or _COMPUTED_RULES.search(key) for key in found.keys):
        return True
    commands = list(_commands(found))
    return any(c.name in _MAKERS or (c.words and c.words[0].substituted) for c in commands)


def is_covered(found: ShellVerdict, allow: Sequence[str], *, confined: bool) -> bool:
    """Return whether the list covers every simple command of a line.

    Args:
        found: the verdict on the line.
        allow: the entries of the list.
        confined: a sandbox confines the line, so that its harmless commands need no entry.
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
        command_keys = {key for rule in RULES if (key := rule.key_for(command))}
        if _matches(command, entries) and not script.assigns:
            named |= command_keys
        elif command_keys:
            if not command_keys <= keys or not (confined or (_is_alone(command) and not script.assigns)):
                return False
        elif not confined:
            return False
    return bool(script.commands) and set(found.keys) <= keys | named


def _is_alone(command: ShellCommand) -> bool:
    """Return whether a command writes no file through redirects."""
    return all(not r.writes or r.target.text in _HARMLESS_TARGETS or r.target.text.isdigit() for r in command.redirects)


def _matches(command: ShellCommand, entries: list[_Entry]) -> bool:
    if command.redirects or command.heredoc or not all(w.is_known and not w.substituted for w in command.words):
        return False
    if any(word.sources for word in command.words) or not command.words:
        return False
    if command.before and (is_a(command.name, "shell") or is_a(command.name, "interpreter")):
        return False  # it runs its input
    text = _written(command)
    return any(
        command.via == entry.via
        and (not entry.program or command.words[0].text == entry.program)
        and fnmatchcase(text, entry.glob)
        for entry in entries
    )


def _entries(text: str) -> Iterator[_Entry]:
    """Yield the commands that an entry names: its own, and those that it runs (`sudo systemctl …`)."""
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
            continue  # what a wrapper runs must be named
        yield _Entry(command.via, _written(command), "" if wild else name)


def _written(command: ShellCommand) -> str:
    """Return the words in one line, with quotes around words with white space."""
    texts = (word.text for word in command.words)
    return " ".join(shlex.quote(text) if not text or any(c.isspace() for c in text) else text for text in texts)


def _commands(found: ShellVerdict) -> Iterator[ShellCommand]:
    return (command for script in found.scripts for command in script.commands)
