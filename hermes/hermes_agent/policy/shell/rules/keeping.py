"""What the table marks: programs that are installed, secrets that are shown, data that goes, what runs later."""

from __future__ import annotations

import itertools
import re

from hermes_agent.policy.shell.environment import SECRET
from hermes_agent.policy.shell.paths import is_system, is_temporary, resolve_place
from hermes_agent.policy.shell.rules.rule import ShellRule
from hermes_agent.policy.shell.script import DESTROYS, INSTALLS, LATER, REVEALS, UNKNOWN, ShellCommand
from hermes_agent.policy.shell.table import is_a

__all__ = ["RULES"]

_DATA = re.compile(r"\.(?:sql|db|sqlite3?|csv|tsv|parquet|json|jsonl|xlsx?|mdb|dump|bak|tar|t?gz|zip|img|qcow2)$")
_MEMORY = re.compile(r"/proc/[^/]+/(?:mem|environ)$")
_FINDS = frozenset({"find -exec", "xargs"})
_PORTS = re.compile(
    r":(?:9200|5984|8086|8123|6333|7700|8983|2379|8529|7474|8108|19530|8091|8098|4001|8500|9042|8200|5000/v2)\b"
)
_QUERY = re.compile(
    r"_delete_by_query|<delete>|/api/v\d/delete|/flush_?all\b|\?query=(?:drop|truncate|alter|delete)", re.IGNORECASE
)
"""How services of data are told to delete over HTTP, and their ports."""
_TASKS = frozenset({"alembic", "flask", "manage.py", "php", "python", "python3", "rails", "rake"})
_NOTHING = ("", ":", "true")
_FLUSHES = re.compile(
    r"(?:^|[\s/])manage\.py\s+(?:flush|reset_db|reset_schema)\b"
    r"|(?:^|\s)(?:db:(?:drop|reset|purge|wipe|truncate_all|schema:load)|migrate:(?:fresh|reset|refresh))(?::\w+)*(?:\s|$)"
    r"|(?:alembic|flask\b.*\sdb)\s+downgrade\s+base\b"
)
_ENVIRONMENT_FILE = frozenset({"env", "printenv", "set", "export", "declare", "typeset", "compgen"})
MODES = ("chmod", "chown", "chgrp", "setfacl", "chattr", "chcon")


def _empties(command: ShellCommand) -> bool:
    """Say whether a file of data is left with nothing in it."""
    nothing = command.name in _NOTHING or (command.name == "cat" and command.args == ("/dev/null",))
    nothing = nothing and command.stdin is None and not command.before
    nothing = nothing and not any(r.operator == "<" for r in command.redirects)
    emptied = [r.target.text for r in command.redirects if r.operator in (">", ">|", "&>") and nothing]
    if emptied and _FINDS & set(command.via):
        return True
    if command.name == "truncate" and re.search(r"(?:-s|--size)[= ]?0\b", command.text):
        emptied += command.operands
    if command.name == "cp" and command.operands[:1] == ("/dev/null",):
        emptied += command.operands[1:]
    many = bool(_FINDS & set(command.via)) or "-exec" in command.via
    return any(
        many or _DATA.search(path) or UNKNOWN in path or path == "." or re.search(r"/.*[*?\[]", path)
        for path in emptied
    )


def _deletes_documents(command: ShellCommand) -> bool:
    """Say whether a service of data is told to delete over HTTP."""
    if not is_a(command.name, "downloader"):
        return False
    deletes = re.search(r"(?:-X|--request|--method)[= ]?DELETE\b|^\w+ (?:-\S+ )*DELETE ", command.text)
    return bool((deletes and _PORTS.search(command.text)) or _QUERY.search(command.text))


def _opens_hook(command: ShellCommand) -> bool:
    made = any("x" in arg or arg.isdigit() for arg in command.args[:1])
    hooks = (resolve_place(command, operand) for operand in command.operands)
    return command.name == "chmod" and made and any("/.git/hooks/" in f"/{path}" for path in hooks)


def _flushes(command: ShellCommand) -> bool:
    runs = command.name in _TASKS or "artisan" in command.text
    return runs and _FLUSHES.search(command.text) is not None and "--help" not in command.args


