"""Rules about processes, about the agent itself, and the hard-line list.

- `RULES`: processes that are killed, also those of the agent.
- `OWN_RULES`: the command line and state of the agent, which hold the rules under which it works.
- `HARDLINE_RULES`: commands that never run, whatever is allowed. Source: plugin contract §10.3.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

from hermes_agent.policy.shell import code
from hermes_agent.policy.shell.outputs import EVERY_PROCESS, matches_all
from hermes_agent.policy.shell.paths import (
    is_block_device,
    is_emptied,
    is_home,
    is_root,
    is_system,
    is_system_directory,
    is_vital,
    resolve_place,
)
from hermes_agent.policy.shell.programs import is_a, subcommand_args
from hermes_agent.policy.shell.rules.files import copy_target, overwrites_disk, tee_targets, write_targets
from hermes_agent.policy.shell.script import UNKNOWN, ShellCommand, ShellRule, word_set

HERMES = re.compile(r"hermes|\bgateway\b")
_OWN_MODULE = re.compile(r"hermes_(?:agent|cli)(?:\.|$)")
HARMLESS_SIGNALS = frozenset(("0", "1", "HUP", "10", "USR1", "12", "USR2", "17", "CHLD", "18", "CONT", "19", "STOP"))
"""Signals that do not end process 1: it loads its settings again, or ignores them."""
BACKGROUND = frozenset({"nohup", "setsid", "disown", "screen", "tmux"})


def kills_all(command: ShellCommand) -> bool:
    """Return whether a command kills every process."""
    if command.name == "kill":
        each = any(operand.removeprefix("/proc/") == EVERY_PROCESS for operand in command.operands)
        return each or ("-1" in command.args[1:] and "-l" not in command.args)
    if command.name == "pkill" and command.has_flag("v", "--inverse") and not command.has_flag("uUPgGst"):
        return True
    if command.name == "pkill" or (command.name == "killall" and command.has_flag("r", "--regexp")):
        return any(map(matches_all, command.operands))
    if command.name == "fuser" and command.has_flag("k", "--kill"):
        return bool({"/", "/usr", "/etc", "/var"} & set(command.operands))
    return command.name == "killall5"


def ends_first_process(command: ShellCommand) -> bool:
    """Return whether process 1 gets a signal that ends it or the machine."""
    if command.name != "kill" or {"-l", "-L", "--list", "--table"} & set(command.args):
        return False
    args = [arg for arg in command.args if arg != "--"]
    signal = "TERM"
    if args and (match := re.match(r"-(?:s|n|-signal)$", args[0])) and match:
        signal, args = (args[1] if len(args) > 1 else ""), args[2:]
    elif args and (match := re.match(r"-(?:s|-signal=)?(\w[\w+-]*)$", args[0])):
        signal, args = match[1], args[1:]
    return "1" in args and signal.upper().removeprefix("SIG") not in HARMLESS_SIGNALS


def _kill_signal(command: ShellCommand) -> bool:
    if command.name not in ("kill", "pkill", "skill", "xkill", "killall"):
        return False
    args = command.args
    named = any(
        a in ("-s", "--signal") and b.upper().removeprefix("SIG") in ("KILL", "9") for a, b in itertools.pairwise(args)
    )
    direct = any(
        a.upper() in ("-9", "-KILL", "-SIGKILL", "--SIGNAL=KILL", "--SIGNAL=9", "--SIGNAL=SIGKILL") for a in args
    )
    return named or direct


def _killall_word(command: ShellCommand) -> bool:
    return command.name == "killall" and any(a.upper() in ("-KILL", "-SIGKILL") for a in command.args)


def _killall_s(command: ShellCommand) -> bool:
    return command.name == "killall" and any(a in ("-s", "--signal") for a in command.args) and _kill_signal(command)


def _self(command: ShellCommand) -> bool:
    if command.name == "kill":
        return any(HERMES.search(c.text) and "pgrep" != c.name != "pidof" for w in command.words for c in w.substituted)
    return command.name in ("pkill", "killall") and any(HERMES.search(o) for o in command.args)


def _expanded(command: ShellCommand) -> bool:
    finders = ("pgrep", "pidof")
    substituted = [c for w in command.words for c in w.substituted]
    return command.name == "kill" and any(c.name in finders for c in substituted)


def _from_finder(command: ShellCommand) -> bool:
    return (
        command.name == "kill" and "xargs" in command.via and any(c.name in ("pgrep", "pidof") for c in command.before)
    )


def _gateway(command: ShellCommand, *verbs: str) -> bool:
    args = _own_arguments(command)
    return args[:1] == ["gateway"] and any(arg in verbs for arg in args[1:2])


def _own_arguments(command: ShellCommand) -> list[str]:
    """Return the arguments of `hermes` or `python -m hermes_cli.main` without a profile, else []."""
    args = list(command.args)
    if command.name == "hermes":
        return _after_options(args)
    if is_a(command.name, "interpreter") and args[:1] == ["-m"] and args[1:2] and _OWN_MODULE.match(args[1]):
        return _after_options(args[2:])
    return []


def _launchd(command: ShellCommand) -> bool:
    verbs = ("stop", "kickstart", "unload", "bootout", "kill", "restart", "remove")
    return command.name == "launchctl" and bool({*command.args} & {*verbs}) and "hermes" in command.text


def _outside_systemd(command: ShellCommand) -> bool:
    return _gateway(command, "run", "start") and bool(BACKGROUND & set(command.via))


START = "start gateway outside systemd (use 'systemctl --user restart hermes-gateway')"

RULES = (
    ShellRule("kill all processes", kills_all),
    ShellRule("force kill processes (killall -KILL)", _killall_word),
    ShellRule("force kill processes (killall -s KILL)", _killall_s),
    ShellRule("force kill processes", lambda c: _kill_signal(c) and not _killall_word(c) and not _killall_s(c)),
    ShellRule("kill processes by regex (killall -r)", lambda c: c.name == "killall" and c.has_flag("r", "--regexp")),
    ShellRule("kill hermes/gateway process (self-termination)", _self),
    ShellRule("kill process via pgrep/pidof expansion (self-termination)", lambda c: _expanded(c) or _from_finder(c)),
    ShellRule("stop/restart hermes gateway (kills running agents)", lambda c: _gateway(c, "stop", "restart")),
    ShellRule(
        "hermes update (restarts gateway, kills running agents)",
        lambda c: c.name == "hermes" and c.operands[:1] == ("update",),
    ),
    ShellRule("stop/restart hermes launchd service (kills running agents)", _launchd),
    ShellRule(START, _outside_systemd),
)


OWN = "change the agent's own settings, permissions or state"
"""Key of a command that changes the agent itself; the user is asked about each call."""

_READS: dict[str, frozenset[str]] = {
    "config": frozenset({"check", "show", "get", "path"}),
    "pairing": frozenset({"list"}),
    "plugins": frozenset({"list", "info", "check", "doctor", "explain", "new", "index"}),
    "cron": frozenset({"list", "runs"}),
    "auth": frozenset({"list", "status"}),
    "mcp": frozenset({"list", "ls"}),
    "skills": frozenset({"list", "show"}),
    "model": frozenset({"pull", "list", "info", "path", "status"}),
    "memory": frozenset({"status"}),
    "sessions": frozenset({"list", "show", "replay", "search", "export"}),
    "gateway": frozenset({"status"}),
    "profile": frozenset({"list"}),
    "tools": frozenset({"list", "ls", "explain", "info"}),
    "rollback": frozenset({"list", "diff"}),
    "state": frozenset({"check", "restore-points"}),
    "import": frozenset({"list", "show"}),
    "bundles": frozenset({"list", "show"}),
    "proposals": frozenset({"list", "show"}),
    "hooks": frozenset({"list"}),
    "self": frozenset({"check"}),
}
"""Subcommands of `hermes` with the actions that change nothing; any other action counts as a change."""
_READ_ALL = frozenset({"commands", "completion", "doctor", "insights", "logs", "send"})
_PROGRAMS = frozenset({"hermes", ".hermes-wrapped", "hermes_agent"})
_STATE = re.compile(
    r"(?:^|[/\"'(=,:@\s])\.hermes(?:/profiles/[^/]+)?(?:/?$|/?[\"'*]|/(?:config\.yaml|\.env|auth\.json|api_server\.key"
    r"|plugins_trust\.json|state\.db|pairing|cron|hooks|plugins|scripts|profiles|restore-points|imports)(?![\w-]))"
)
_READERS = word_set("home-readers")
"""Programs that change no file among their arguments."""
_FIND_ACTIONS = ("-delete", "-exec", "-ok", "-fprint", "-fls")


def _changes(args: Sequence[str]) -> bool:
    """Return whether `hermes` with these arguments may change something."""
    if args[:1] in (["--version"], ["--help"], ["-h"]) or (args[-1:] in (["--help"], ["-h"]) and "--" not in args):
        return False
    group = args[0] if args else ""
    return group not in _READ_ALL and (len(args) < 2 or args[1] not in _READS.get(group, ()))


def _runs_itself(command: ShellCommand) -> bool:
    if command.name in _PROGRAMS:
        return _changes(list(subcommand_args(command)) or list(command.args))
    if command.name in _READERS:
        return False
    args = list(command.args)
    for index, arg in enumerate(args):
        module = arg.removeprefix("-m").partition(".")
        if module[0] in ("hermes_agent", "hermes_cli") and is_a(command.name, "interpreter"):
            return bool(module[2]) or _changes(_after_options(args[index + 1 :]))
        if arg.rpartition("/")[2] in _PROGRAMS and is_a(command.name, "interpreter"):
            return _changes(_after_options(args[index + 1 :]))
        if arg.rpartition("/")[2] in _PROGRAMS:
            rest = _after_options(args[index + 1 :])
            if rest and rest[0] in _READS:
                return _changes(rest)
    program = " ".join([*args, command.stdin or ""]) if is_a(command.name, "interpreter") else ""
    return re.search(r"\b(?:import|from|import_module\(.|run_module\(.)\s*hermes_agent\b", program) is not None


def _after_options(args: list[str]) -> list[str]:
    """Return the arguments without a profile option before the subcommand."""
    while args and args[0].startswith(("-p", "--profile")):
        args = args[2:] if args[0] in ("-p", "--profile") else args[1:]
    return args


def _changes_state(command: ShellCommand) -> bool:
    written = [resolve_place(command, r.target.text) for r in command.redirects if r.writes]
    finds = command.name == "find" and not any(arg.startswith(_FIND_ACTIONS) for arg in command.args)
    writes = (command.name == "yq" and command.has_flag("i", "--inplace")) or (
        command.name == "tree" and command.has_flag("o", "--output")
    )
    if (command.name not in _READERS and not finds) or writes:
        written += [resolve_place(command, arg) for arg in command.args]
        written += [arg for arg in command.args if "/" in arg]
        if is_a(command.name, "interpreter") or command.heredoc:
            written.append(command.stdin or "")
    return any(_STATE.search(text) for text in written)


OWN_RULES = (ShellRule(OWN, lambda c: _runs_itself(c) or _changes_state(c)),)


FORK_BOMB = "fork bomb"
SLEEPS = ("suspend", "hibernate", "hybrid-sleep", "suspend-then-hibernate")
STOPS = frozenset({"poweroff", "reboot", "halt", "kexec", "soft-reboot", "emergency", "rescue", *SLEEPS})
TARGETS = STOPS | {
    "shutdown",
    "sleep",
    "exit",
    "ctrl-alt-del",
    "final",
    "umount",
    "runlevel0",
    "runlevel1",
    "runlevel6",
}
RUNLEVELS = frozenset({*"0123456sS"})
_METHOD = re.compile(
    r"(?:login1|systemd1|ConsoleKit|UPower|SessionManager).*\b(?:"
    r"(?:Reboot|PowerOff|Halt|KExec|Suspend|Hibernate|HybridSleep|SoftReboot)(?:WithFlags)?\b"
    r"|Shutdown\b|(?:Start|Restart)Unit\b.*\b(?:poweroff|reboot|halt|kexec|rescue|emergency|shutdown)\.target)"
    r"|ksmserver.*\blogout\b",
    re.IGNORECASE | re.DOTALL,
)
"""Calls over D-Bus that end or suspend the machine."""


_FORMAT = re.compile(
    r"UDisks2.*\b(?:Format|CreatePartition\w*|DeletePartition|Erase|SecureErase|Sanitize)\b", re.DOTALL
)
_MACHINE = frozenset({"/proc/sysrq-trigger", "/sys/power/state", "/sys/power/disk"})
"""Files in which any write suspends or ends the machine."""
MODES = ("chmod", "chown", "chgrp", "setfacl", "chattr", "chcon")
"""Programs that change the rights of files."""
BUS = ("dbus-send", "busctl", "gdbus", "qdbus", "qdbus6", "qdbus-qt5")


_ENDERS = word_set("suspenders") | {"shutdown", "reboot", "halt", "poweroff", "openrc-shutdown"}


def _removed(command: ShellCommand, which: Callable[[str], bool]) -> bool:
    """Return whether a whole tree of a kind is removed."""
    if command.name in ("mv", "gmv", "rename", "prename", "file-rename", "perl-rename", "rename.ul"):
        return _moved(command, which)
    if _empties_all(command, which):
        return True
    if command.name == "rclone":
        trees = command.operands[:1] in (("purge",), ("delete",), ("rmdirs",), ("cleanup",), ("move",))
        targets = command.operands[1:2] if trees else command.operands[2:3] if command.operands[:1] == ("sync",) else ()
        return "--dry-run" not in command.args and any(which(resolve_place(command, path)) for path in targets)
    if command.name in ("rm", "grm", "srm", "shred", "wipe"):
        whole = (
            command.has_flag("rR", "--recursive", "--no-preserve-root")
            or (command.name == "wipe" and command.has_flag("r"))
            or (command.name == "shred" and "find -exec" in command.via)
            or "xargs" in command.via  # the output of `find` stands for all files below
        )
        places = [resolve_place(command, operand) for operand in command.operands]
        return any(which(path) and (whole or is_emptied(path)) for path in places)
    if command.name == "find" and ("-delete" in command.args or any(a == "rm" for a in command.args)):
        narrowed = any(
            b in ("-name", "-iname", "-path", "-regex", "-newer", "-mtime", "-size", "-empty")
            and a not in ("!", "-not")
            for a, b in itertools.pairwise(("", *command.args))
        )
        roots = [o for o in command.operands[:1]]
        return not narrowed and any(which(resolve_place(command, root)) for root in roots)
    if command.name == "rsync" and any(a.startswith("--del") for a in command.args):
        return not command.has_flag("n", "--dry-run") and any(
            which(resolve_place(command, o)) for o in command.operands[-1:]
        )
    if _takes_away(command):
        named = command.operands[:-1] if command.name == "rsync" else command.operands
        return any(which(resolve_place(command, operand.rstrip("/") or "/")) for operand in named)
    if command.name == "git":
        args, words = set(command.args), subcommand_args(command)
        pairs = [*itertools.pairwise(command.args), *(a.split("=", 1) for a in command.args if "=" in a)]
        directory = next((b for a, b in pairs if a in ("-C", "--work-tree")), ".")
        forced = any(re.match(r"-\w*f|--force", a) for a in words) and not args & {"-n", "--dry-run"}
        return words[:1] == ("clean",) and forced and which(resolve_place(command, directory))
    if command.name.lower() in ("remove-item", "ri") and re.search(r"(?i)\s-r", command.text):
        named = tuple(o for o in command.operands if UNKNOWN not in o)
        for listing in command.before if not named else ():  # `Get-ChildItem / | Remove-Item -Recurse`
            named += (
                listing.operands if listing.name.lower() in ("get-childitem", "gci", "get-item", "gi", "ls") else ()
            )
        return any(which(resolve_place(command, operand)) for operand in named)
    return False


def _empties_all(command: ShellCommand, which: Callable[[str], bool]) -> bool:
    """Return whether the files that `find` or `xargs` names are emptied; a directory stands for them."""
    targets = [r.target.text for r in command.redirects if r.operator in (">", ">|", "&>")]
    if command.name in ("truncate", "shred", "unlink"):
        targets += [operand for operand in command.operands if is_emptied(resolve_place(command, operand))]
    if {"find -exec", "xargs"} & set(command.via):
        if command.name in ("truncate", "tee"):
            targets += command.operands
        elif command.name in ("cp", "install", "dd"):
            targets += [*command.operands[-1:], *(arg[3:] for arg in command.args if arg.startswith("of="))]
    return any(which(resolve_place(command, target)) for target in targets)


def _takes_away(command: ShellCommand) -> bool:
    """Return whether files move into an archive, to another machine, the trash or another place."""
    args, verb = command.args, command.operands[:1]
    if command.name == "rsync":
        return "--remove-source-files" in args and not command.has_flag("n", "--dry-run")
    if command.name in ("tar", "gtar", "bsdtar"):
        return "--remove-files" in args
    if command.name in ("7z", "7za", "7zr", "7zz"):
        return any(arg.startswith("-sdel") for arg in args)
    if command.name in ("zip", "rar"):
        return verb in (("m",), ("mf",)) or any(
            re.match(r"-[A-Za-z0-9]*m[A-Za-z0-9]*$|--move$|-df$", arg) for arg in args
        )
    if command.name in ("gio", "gvfs-trash", "kioclient", "kioclient5"):
        return verb in (("trash",), ("remove",)) or command.name == "gvfs-trash" or "trash:/" in args
    return command.name in ("trash", "trash-put", "rmtrash", "exchange", "rimraf", "del-cli", "rip", "gomi")


def _loses_home(command: ShellCommand) -> bool:
    """Return whether the home of a user is removed with the user, or moved."""
    if command.name in ("userdel", "deluser"):
        return command.has_flag(
            "r" if command.name == "userdel" else "", "--remove", "--remove-home", "--remove-all-files"
        )
    return command.name == "usermod" and command.has_flag("m", "--move-home") and command.has_flag("d", "--home")


def _moved(command: ShellCommand, which: Callable[[str], bool]) -> bool:
    """Return whether a place of a kind is moved; files in it may move, but not those of the root."""
    places = [resolve_place(command, operand) for operand in command.operands]
    named = command.has_flag("t", "--target-directory") or not command.name.endswith("mv")
    places = places if named else places[:-1]
    if "-t" in command.args:
        target = resolve_place(command, command.args[command.args.index("-t") + 1]) if command.args[-1] != "-t" else ""
        places = [path for path in places if path != target]
    return any(which(path) and (not path.endswith("*") or path == "/*" or is_system(path)) for path in places)


def _changes_rights(command: ShellCommand) -> bool:
    """Return whether the rights of the root or of a vital directory change with all below it."""
    whole = command.has_flag("R", "--recursive") or "xargs" in command.via  # `find` prints a root for all files below
    if command.name not in MODES or not whole or "--dry-run" in command.args:
        return False
    return any(is_vital(resolve_place(command, operand)) for operand in command.operands)


def _system(path: str) -> bool:
    return is_system_directory(path) and not is_home(path)


def _mkfs(command: ShellCommand) -> bool:
    formats = command.name.startswith("mkfs") or command.name in ("mke2fs", "mkdosfs", "mkntfs", "newfs")
    return formats and any(is_block_device(resolve_place(command, operand)) for operand in command.operands)


def _volumes(command: ShellCommand) -> bool:
    """Return whether a pool takes over disks without `/dev/`, or a volume group is removed by force."""
    if command.name == "zpool" and command.operands[:1] == ("labelclear",):
        return True
    if command.name == "zpool":
        disk = re.compile(r"(?:[shv]d[a-z]+|xvd[a-z]+|nvme\d+n\d+|mmcblk\d+|(?:wwn|ata|scsi)-.*)(?:p?\d+)?$")
        return command.operands[:1] in (("create",), ("add",)) and any(map(disk.match, command.operands[2:]))
    return command.name == "vgremove" and command.has_flag("fy", "--force", "--yes")


def _dd(command: ShellCommand) -> bool:
    targets = [a.partition("=")[2] for a in command.args if a.startswith("of=")]
    return command.name in ("dd", "dcfldd") and any(is_block_device(t) for t in targets)


def _bomb(command: ShellCommand) -> bool:
    """Return whether code in another language forks without end."""
    return is_a(command.name, "interpreter") and code.forks_for_ever(command.text)


def _redirect(command: ShellCommand) -> bool:
    return any(map(is_block_device, write_targets(command)))


def _shutdown(command: ShellCommand) -> bool:
    if command.name in BUS:
        return bool(_METHOD.search(command.text))
    if command.name in ("upsmon", "upsdrvctl", "upscmd", "apcupsd"):
        return bool(re.search(r"\s(?:fsd|shutdown|--killpower|-k)\b|shutdown\.|load\.off", command.text))
    if command.name == "loginctl":
        return bool(STOPS & set(command.operands[:1]))
    if command.name == "kexec":
        return command.has_flag("e", "--exec", "--load-and-exec")
    if command.name == "rtcwake":
        modes = re.search(r"\s(?:-m|--mode)[\s=]*(\w+)", command.text)
        awake = modes is not None and modes[1] in ("no", "on", "show", "disable")
        return not awake and not command.has_flag("nhV", "--dry-run", "--list-modes", "--help", "--version")
    if command.name in ("ipmitool", "ipmipower", "ipmi-power", "ipmi-chassis"):
        return bool(re.search(r"\bpower\s+(?:off|cycle|reset|soft|diag)\b|--(?:off|cycle|reset|soft)\b", command.text))
    if ends_first_process(command):
        return True
    if _MACHINE & {
        resolve_place(command, path) for path in (*write_targets(command), *tee_targets(command), copy_target(command))
    }:
        return True
    harmless = {"--help", "--show", "-c"} if command.name == "shutdown" else {"--help"}
    return command.name in _ENDERS and not harmless & set(command.args)


def _systemctl(command: ShellCommand) -> bool:
    operands = subcommand_args(command) if command.name == "systemctl" and "--help" not in command.args else ()
    if operands[:1] in (("start",), ("restart",), ("reload-or-restart",)):
        return any(operand.removesuffix(".target") in TARGETS for operand in operands[1:])
    return bool((STOPS | {"isolate"}) & set(operands[:1]))


def _runlevel(command: ShellCommand, name: str) -> bool:
    return command.name == name and any(level in RUNLEVELS for level in command.operands[:1])


HARDLINE_RULES = (
    ShellRule("recursive delete of root filesystem", lambda c: _removed(c, is_root)),
    ShellRule("recursive delete of system directory", lambda c: _removed(c, _system)),
    ShellRule("recursive delete of home directory", lambda c: _removed(c, is_home) or _loses_home(c)),
    ShellRule("change the permissions of the whole system", _changes_rights),
    ShellRule("format filesystem (mkfs)", _mkfs),
    ShellRule("dd to raw block device", _dd),
    ShellRule("redirect to raw block device", _redirect),
    ShellRule(
        "write to raw block device",
        lambda c: overwrites_disk(c) or _volumes(c) or (c.name in BUS and bool(_FORMAT.search(c.text))),
    ),
    ShellRule(FORK_BOMB, _bomb),
    ShellRule("kill all processes", kills_all),
    ShellRule("system shutdown/reboot", _shutdown),
    ShellRule("init 0/6 (shutdown/reboot)", lambda c: _runlevel(c, "init") or _runlevel(c, "runit-init")),
    ShellRule("systemctl poweroff/reboot", _systemctl),
    ShellRule("telinit 0/6 (shutdown/reboot)", lambda c: _runlevel(c, "telinit")),
)
