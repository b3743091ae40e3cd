"""Commands within commands: programs with a syntax of their own, such as `find -exec` and `xargs`.

`nested_parts` is the entry. Programs that take a plain command line are rows of `programs.txt`.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from hermes_agent.policy.shell.outputs import DISK, output_of
from hermes_agent.policy.shell.programs import find_program, is_a, parse_arguments, split_subcommand
from hermes_agent.policy.shell.script import MOST, UNDETERMINED, UNKNOWN, NestedCode, ShellCommand, ShellWord, word_set

LONGEST = 100_000
"""Most characters of an argument that `xargs` fills in."""
Part = ShellCommand | str | NestedCode


def nested_parts(command: ShellCommand, below: tuple[ShellWord, ...] = ()) -> Iterator[Part]:
    """Yield the commands in the arguments of a program, and the texts that are scripts.

    Args:
        command: the command of the program.
        below: the words from its subcommand on; empty for the program itself.
    """
    maker = _MAKERS.get(f"{command.name}|{below[0].text}" if below else command.name)
    if maker is not None:
        yield from maker(command)
    elif not below and is_a(command.name, "shell"):
        yield from _shell(command)
    elif "--" in command.args and (below or not is_a(command.name, "interpreter")):
        words = command.words[2 + command.args.index("--") :]
        if words:
            yield inner_command(command, words)


def inner_command(command: ShellCommand, words: Iterable[ShellWord]) -> ShellCommand:
    """Return the command with these words that `command` runs."""
    return replace(command, words=tuple(words), via=(*command.via, command.name), marks=frozenset())


def _texts(words: Iterable[ShellWord]) -> str:
    return " ".join(word.text for word in words)


def _after(command: ShellCommand, letters: str) -> Iterator[int]:
    """Yield the index of the value of an option, also in a bundle: `-lc`."""
    for index, arg in enumerate(command.args[:-1]):
        if re.fullmatch(rf"[-+][A-Za-z]*[{letters}][A-Za-z]*", arg):
            yield index + 1
            return


def _shell(command: ShellCommand) -> Iterator[Part]:
    """Yield the script of `sh -c SCRIPT NAME ARGUMENTS`, with the arguments set."""
    args = list(command.args)
    for place in _after(command, "c"):
        while place < len(args) - 1 and args[place].startswith(("-", "+")):  # `sh -c -e SCRIPT`
            place += 2 if args[place] in ("-o", "-O", "+o", "+O") else 1
        script, rest = args[place], args[place + 2 :]
        if not rest and any(UNKNOWN in arg for arg in args[place + 1 :]):
            rest = [UNKNOWN]  # `xargs sh -c SCRIPT` may add any number of arguments
        yield f"(set -- {shlex.join(rest)}\n{script}\n)" if rest else script
        return
    program = find_program(command.name)
    operands = parse_arguments(command, program).operands if program is not None else ()
    operands = tuple(operand for operand in operands if operand[0].text != "-")
    if (
        not command.has_input
        and not operands
        and not command.has_flag("", "--version", "--help")
        and command.args != ("-n",)
    ):
        yield NestedCode(marks=frozenset({UNDETERMINED}))


def _find(command: ShellCommand) -> Iterator[Part]:
    words = command.words[1:]
    roots = list(itertools.takewhile(lambda w: not w.text.startswith(("-", "(", "!")), words)) or [ShellWord(".")]
    fd = command.name in ("fd", "fdfind")
    below = [w for w in words if w.text.startswith(("/", "~")) and "-exec" not in w.text] if fd else []
    roots = below[:1] if fd and below else roots
    for index, word in enumerate(words):
        if word.text in ("-exec", "-execdir", "-ok", "-okdir") or (
            fd and word.text in ("-x", "-X", "--exec", "--exec-batch")
        ):
            rest = list(words[index + 1 :])
            end = next((i for i, w in enumerate(rest) if w.text in (";", "+", "\\;")), len(rest))
            inner = rest[:end]
            if inner and inner[0].text == "{}":
                yield NestedCode(marks=frozenset({UNDETERMINED}))  # it runs what it finds
            for place in [i for i, w in enumerate(inner) if w.text == "{}"][:1]:  # one place is enough for a verdict
                inner[place : place + 1] = roots
            inner = [w._replace(text=w.text.replace("={}", f"={roots[0].text}")) for w in inner]
            if fd and inner and not any("{" in w.text or w in roots for w in inner[1:]):
                inner += (roots if below else roots[1:]) or [ShellWord(".")]
            if inner:
                found = inner_command(command, inner)
                every = (
                    output_of(replace(command, words=command.words[: index + 1])) is not None
                )  # no test leaves any out
                if every and found.name in ("chmod", "chown", "chgrp") and not found.has_flag("R"):
                    found = replace(found, words=(found.words[0], ShellWord("-R"), *found.words[1:]))
                yield replace(found, via=(*command.via, "find -exec"))


def _awk(command: ShellCommand) -> Iterator[Part]:
    """Yield the values of `-v NAME=VALUE` where the code runs commands."""
    if re.search(r"\bsystem\b|getline|\|", command.text):
        for before, value in itertools.pairwise(command.args):
            if before in ("-v", "--assign") and " " in value:
                yield value.partition("=")[2]


def _bare(command: ShellCommand) -> Iterator[Part]:
    """Yield the command of `exec`, `command` and the like."""
    if command.name == "command" and command.has_flag("vV"):
        return
    words = list(command.words[1:])
    while words and words[0].text.startswith("-"):
        if words.pop(0).text == "-a" and words:
            words.pop(0)
    if command.name == "coproc" and any(w.text == "{" for w in words[:2]):
        words = words[2 if words[0].text != "{" else 1 :]
    if words:
        yield inner_command(command, words)


def _eval(command: ShellCommand) -> Iterator[Part]:
    yield " ".join(command.args)


def _trap(command: ShellCommand) -> Iterator[Part]:
    args = command.args[1:] if command.args[:1] == ("--",) else command.args
    if len(args) > 1 and args[0] != "-":
        yield args[0]


def _login(command: ShellCommand) -> Iterator[Part]:
    """Yield the shell of `sudo -s`, `sudo -i` and `su` when it has input."""
    program = find_program(command.name)
    operands = parse_arguments(command, program).operands if program is not None else ()
    shell = command.name == "su" or (command.has_flag("si", "--shell", "--login") and not operands)
    if command.has_input and shell and not command.has_flag("c", "--command"):
        yield inner_command(command, [ShellWord("bash")])
    elif "--" in command.args and operands:
        yield inner_command(command, command.words[2 + command.args.index("--") :])


def _whole(command: ShellCommand) -> Iterator[Part]:
    """Yield the command after the program's own operands; a single word is a shell script."""
    program = find_program(command.name)
    own = {"flock": 1}.get(command.name, 0)
    operands = parse_arguments(command, program).operands if program is not None else ()
    if len(operands) > own:
        words = command.words[1 + operands[own][1] :]
        yield words[0].text if len(words) == 1 else inner_command(command, words)


