"""Rules about files: deletion, permissions, disks, and files on which other things depend."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from hermes_agent.policy.shell.paths import (
    is_block_device,
    is_hermes_config,
    is_home,
    is_project_env,
    is_root,
    is_sensitive,
    is_system,
    is_system_directory,
    is_temporary,
    resolve_place,
)
from hermes_agent.policy.shell.programs import (
    Arguments,
    ProgramEffect,
    find_program,
    is_a,
    is_harmless_use,
    parse_arguments,
)
from hermes_agent.policy.shell.script import ShellCommand, ShellRule

_FEEDERS = frozenset({"xargs", "gxargs", "parallel", "env_parallel", "rush", "sem"})
"""Programs that run a command for each line that they read."""
REMOVERS = frozenset({"rm", "unlink", "shred", "srm", "grm", "wipe"})


def deletes(command: ShellCommand) -> bool:
    """Return whether a command deletes files."""
    return command.name in REMOVERS


def _recursive(command: ShellCommand) -> bool:
    return command.name in ("rm", "grm", "srm") and command.has_flag("rR")


def _recursive_long(command: ShellCommand) -> bool:
    return command.name in ("rm", "grm", "srm") and command.has_flag("", "--recursive") and not command.has_flag("rR")


def _in_root_path(command: ShellCommand) -> bool:
    places = [resolve_place(command, operand) for operand in command.operands]
    return deletes(command) and any(p.startswith("/") and not is_temporary(p) for p in places)


def _for_each_found(command: ShellCommand) -> bool:
    """Return whether a loop runs a command for each file that `find` prints."""
    return any(c.name in ("find", "gfind", "fd", "fdfind", "locate", "rg", "grep") for c in command.before)


def _windows(command: ShellCommand) -> bool:
    text = command.text.lower()
    return command.name.lower() in ("del", "erase", "rd", "rmdir", "cmd", "cmd.exe") and bool(
        re.search(r"\b(?:del|erase|rd|rmdir)\b.*\s/[sqf]\b", text)
    )


def _powershell(command: ShellCommand) -> bool:
    text = command.text.lower()
    known = command.name.lower() in ("remove-item", "ri", "powershell", "powershell.exe", "pwsh")
    return known and bool(re.search(r"\b(?:remove-item|ri|rm|del)\b.*-(?:recurse|r|force|fo)\b", text))


def _credentials(command: ShellCommand) -> bool:
    return deletes(command) and any(is_sensitive(resolve_place(command, operand)) for operand in command.operands)


def _mirrors(command: ShellCommand) -> bool:
    return (
        command.name == "rsync"
        and any(a.startswith("--del") for a in command.args)
        and not command.has_flag("n", "--dry-run")
    )


def _to_nowhere(command: ShellCommand) -> bool:
    return command.name in ("mv", "gmv") and command.operands[-1:] == ("/dev/null",)


def _find_delete(command: ShellCommand) -> bool:
    return command.name in ("find", "fd") and "-delete" in command.args


def _statements(command: ShellCommand) -> str:
    """Return the statements for an SQL client."""
    if not is_a(command.name, "sql"):
        return ""
    return " ".join([command.text, command.stdin or ""])


def _drop(command: ShellCommand) -> bool:
    pattern = r"(?is)\bdrop\s+(?:table|database|schema|view|index|user|role|column|materialized|keyspace|tablespace)\b"
    if command.name in ("dropdb", "dropuser") or (command.name == "mysqladmin" and "drop" in command.operands):
        return True
    if command.name == "redis-cli":
        return bool(
            re.search(
                r"(?i)\bflush(?:all|db)\b|\bconfig\s+set\b|\b(?:shutdown|swapdb|replicaof|slaveof)\b",
                " ".join([command.text, command.stdin or ""]),
            )
        )
    if command.name in ("mongo", "mongosh"):
        return bool(
            re.search(r"\.(?:dropDatabase|drop|(?:deleteMany|remove)\(\s*\{\s*\})", f"{command.text} {command.stdin}")
        )
    return bool(re.search(pattern, _without_literals(_statements(command))))


def _without_literals(text: str) -> str:
    """Return statements without quoted text, unless one of them runs it."""
    runs = re.search(r"(?i)\b(?:execute|exec|do|prepare|call)\b", text)
    return text if runs or text.count("'") % 2 else re.sub(r"'[^']*'", "''", text)


def _changes_rights(command: ShellCommand) -> bool:
    """Return whether a statement gives or takes rights in a database."""
    return bool(re.search(r"(?is)\b(?:grant|revoke)\b.{1,200}\b(?:to|from)\b", _without_literals(_statements(command))))


def _delete_all(command: ShellCommand) -> bool:
    found = re.findall(r"(?is)\bdelete\s+from\s+[^;]*", _without_literals(_statements(command)))
    return any(not re.search(r"(?i)\bwhere\b", statement) for statement in found)


def _update_all(command: ShellCommand) -> bool:
    found = re.findall(r"(?is)\bupdate\s+[\w.\"`]+\s+set\s+[^;]*", _without_literals(_statements(command)))
    return any(not re.search(r"(?i)\b(?:where|from|returning)\b", statement) for statement in found)


def _wipes_traces(command: ShellCommand) -> bool:
    """Return whether the history of a shell or a log of the system is emptied."""
    if command.name == "history":
        return command.has_flag("c")
    if command.name == "unset":
        return any(operand.startswith("HISTFILE") for operand in command.operands)
    emptied = [resolve_place(command, r.target.text) for r in command.redirects if r.operator in (">", ">|", "&>")]
    if command.name == "ln" and command.operands[:1] == ("/dev/null",):
        emptied += [resolve_place(command, operand) for operand in command.operands[1:]]
    if command.name in ("dd", "cp", "install", "tee"):
        emptied += [*write_targets(command), copy_target(command), *tee_targets(command)]
    emptied += (
        [resolve_place(command, o) for o in command.operands] if deletes(command) or command.name == "truncate" else []
    )
    return any(re.match(r"/var/log/", path) or re.search(r"/\.\w*_history$", path) for path in emptied)


def _truncate(command: ShellCommand) -> bool:
    return bool(re.search(r"(?is)\btruncate\s+(?:table\s+)?\w", _without_literals(_statements(command))))


DELETION_RULES = (
    ShellRule("xargs with rm", lambda c: deletes(c) and (bool(_FEEDERS & set(c.via)) or _for_each_found(c))),
    ShellRule("find -exec/-execdir rm", lambda c: deletes(c) and "find -exec" in c.via),
    ShellRule("find -delete", _find_delete),
    ShellRule("recursive delete", _recursive),
    ShellRule("recursive delete (long flag)", _recursive_long),
    ShellRule("delete in root path", _in_root_path),
    ShellRule("delete of credentials or shell start files", _credentials),
    ShellRule("delete beyond recovery (shred)", lambda c: c.name in ("shred", "srm", "wipe") and bool(c.operands)),
    ShellRule("delete what the source lacks (rsync --delete)", _mirrors),
    ShellRule("move to /dev/null", _to_nowhere),
    ShellRule("Windows cmd destructive delete", _windows),
    ShellRule("Windows PowerShell destructive delete", _powershell),
    ShellRule("SQL DROP", _drop),
    ShellRule("SQL DELETE without WHERE", _delete_all),
    ShellRule("SQL TRUNCATE", _truncate),
    ShellRule("SQL GRANT or REVOKE", _changes_rights),
    ShellRule("SQL UPDATE without WHERE", _update_all),
    ShellRule("wipe a history or a log of the system", _wipes_traces),
)


Place = Callable[[str], bool]
COPIERS = frozenset({"cp", "mv", "install", "ln", "rsync", "scp", "ditto", "gcp", "gmv"})
EDITORS = ("sed", "gsed", "ssed")


def write_targets(command: ShellCommand) -> Iterator[str]:
    """Yield the files that redirects write, and those that options name (`curl -o`)."""
    for redirect in command.redirects:
        if redirect.writes and not redirect.target.text.isdigit():
            yield resolve_place(command, redirect.target.text)
    if command.name == "truncate":
        yield from (resolve_place(command, operand) for operand in command.operands)
    elif (program := find_program(command.name)) is not None and program.has("writes"):
        given = parse_arguments(command, program)
        slots = (slot for effect in program.effects if effect.kind == "writes" for slot in effect.slots)
        yield from (resolve_place(command, value) for slot in slots for value in given.values(slot) if value != "-")


def copy_target(command: ShellCommand) -> str:
    """Return the target of `cp`, `mv` and the like; empty for other commands."""
    if command.name not in COPIERS or not command.operands:
        return ""
    for index, arg in enumerate(command.args[:-1]):
        bundled = command.name not in ("rsync", "scp") and re.match(r"-[A-Za-z]*t$", arg)
        if arg in ("-t", "--target-directory") or bundled:
            return resolve_place(command, command.args[index + 1])
    given = next((a.partition("=")[2] for a in command.args if a.startswith("--target-directory=")), "")
    return resolve_place(command, given or command.operands[-1]) if given or len(command.operands) > 1 else ""


def tee_targets(command: ShellCommand) -> Iterator[str]:
    """Yield the files that `tee` writes."""
    if command.name == "tee":
        yield from (resolve_place(command, operand) for operand in command.operands)


def _mode_opens(command: ShellCommand) -> bool:
    for operand in command.operands[:1] if command.name == "chmod" else ():
        if re.fullmatch(r"[0-7]{3,5}", operand):
            return bool(int(operand[-1]) & 2)
        return any(
            re.match(r"(?:[ugo]*[oa][ugoa]*|)[+=][rwxXst]*w", clause)
            and not re.match(r"[ug]+[+=]", clause)
            and bool(re.match(r"[ugoa]*[oa]|[+=]", clause))
            for clause in operand.split(",")
        )
    for arg in command.args if command.name == "chmod" else ():
        if re.fullmatch(r"-?[augo]*[oa][augo]*\+[rwx]*w[rwx]*", arg):
            return True
    return False


def _sets_id(command: ShellCommand) -> bool:
    return command.name == "chmod" and any(
        (re.fullmatch(r"0?[2-7][0-7]{3}", o) and int(o.lstrip("0")[0]) & 6) or re.search(r"[ug]*\+[rwxX]*s", o)
        for o in command.operands[:1]
    )


def _opens_by_list(command: ShellCommand) -> bool:
    return command.name == "setfacl" and any(re.search(r"\b(?:o|other)::?[rx-]*w", a) for a in command.args)


def _chown_root(command: ShellCommand) -> bool:
    return (
        command.name in ("chown", "chgrp")
        and bool(command.operands)
        and bool(re.match(r"(?:root|0)(?:[:.]|$)", command.operands[0]))
    )


def _disk_copy(command: ShellCommand) -> bool:
    files = [a.partition("=")[2] for a in command.args if a.startswith(("if=", "of="))]
    return command.name in ("dd", "ddrescue", "dcfldd") and any(is_block_device(f) for f in files)


def _disks(command: ShellCommand) -> bool:
    """Return whether an argument is a disk, also as a value: `of=/dev/sda`, `--output=/dev/sda`."""
    return _names_disk(command, command.args)


def _names_disk(command: ShellCommand, args: Sequence[str]) -> bool:
    named = (m[1] for arg in args for m in re.finditer(r"(?:^|[=:,@])(/dev/[^\s,:;'\"]+)", arg))
    return any(is_block_device(resolve_place(command, path)) for path in (*named, *args))


def _device(command: ShellCommand) -> str:
    """Return what a program does with disks among its arguments: `reads`, `asks` or `writes`."""
    program = find_program(command.name)
    if program is None:
        return "writes" if command.name else "reads"
    given = parse_arguments(command, program)
    for effect in program.effects:
        if effect.kind == "device" and (
            is_harmless_use(command) if effect.slots[1:] == ("known",) else _holds(effect, given)
        ):
            return effect.slots[0]
    if is_a(command.name, "interpreter") or program.has("special"):
        return "reads"
    handed = [given.rest(slot) for e in program.effects if e.kind == "argv" for slot in e.slots]
    own = len(given.words) - max(map(len, handed), default=0)
    return "writes" if _names_disk(command, [word.text for word in given.words[:own]]) else "reads"


def _holds(effect: ProgramEffect, given: Arguments) -> bool:
    if any(given.has(slot) for slot in effect.unless):
        return False
    return len(effect.slots) == 1 or any(given.has(slot) for slot in effect.slots[1:])


def overwrites_disk(command: ShellCommand) -> bool:
    """Return whether a program writes to a disk directly and not through its file system."""
    if any(map(is_block_device, (*tee_targets(command), copy_target(command)))):
        return True
    if command.name in COPIERS or command.name in ("dd", "dcfldd"):
        return False
    return _disks(command) and _device(command) == "writes"


def _to_device(command: ShellCommand) -> bool:
    return any(map(is_block_device, write_targets(command))) or overwrites_disk(command) or _changes_disk(command)


def _changes_disk(command: ShellCommand) -> bool:
    return _disks(command) and _device(command) == "asks" and command.name not in ("dd", "dcfldd", "ddrescue")


def _formats(command: ShellCommand) -> bool:
    names = ("mke2fs", "mkswap", "mkdosfs", "mkntfs", "newfs", "wipefs")
    formats = command.name.startswith("mkfs") or command.name in names
    if command.name == "wipefs" and not command.has_flag("ao", "--all", "--offset"):
        return False  # it lists what it finds
    given = command.operands[-1:] if command.name == "mkfs" else command.operands
    places = [resolve_place(command, operand) for operand in given if not operand.isdigit()]
    own = all("." in path and not path.startswith(("/", "~", "..")) for path in places)  # an image of the project
    return formats and bool(places) and not own and not command.has_flag("V", "--help", "--version")


def _in_place(command: ShellCommand, which: Place, *, long: bool = False) -> bool:
    if command.name not in EDITORS or not any(which(resolve_place(command, o)) for o in command.operands):
        return False
    short = any(re.match(r"-[nErszub]*i", a) and not a.startswith("--") for a in command.args)
    return command.has_flag("", "--in-place") and not short if long else short


def _in_place_script(command: ShellCommand, which: Place) -> bool:
    return (
        re.match(r"(?:perl|ruby)[\d.]*$", command.name) is not None
        and any(re.match(r"-\w*i", a) for a in command.args)
        and any(which(resolve_place(command, o)) for o in command.operands)
    )


_SAVES = re.compile(
    r"(?:^|[|:\s])(?:wq?a?|xa?|up|update|exit|sav\w*|ZZ)!?(?=$|[\s|])|save-buffer|write-region|write-file"
)


def _edits(command: ShellCommand) -> bool:
    """Return whether an editor or a filter writes a file of the system by its command arguments."""
    name, args = command.name, command.args
    if not any(
        is_system(resolve_place(command, o)) or is_sensitive(resolve_place(command, o)) for o in command.operands
    ):
        return False
    if name in ("awk", "gawk"):
        return any(a in ("inplace", "-iinplace", "--include=inplace") for a in args)
    if name in ("yq", "dasel", "prettier", "black", "ruff", "gofmt", "shfmt", "dos2unix", "unix2dos"):
        return "2" in name or command.has_flag("iw", "--inplace", "--in-place", "--write")
    if name in ("sd", "patch"):
        return (
            not command.has_flag("ps", "--preview", "--dry-run")
            if name == "sd"
            else not command.has_flag("", "--dry-run")
        )
    if name in ("ed", "red", "ex"):
        return bool(_SAVES.search(f"{command.stdin or 'w'}\n{' '.join(_given(command))}")) and (
            command.has_input or bool(_given(command))
        )
    if is_a(name, "editor") and name not in EDITORS:
        return any(_SAVES.search(text) for text in (*_given(command), command.stdin or ""))
    return False


def _given(command: ShellCommand) -> Iterator[str]:
    """Yield the commands for an editor in its arguments."""
    for before, value in zip(("", *command.args), command.args, strict=False):
        if before in ("-c", "--cmd", "--eval", "-eval", "--execute", "-sc") or value.startswith(("+", "-c")):
            yield value.removeprefix("-c").lstrip("+")


def _config(path: str) -> bool:
    return path.startswith("/etc/") or path == "/etc"


def _vital(path: str) -> bool:
    return (is_system(path) or is_sensitive(path)) and not _config(path)


def _begins(command: ShellCommand) -> bool:
    """Return whether a new link is made, or settings of a project start as a copy of an example."""
    if command.name == "ln":
        return not command.has_flag("f", "--force")
    sources = command.operands[:-1]
    return command.name == "cp" and all(
        re.search(r"[.-](?:example|sample|template|dist|default)(?:\.\w+)?$", path) for path in sources
    )


def _env(path: str) -> bool:
    return is_project_env(path) or is_hermes_config(path)


def _unpacks_into(command: ShellCommand) -> bool:
    """Return whether an archive is unpacked into a system directory."""
    program = find_program(command.name)
    if program is None or not program.has("into"):
        return False
    letters = command.args[0] if command.args and not command.args[0].startswith("-") else ""
    if command.name.endswith("tar") and not ("x" in letters or command.has_flag("x", "--extract", "--get")):
        return False
    given = parse_arguments(command, program)
    slots = (slot for effect in program.effects if effect.kind == "into" for slot in effect.slots)
    places = [resolve_place(command, value) for slot in slots for value in given.values(slot)]
    return any(path == "/" or is_system(path) or is_sensitive(path) for path in places)


def _moves_system(command: ShellCommand) -> bool:
    """Return whether a system directory or a home is moved, or its mode or owner changes recursively."""
    places = [resolve_place(command, operand) for operand in command.operands]
    if command.name in ("mv", "gmv"):
        places = places[:-1]
    elif command.name not in ("chmod", "chown", "chgrp") or not command.has_flag("R", "--recursive"):
        return False
    return any(is_root(path) or is_system_directory(path) or is_home(path) for path in places)


SENSITIVE = "sensitive credential/SSH/shell-rc path"

RULES = (
    ShellRule(
        "world/other-writable permissions",
        lambda c: (_mode_opens(c) and not c.has_flag("", "--recursive")) or _opens_by_list(c),
    ),
    ShellRule("recursive world/other-writable (long flag)", lambda c: _mode_opens(c) and c.has_flag("", "--recursive")),
    ShellRule("runs as its owner for everybody (setuid)", _sets_id),
    ShellRule("recursive chown to root", lambda c: _chown_root(c) and c.has_flag("R")),
    ShellRule("recursive chown to root (long flag)", lambda c: _chown_root(c) and c.has_flag("", "--recursive")),
    ShellRule("move a system directory, or change all in it", _moves_system),
    ShellRule("format filesystem", _formats),
    ShellRule("disk copy", _disk_copy),
    ShellRule("write to block device", _to_device),
    ShellRule("overwrite system config", lambda c: any(map(_config, write_targets(c)))),
    ShellRule("overwrite system file via tee", lambda c: any(_config(p) or _vital(p) for p in tee_targets(c))),
    ShellRule("overwrite system file via redirection", lambda c: any(map(_vital, write_targets(c)))),
    ShellRule("copy/move file into system config path", lambda c: is_system(copy_target(c)) or _unpacks_into(c)),
    ShellRule(
        "in-place edit of system config",
        lambda c: _in_place(c, is_system) or _in_place_script(c, is_system) or _edits(c),
    ),
    ShellRule("in-place edit of system config (long flag)", lambda c: _in_place(c, is_system, long=True)),
    ShellRule(f"copy/move file into {SENSITIVE}", lambda c: is_sensitive(copy_target(c))),
    ShellRule(f"in-place edit of {SENSITIVE}", lambda c: _in_place(c, is_sensitive)),
    ShellRule(f"in-place edit of {SENSITIVE} (long flag)", lambda c: _in_place(c, is_sensitive, long=True)),
    ShellRule(f"in-place edit of {SENSITIVE} (perl/ruby)", lambda c: _in_place_script(c, is_sensitive)),
    ShellRule("in-place edit of Hermes config/env", lambda c: _in_place(c, is_hermes_config)),
    ShellRule("in-place edit of Hermes config/env (long flag)", lambda c: _in_place(c, is_hermes_config, long=True)),
    ShellRule("in-place edit of Hermes config/env (perl/ruby)", lambda c: _in_place_script(c, is_hermes_config)),
    ShellRule("overwrite project env/config via tee", lambda c: any(map(_env, tee_targets(c)))),
    ShellRule("overwrite project env/config via redirection", lambda c: any(map(_env, write_targets(c)))),
    ShellRule("overwrite project env/config file", lambda c: _env(copy_target(c)) and not _begins(c)),
)
