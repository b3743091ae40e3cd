"""What reaches out of a project: installed builds, edited trees, stores of keys, the environment, addresses of code."""

from __future__ import annotations

import itertools
import re

from hermes_agent.policy.shell.paths import is_temporary, resolve_place
from hermes_agent.policy.shell.rules.files import EDITORS
from hermes_agent.policy.shell.rules.rule import ShellRule
from hermes_agent.policy.shell.script import UNKNOWN, ShellCommand
from hermes_agent.policy.shell.spelling import subcommand_args
from hermes_agent.policy.shell.table import is_a

__all__ = ["REACH_RULES"]

_ROOT = frozenset({"sudo", "doas", "run0", "pkexec", "su"})
_SYSTEM_PLACE = re.compile(r"/(?:usr|opt|etc|bin|sbin|lib|lib64|var)(?:/|$)|/$")
_MAKES = frozenset({"make", "gmake", "bmake", "ninja", "samu", "meson", "scons", "waf"})
_PREFIX = re.compile(r"(?:--)?(?:prefix|PREFIX|DESTDIR|--destdir|--root|root)=(.*)", re.DOTALL)
_STORE = re.compile(
    r"(?:^|/)(?:\.ssh|\.gnupg|\.aws|\.kube|\.password-store|\.config/gcloud|\.azure|Keychains|kwalletd|keyrings"
    r"|\.mozilla|\.config/(?:google-chrome|chromium|BraveSoftware|microsoft-edge))(?:/\.?\**)?$"
)
_TAKERS = frozenset({"cp", "gcp", "mv", "gmv", "rsync", "tar", "gtar", "bsdtar", "zip", "7z", "7za", "7zz", "install"})
_DATABASES = frozenset({"sqlite3", "sqlite", "litecli", "sqlcipher", "duckdb"})
_BROWSER = re.compile(
    r"(?:^|/)(?:Login Data|Cookies|Local State|Web Data|key[34]\.db|logins\.json|cookies\.sqlite"
    r"|[^/]+\.keychain(?:-db)?"
    r"|[^/]+\.kwl|[^/]+\.keyring)$"
)
_READERS = frozenset(
    {"cat", "cp", "gcp", "mv", "base64", "xxd", "strings", "jq", "head", "tail", "less", "tar", "zip", "dd"}
)
_ENVIRONMENT = (
    re.compile(
        r"(?:print|dumps?|post|put|send\w*|write|urlencode|request|urlopen)\s*\((?!\s*len\()"
        r"[^;\n]*(?<!in )\bos\.environ\b"
        r"(?!\s*\[|\.(?:get|setdefault|pop)\b)"
    ),
    re.compile(r"(?:console\.\w+|stringify|fetch|write|send|post)\s*\([^;\n]*\bprocess\.env\b(?!\s*[.\[?])"),
    re.compile(r"\b(?:pp?|puts|print|post\w*|write)\b[^;\n]*\bENV\b(?!\s*\[|\.fetch|\{)"),
    re.compile(r"\b(?:print|say|post|Dumper)\b[^;\n]*%\{?\$?\{?ENV\b"),
)
"""The whole environment that is printed or handed to what sends, in Python, JavaScript, Ruby and Perl."""
_DECIDES = re.compile(r"(?:init|telinit|runit-init|shutdown|mkfs(?:\.\w+)?|mke2fs|wipefs|blkdiscard)$")
_FETCHES = re.compile(r"(?:git\+)?(?:https?|ssh|git)://|(?:github|gitlab|bitbucket|gist):|npm:|jsr:")


def _installs_build(command: ShellCommand) -> bool:
    """Say whether what was built goes into the machine."""
    operands = command.operands
    install = command.name in _MAKES and any(re.match(r"install(?:-\w+|/\w+)?$", o) for o in operands)
    install = install or (command.name == "cmake" and "--install" in command.args)
    install = install or (
        is_a(command.name, "interpreter") and operands[1:2] == ("install",) and "setup.py" in operands[0]
    )
    if not install or command.has_flag("", "--help", "--dry-run") or (command.name in _MAKES and command.has_flag("n")):
        return False
    pairs = (*command.args, *(f"{a}={b}" for a, b in itertools.pairwise(command.args) if a.startswith("--")))
    given = [resolve_place(command, match[1]) for arg in pairs if (match := _PREFIX.match(arg)) and match[1]]
    if any(path.startswith(("./", "../")) or is_temporary(path) or not path.startswith(("/", "~")) for path in given):
        return False
    if given and not any(map(_SYSTEM_PLACE.match, given)):
        return False
    return bool(given) or bool(_ROOT & set(command.via))