def _xargs(command: ShellCommand) -> Iterator[Part]:
    """Yield the command lines of `xargs` and `parallel`, with `UNKNOWN` for unknown arguments."""
    words, valued = list(command.words[1:]), "InLPsadEjJ"
    while words and words[0].text.startswith("-"):
        text = words.pop(0).text
        if text == "--":
            break
        long = text in ("--max-args", "--max-procs", "--delimiter", "--arg-file", "--jobs", "--max-lines")
        if (long or (not text.startswith("--") and text[-1] in valued and len(text) == 2)) and words:
            words.pop(0)
    if command.name.endswith("parallel"):
        yield from _parallel(command, words)
    elif words:
        if len(words) == 1 and is_a(inner_command(command, words).name, "shell"):
            yield NestedCode(marks=frozenset({UNDETERMINED}))
        yield from (inner_command(command, line) for line in _filled_in(command, words))


def _parallel(command: ShellCommand, words: list[ShellWord]) -> Iterator[Part]:
    cut = next((i for i, w in enumerate(words) if w.text.startswith(":::")), len(words))
    inner, given = words[:cut], [w for w in words[cut:] if not w.text.startswith(":::")]
    if not words:
        yield command.stdin or NestedCode(marks=frozenset({UNDETERMINED}))
    elif not given and " " not in inner[0].text:
        yield from (inner_command(command, line) for line in _filled_in(command, inner))
    elif len(inner) == 1 and not given:
        yield inner[0].text
    elif any("{}" in w.text for w in inner):
        for value in [w.text for w in given[:MOST]] or [UNKNOWN]:
            yield _texts(w._replace(text=_filled(w.text, "{}", value)) for w in inner)
    elif inner or given:
        yield _texts([*inner, *given]) if inner and " " in inner[0].text else inner_command(command, [*inner, *given])
        if not inner:
            yield from (value.text for value in given[:MOST])