def _opens_tree(command: ShellCommand) -> bool:
    """Say whether rights or owner change for a tree outside of the working directory, or for the system."""
    if command.name not in MODES:
        return False
    places = [resolve_place(command, operand) for operand in command.operands]
    outside = any(path.startswith(("/", "~", "..")) and not is_temporary(path) for path in places)
    many = command.has_flag("R", "--recursive") or bool(_FINDS & set(command.via))
    return (outside and many) or any(map(is_system, places))


def _machine_wide(command: ShellCommand) -> bool:
    """Say whether pip changes the packages of the machine."""
    if not re.fullmatch(r"pip[\d.]*", command.name) or command.operands[:1] not in (("install",), ("uninstall",)):
        return False
    root = {"sudo", "doas", "run0", "pkexec", "su"} & set(command.via) and not {"docker", "podman"} & set(command.via)
    asked = command.has_flag("", "--break-system-packages", "--system")
    given = [b for a, b in itertools.pairwise(command.args) if a in ("-t", "--target", "--prefix", "--root")]
    given += [a.partition("=")[2] for a in command.args if a.startswith(("--target=", "--prefix=", "--root="))]
    own = "/" in command.words[0].text and not command.words[0].text.startswith(("/usr", "/bin"))
    return (bool(root or asked) and not own) or any(is_system(resolve_place(command, path)) for path in given)


def _reads_memory(command: ShellCommand) -> bool:
    named = [resolve_place(command, arg.rpartition("=")[2]) for arg in command.args]
    named += [resolve_place(command, redirect.target.text) for redirect in command.redirects]
    return any(_MEMORY.search(path) and not path.startswith("/proc/self/") for path in named)


def _opens_environment(command: ShellCommand) -> bool:
    named = (*command.args, *(redirect.target.text for redirect in command.redirects))
    return any(re.search(r"/proc/[^/]+/environ$", path) for path in named)


def _lists_environment(command: ShellCommand) -> bool:
    """Say whether a name of a secret is looked for in the environment."""
    if command.name == "printenv":
        return any(map(SECRET.search, command.operands))
    if command.name not in ("grep", "egrep", "fgrep", "rg", "ag", "ack", "awk", "gawk", "sed", "perl"):
        return False
    lists = any(c.name in _ENVIRONMENT_FILE and not c.operands and not c.redirects for c in command.before)
    lists = lists or any(map(_opens_environment, (command, *command.before)))
    return (
        lists and not command.has_flag("v" if "grep" in command.name else "") and any(map(SECRET.search, command.args))
    )


def _mails_file(command: ShellCommand) -> bool:
    mails = command.name in ("mail", "mailx", "s-nail", "mutt", "neomutt", "sendmail", "msmtp")
    return mails and any(r.operator == "<" and r.target.text != "/dev/null" for r in command.redirects)


def _signals_others(command: ShellCommand) -> bool:
    if command.name == "fuser":
        return command.has_flag("k", "--kill")
    if command.name in ("pkill", "killall"):
        asks = command.has_flag("lV", "--list", "--version", "--help") or {"-0", "-CONT", "-CHLD"} & set(command.args)
        return bool(command.args) and not asks
    return command.name == "kill" and "1" in command.operands and bool({"-STOP", "-19", "-SIGSTOP"} & set(command.args))


RULES = (
    ShellRule("install software from an address or for the machine", lambda c: INSTALLS in c.marks or _machine_wide(c)),
    ShellRule(
        "read secrets that a program keeps",
        lambda c: REVEALS in c.marks or _reads_memory(c) or _lists_environment(c),
    ),
    ShellRule(
        "destroy or replace data with its own program", lambda c: DESTROYS in c.marks or _empties(c) or _flushes(c)
    ),
    ShellRule("delete from a data service over HTTP", _deletes_documents),
    ShellRule("make a hook of git run", _opens_hook),
    ShellRule("run something later", lambda c: LATER in c.marks),
    ShellRule("change rights of a tree outside the working directory", _opens_tree),
    ShellRule("send a file by mail", _mails_file),
    ShellRule("stop processes of others", _signals_others),
)