def _edits_tree(command: ShellCommand) -> bool:
    """Say whether many files outside of the working directory are changed in place."""
    if not {"find -exec", "xargs", "parallel"} & set(command.via):
        return False
    edits = command.name in EDITORS and (
        any(re.match(r"-[nErszub]*i", a) for a in command.args) or command.has_flag("", "--in-place")
    )
    script = re.match(r"(?:perl|ruby)[\d.]*$", command.name) and any(re.match(r"-[a-z0]*i", a) for a in command.args)
    if not (edits or script):
        return False
    named = [*command.operands, *(o for c in command.before for o in c.operands)]
    places = [resolve_place(command, operand) for operand in named if not re.search(r"\s", operand)]
    return any(re.match(r"(?:/[\w.-]+)+/?[*]*$|~/|\.\./", path) and not is_temporary(path) for path in places)


def _takes_store(command: ShellCommand) -> bool:
    """Say whether a whole directory of keys is copied, or what a browser or a ring of keys stores is read."""
    named = [resolve_place(command, operand) for operand in command.operands]
    sources = named[:-1] if command.name in ("cp", "gcp", "mv", "gmv", "rsync", "install") else named
    if command.name in _TAKERS and any(map(_STORE.search, (path.rstrip("/") for path in sources))):
        listing = command.name.endswith("tar") and command.has_flag("tx", "--list", "--extract")
        return not listing
    if command.name in _READERS | _DATABASES | {"rsync"}:
        held = sources if command.name not in _DATABASES else named[:1]
        outside = (path for path in held if path.startswith(("/", "~")) and not is_temporary(path))
        return any(map(_BROWSER.search, outside))
    return False


def _makes_key(command: ShellCommand) -> bool:
    """Say whether ssh-keygen writes a key among those of the user."""
    if command.name != "ssh-keygen" or command.has_flag("lyBFHR"):
        return False
    files = [b for a, b in itertools.pairwise(command.args) if re.fullmatch(r"-\w*f", a)]
    return any(re.search(r"(?:^|/)\.ssh/", resolve_place(command, path)) for path in files)


def _shows_environment(command: ShellCommand) -> bool:
    code = f"{command.text}\n{command.stdin or ''}"
    return is_a(command.name, "interpreter") and any(which.search(code) for which in _ENVIRONMENT)


def _decided_later(command: ShellCommand) -> bool:
    """Say whether a program that ends the machine or a disk is told only when it runs what to do."""
    if _DECIDES.match(command.name):
        return any(UNKNOWN in operand for operand in command.operands)
    if command.name in ("dd", "dcfldd"):
        return any(
            arg.startswith("of=") and arg[3:].replace(UNKNOWN, "").strip("/") in ("", "dev")
            for arg in command.args
            if UNKNOWN in arg
        )
    return command.name == "systemctl" and any(UNKNOWN in word for word in subcommand_args(command)[:1])


def _from_address(command: ShellCommand) -> bool:
    """Say whether code from an address is fetched and run at once."""
    operands = command.operands
    if command.name == "go":
        return operands[:1] == ("run",) and any(re.match(r"[\w.-]+\.\w+/.*@", o) for o in operands[1:2])
    if command.name == "deno":
        return operands[:1] in (("run",), ("install",), ("serve",)) and any(map(_FETCHES.match, operands[1:]))
    return command.name in ("npx", "bunx", "pnpx") and any(map(_FETCHES.match, operands[:1]))


REACH_RULES = (
    ShellRule("install software from an address or for the machine", lambda c: _installs_build(c) or _from_address(c)),
    ShellRule("edit a tree outside the working directory", _edits_tree),
    ShellRule("read a file of credentials", _takes_store),
    ShellRule("copy/move file into sensitive credential/SSH/shell-rc path", _makes_key),
    ShellRule("read secrets that a program keeps", _shows_environment),
    ShellRule("a command that is made up while it runs", _decided_later),
)