def _filled_in(command: ShellCommand, words: list[ShellWord]) -> Iterator[list[ShellWord]]:
    own = replace(command, words=command.words[: -len(words)])
    files = (b for a, b in itertools.pairwise(own.words) if a.text in ("-a", "--arg-file") and b.sources)
    stdin = command.stdin or next((output_of(b.sources[-1]) for b in files), "") or ""
    given = (
        stdin.split("\0")
        if own.has_flag("0", "--null")
        else stdin.split("\n" if own.has_flag("d", "--delimiter") else None)
    )
    args = [*own.args, ""]
    mark = next((b if a == "-I" else a[2:] for a, b in itertools.pairwise(args) if a.startswith("-I")), "")
    given = stdin.splitlines() if mark and not own.has_flag("0", "--null") else given
    known = (
        [part.strip("\n") for part in given if part.strip()] if UNKNOWN not in stdin or stdin.strip() == DISK else []
    )
    if mark or own.has_flag("i", "--replace") or any("{}" in w.text for w in words):
        for part in known[:MOST] or [UNKNOWN]:
            yield [w._replace(text=_filled(w.text, mark or "{}", part)) for w in words]
    else:
        yield [*words, *map(ShellWord, known or [UNKNOWN])]


def _filled(text: str, mark: str, part: str) -> str:
    return text.replace(mark, part) if text.count(mark) * len(part) <= LONGEST else UNKNOWN


def _ssh(command: ShellCommand) -> Iterator[Part]:
    words, valued = list(command.words[1:]), "BbcDEeFIiJLlmOopQRSWw"
    while words and words[0].text.startswith("-"):
        option = words.pop(0).text
        if option[-1] in valued and len(option) == 2 and words:
            option += words.pop(0).text
        if match := re.match(r"-o\s*(?:Proxy|Local|KnownHosts)Command[=\s]+(.+)", option, re.IGNORECASE | re.DOTALL):
            yield match[1]
    if len(words) > 1:
        text = _texts(words[1:])
        plain = command.stdin is not None and not set(text) & set("'\"\\$`;|&<>(){}\n")
        yield inner_command(command, map(ShellWord, text.split())) if plain else text
    elif command.stdin is not None:
        yield command.stdin


def _tmux(command: ShellCommand) -> Iterator[Part]:
    """Yield the commands of `tmux new -d -s NAME COMMAND`, `tmux send-keys TEXT`, `tmux run-shell TEXT`."""
    words, _ = split_subcommand(command)
    for _, group in itertools.groupby(words, lambda w: w.text in (";", "\\;")):
        part = list(group)
        verb, rest = part[0].text, part[1:]
        if verb in ("send-keys", "send", "set-buffer"):
            keys = rest[2:] if rest[:1] and rest[0].text == "-t" else rest
            yield " ".join(w.text for w in keys if w.text not in ("Enter", "C-m", "-l"))
        while rest and rest[0].text.startswith("-"):
            if rest.pop(0).text[-1] in "ceFflnstxytb" and rest and not rest[0].text.startswith("-"):
                rest.pop(0)
        if verb in ("new", "new-session", "neww", "new-window", "splitw", "split-window", "respawn-pane", "popup") or (
            verb in ("run", "run-shell", "if", "if-shell", "display-popup", "pipe-pane", "respawn-window", "respawnp")
        ):
            yield _texts(rest)


def _scheduled(command: ShellCommand) -> Iterator[Part]:
    """Yield the script that `at` and `batch` run later."""
    if command.stdin:
        yield command.stdin


def _crontab(command: ShellCommand) -> Iterator[Part]:
    for line in (command.stdin or "").splitlines():
        if match := re.match(r"\s*(?:@\w+|(?:\S+\s+){5})\s*(.+)", line):
            yield match[1]


_PLAIN = re.compile(r"-[itdTP]+$|--(?:rm|privileged|init|read-only|detach|interactive|tty)$")
"""Options of container engines that take no value."""
_BIND = re.compile(r"(?:--volume=|-v)?(/[^:,]*|~[^:,]*):(/[^:,]*)")
_MOUNT = re.compile(r"(?=.*\b(?:source|src)=([^,]+))(?=.*\b(?:target|dst|destination)=([^,]+))")


def _container(command: ShellCommand) -> Iterator[Part]:
    """Yield the command in a running container, or in one with files of this machine, as if local."""
    words, _ = split_subcommand(command)
    words = words[1:] if words and words[0].text in ("container", "compose") else words
    verb, rest = words[0].text if words else "", list(words[1:])
    if verb not in ("exec", "run", "create"):
        return
    while rest and rest[0].text.startswith("-"):
        text = rest.pop(0).text
        if not _PLAIN.match(text) and "=" not in text and not re.match(r"-[a-z].+:", text) and rest:
            rest.pop(0)
    own = rest[1:]
    if not own or (len(own) == 1 and is_a(own[0].text.rpartition("/")[2], "shell")):
        return
    binds = [m.groups() for w in words if (m := _BIND.match(w.text) or _MOUNT.match(w.text))]
    whole = verb == "exec" or any(w.text == "--privileged" for w in words) or any(a in ("/", "/dev") for a, _ in binds)
    if whole:
        yield inner_command(command, own)
    for outside, inside in binds:
        pattern = re.compile(re.escape(inside.rstrip("/")) + r"(?=/|\s|$|['\"*])")
        to = (outside.rstrip("/") or "/").replace("\\", "\\\\")
        local = [word._replace(text=pattern.sub(to, word.text)) for word in own]
        if inside != "/" and local != own:
            yield inner_command(command, [word._replace(text=word.text.replace("//", "/")) for word in local])


def _node(command: ShellCommand) -> Iterator[Part]:
    """Yield the command of `kubectl debug node/N -- COMMAND`; `/host` is the root of the node."""
    if "--" in command.args:
        words = command.words[2 + command.args.index("--") :]
        local = [w._replace(text=re.sub(r"(?<![\w/.])/host(?=/|\s|$)/?", "/", w.text)) for w in words]
        yield from (inner_command(command, words), inner_command(command, local)) if words else ()


_ENDS = re.compile(r"(?:[\w.]+\.)?(?:reboot|shutdown|poweroff|halt|win_reboot)$")


def _managed(command: ShellCommand) -> Iterator[Part]:
    """Yield commands equal to modules of `ansible` and functions of `salt`, such as a deletion."""
    pairs = dict(itertools.pairwise(command.args))
    named = {n: v for arg in command.args for n, v in re.findall(r"(\w+)=(\S+)", arg)}
    function = pairs.get("-m") or pairs.get("--module-name") or ""
    if command.name.startswith("salt"):
        function = next((a for a in command.args if re.fullmatch(r"[a-z_]+\.[a-z_]+", a) and a != "state.single"), "")
        if function in ("file.remove", "file.rmdir"):
            yield inner_command(command, [ShellWord("rm"), ShellWord("-rf"), ShellWord(pairs.get(function, ""))])
        elif function == "cmd.run":
            yield next((a[5:] for a in command.args if a.startswith("name=")), pairs.get(function, ""))
    path = named.get("path") or named.get("dest") or named.get("name") or ""
    if path and (named.get("state") == "absent" or function == "file.absent"):
        yield inner_command(command, [ShellWord("rm"), ShellWord("-rf"), ShellWord(path)])
    if _ENDS.match(function):
        yield inner_command(command, [ShellWord("reboot")])


def _nix(command: ShellCommand) -> Iterator[Part]:
    """Yield the command in a shell of nix: `nix develop -c COMMAND`, `nix-shell --run SCRIPT`."""
    for index, arg in enumerate(command.args):
        if command.name == "nix-shell" and arg in ("--run", "--command"):
            yield from command.args[index + 1 : index + 2]
        elif command.name == "nix" and arg == "--" and command.args[0] == "run":
            package = next((a for a in command.args[1:index] if not a.startswith("-")), "")
            yield inner_command(command, [ShellWord(re.split(r"[#/]", package)[-1]), *command.words[index + 2 :]])
            return
        elif command.name == "nix" and arg in ("-c", "--command"):
            if command.words[index + 2 :]:
                yield inner_command(command, command.words[index + 2 :])
            return


def _git(command: ShellCommand) -> Iterator[Part]:
    """Yield the commands of `bisect run`, `submodule foreach`, `config` and aliases."""
    words, aliases = split_subcommand(command)
    verb, rest = words[0].text if words else "", list(words[1:])
    if verb in aliases and not aliases[verb].startswith("!"):
        yield inner_command(command, [ShellWord("git"), *map(ShellWord, aliases[verb].split()), *rest])
    operands = [w for w in rest if not w.text.startswith("-")]
    yield from (w.text[5:].replace("% ", " ").replace("%%", "%") for w in operands if w.text.startswith("ext::"))
    if verb == "bisect" and operands[:1] and operands[0].text == "run" and operands[1:]:
        yield inner_command(command, operands[1:2] + rest[rest.index(operands[1]) + 1 :])
    elif verb == "submodule" and operands[:1] and operands[0].text == "foreach":
        yield _texts(operands[1:])
    elif verb == "config" and len(operands) > 1:
        operands = operands[1:] if operands[0].text in ("set", "add") else operands
        setting = ShellWord(f"{operands[0].text}={_texts(operands[1:])}")
        yield inner_command(command, [ShellWord("git"), ShellWord("-c"), setting, ShellWord("status")])
    elif verb == "for-each-repo" or verb == "worktree-run":
        yield _texts(operands)


def _daemon(command: ShellCommand) -> Iterator[Part]:
    """Yield the program of `start-stop-daemon -S -x PROGRAM -- ARGUMENTS`."""
    args = command.args
    for before, value in itertools.pairwise(args):
        if before in ("-x", "--exec", "-a", "--startas"):
            rest = command.words[2 + args.index("--") :] if "--" in args else ()
            yield inner_command(command, [ShellWord(value), *rest])


def _cmake(command: ShellCommand) -> Iterator[Part]:
    args = command.args
    if args[:1] == ("-E",) and args[1:2] in (("env",), ("time",), ("chdir",)):
        words = list(itertools.dropwhile(lambda w: "=" in w.text or w.text.startswith("--"), command.words[3:]))
        words = words[1:] if args[1] == "chdir" else words
        if words:
            yield inner_command(command, words)
    elif args[:2] in (("-E", "rm"), ("-E", "remove_directory"), ("-E", "remove")):
        yield inner_command(command, [ShellWord("rm"), ShellWord("-rf"), *command.words[3:]])


def _bwrap(command: ShellCommand) -> Iterator[Part]:
    """Yield the command of `bwrap`, after options with none, one or two arguments."""
    words = list(command.words[1:])
    while words and words[0].text.startswith("--"):
        option = words.pop(0).text
        two = re.match(r"--(?:(?:ro-|dev-)?bind|symlink|setenv|file|bind-data|ro-bind-data|chmod|overlay)", option)
        none = re.match(r"--(?:unshare|share|new|die|clearenv|as-pid|disable|assert|$)", option)
        del words[: 2 if two else 0 if none else 1]
    if words:
        yield inner_command(command, words)


def _capsh(command: ShellCommand) -> Iterator[Part]:
    """Yield the shell that `--` starts."""
    for mark in ("--", "-+"):
        if mark in command.args:
            yield inner_command(command, [ShellWord("bash"), *command.words[2 + command.args.index(mark) :]])


def _compiler(command: ShellCommand) -> Iterator[Part]:
    for before, value in itertools.pairwise(command.args):
        if before == "-wrapper":
            yield " ".join(value.split(","))


def _csvtool(command: ShellCommand) -> Iterator[Part]:
    if command.args[:1] == ("call",):
        yield from command.args[1:2]


def _nc(command: ShellCommand) -> Iterator[Part]:
    for arg in command.args if command.name == "socat" else ():
        if match := re.match(r"(?i)(?:exec|system|shell):([^,]+)", arg):
            yield match[1].strip("'\"")


def _make(command: ShellCommand) -> Iterator[Part]:
    """Mark a makefile that is read from an unknown input."""
    for before, value in itertools.pairwise(("", *command.args)):
        if before in ("-f", "--file") and value in ("-", "/dev/stdin") and command.stdin is None:
            yield NestedCode(marks=frozenset({UNDETERMINED}) if not command.before else frozenset())


_PUBLISHERS = word_set("python-programs")
"""Modules of Python that `python -m` runs as programs with power."""


def _module(command: ShellCommand) -> Iterator[Part]:
    """Yield the code that `python -m MODULE` runs; mark modules that use the network."""
    for before, value in itertools.pairwise(command.args):
        if before == "-m" and value in ("timeit", "trace", "pdb", "cProfile", "profile", "code"):
            rest = [a for a in command.args[command.args.index(value) + 1 :] if not a.startswith("-")]
            if value in ("timeit",):
                yield inner_command(command, [command.words[0], ShellWord("-c"), ShellWord("\n".join(rest))])
        elif before == "-m" and value in _PUBLISHERS:
            yield inner_command(command, [ShellWord(value), *command.words[2 + command.args.index(value) :]])
        elif before == "-m" and value in (
            "http.server",
            "smtpd",
            "telnetlib",
            "ftplib",
            "ensurepip",
            "webbrowser",
        ):
            yield NestedCode(marks=frozenset({"network"}))


_MAKERS: dict[str, Callable[[ShellCommand], Iterator[Part]]] = {
    **dict.fromkeys(("exec", "command", "builtin", "coproc"), _bare),
    "eval": _eval,
    "trap": _trap,
    **dict.fromkeys(("sudo", "su"), _login),
    **dict.fromkeys(("flock", "screen", "entr"), _whole),
    **dict.fromkeys(("xargs", "gxargs", "parallel", "env_parallel"), _xargs),
    **dict.fromkeys(("find", "gfind", "fd", "fdfind"), _find),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    **dict.fromkeys(("tmux", "tmate", "byobu"), _tmux),
    **dict.fromkeys(("at", "batch"), _scheduled),
    "crontab": _crontab,
    **dict.fromkeys(("ssh", "autossh", "dbclient", "slogin", "mosh", "pdsh", "clush"), _ssh),
    **dict.fromkeys(("docker", "podman", "nerdctl"), _container),
    **dict.fromkeys(("nix", "nix-shell"), _nix),
    "git": _git,
    **dict.fromkeys(("kubectl|debug", "oc|debug"), _node),
    **dict.fromkeys(("ansible", "salt", "salt-call"), _managed),
    "cmake": _cmake,
    "start-stop-daemon": _daemon,
    "bwrap": _bwrap,
    "capsh": _capsh,
    **dict.fromkeys(("gcc", "g++", "cc", "c++", "clang", "clang++", "c89", "c99", "cpp", "gfortran"), _compiler),
    "csvtool": _csvtool,
    **dict.fromkeys(("nc", "ncat", "netcat", "socat"), _nc),
    "make": _make,
    **dict.fromkeys(("python", "python3", "pypy"), _module),
}
