"""Rules about the machine: installed programs, shown secrets, destroyed data, later commands.

The first rules test the marks of the table. The others are about commands that act outside the project: installed
builds, edited trees, stores of keys, the environment, code from addresses.
"""

from __future__ import annotations

import itertools
import re

from hermes_agent.policy.shell.paths import is_system, is_temporary, resolve_place
from hermes_agent.policy.shell.programs import is_a, is_project, subcommand_args
from hermes_agent.policy.shell.rules.files import EDITORS
from hermes_agent.policy.shell.rules.processes import MODES
from hermes_agent.policy.shell.script import (
    DESTROYS,
    INSTALLS,
    LATER,
    REVEALS,
    ROOT,
    UNKNOWN,
    ShellCommand,
    ShellRule,
    word_set,
)
from hermes_agent.policy.shell.syntax import SECRET

_DATA = re.compile(r"\.(?:sql|db|sqlite3?|csv|tsv|parquet|json|jsonl|xlsx?|mdb|dump|bak|tar|t?gz|zip|img|qcow2)$")
_MEMORY = re.compile(r"/proc/[^/]+/(?:mem|environ)$")
_SENSOR = re.compile(r"/dev/(?:input/\w+|video\d+|snd/\w+|hidraw\d+)$")
"""Devices that show what a person types, says or does."""
_RECORDERS = word_set("file-readers") | {"ffmpeg", "avconv", "evtest", "gst-launch-1.0"}
_FINDS = frozenset({"find -exec", "xargs"})
_PORTS = re.compile(
    r":(?:9200|5984|8086|8123|6333|7700|8983|2379|8529|7474|8108|19530|8091|8098|4001|8500|9042|8200|5000/v2)\b"
)
_QUERY = re.compile(
    r"_delete_by_query|<delete>|/api/v\d/delete|/flush_?all\b|\?query=(?:drop|truncate|alter|delete)", re.IGNORECASE
)
"""Requests that delete data in database services over HTTP; `_PORTS` has their ports."""
_TASKS = frozenset({"alembic", "flask", "manage.py", "php", "python", "python3", "rails", "rake"})
_NOTHING = ("", ":", "true")
_FLUSHES = re.compile(
    r"(?:^|[\s/])manage\.py\s+(?:flush|reset_db|reset_schema)\b"
    r"|(?:^|\s)(?:db:(?:drop|reset|purge|wipe|truncate_all|schema:load)|migrate:(?:fresh|reset|refresh))(?::\w+)*(?:\s|$)"
    r"|(?:alembic|flask\b.*\sdb)\s+downgrade\s+base\b"
)
_ENVIRONMENT_FILE = frozenset({"env", "printenv", "set", "export", "declare", "typeset", "compgen"})


def _empties(command: ShellCommand) -> bool:
    """Return whether a data file is emptied."""
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
    many = bool(_FINDS & set(command.via)) or any(path in ("~", "/") for path in emptied) or "-exec" in command.via
    return any(
        many or _DATA.search(path) or UNKNOWN in path or path == "." or re.search(r"/.*[*?\[]", path)
        for path in emptied
    )


def _deletes_documents(command: ShellCommand) -> bool:
    """Return whether a request deletes data in a database service over HTTP."""
    if not is_a(command.name, "downloader"):
        return False
    deletes = re.search(r"(?:-X|--request|--method)[= ]?DELETE\b|^\w+ (?:-\S+ )*DELETE ", command.text)
    return bool((deletes and _PORTS.search(command.text)) or _QUERY.search(command.text))


def _opens_hook(command: ShellCommand) -> bool:
    executable = any("x" in arg or arg.isdigit() for arg in command.args[:1])
    hooks = (resolve_place(command, operand) for operand in command.operands)
    return command.name == "chmod" and executable and any("/.git/hooks/" in f"/{path}" for path in hooks)


def _flushes(command: ShellCommand) -> bool:
    runs = command.name in _TASKS or "artisan" in command.text
    return runs and _FLUSHES.search(command.text) is not None and "--help" not in command.args


def _opens_tree(command: ShellCommand) -> bool:
    """Return whether mode or owner change for a tree outside the working directory, or for the system."""
    if command.name not in MODES:
        return False
    places = [resolve_place(command, operand) for operand in command.operands]
    outside = any(path.startswith(("/", "~", "..")) and not is_temporary(path) for path in places)
    many = command.has_flag("R", "--recursive") or bool(_FINDS & set(command.via))
    return (outside and many) or any(map(is_system, places))


def _machine_wide(command: ShellCommand) -> bool:
    """Return whether pip changes the packages of the machine."""
    if not re.fullmatch(r"pip[\d.]*", command.name) or command.operands[:1] not in (("install",), ("uninstall",)):
        return False
    root = ROOT & set(command.via) and not {"docker", "podman"} & set(command.via)
    asked = command.has_flag("", "--break-system-packages", "--system")
    given = [b for a, b in itertools.pairwise(command.args) if a in ("-t", "--target", "--prefix", "--root")]
    given += [a.partition("=")[2] for a in command.args if a.startswith(("--target=", "--prefix=", "--root="))]
    own = "/" in command.words[0].text and not command.words[0].text.startswith(("/usr", "/bin"))
    return (bool(root or asked) and not own) or any(is_system(resolve_place(command, path)) for path in given)


def _reads_memory(command: ShellCommand) -> bool:
    if command.name in ("strace", "ltrace", "gdb", "gcore", "reptyr"):
        return command.name in ("gcore", "reptyr") or command.has_flag("p", "--pid", "--attach", "-pid", "-p")
    named = [resolve_place(command, arg.rpartition("=")[2]) for arg in command.args]
    named += [resolve_place(command, redirect.target.text) for redirect in command.redirects]
    if any(map(_SENSOR.match, named if command.name in _RECORDERS else named[len(command.args) :])):
        return True
    return any(_MEMORY.search(path) and not path.startswith("/proc/self/") for path in named)


_METADATA = re.compile(
    r"(?:^|[/@=])(?:169\.254\.169\.254|169\.254\.170\.2|100\.100\.100\.200|metadata\.google\.internal|\[?fd00:ec2::254\]?)(?=[:/]|$)"
)


def _asks_metadata(command: ShellCommand) -> bool:
    """Return whether the service of a cloud that gives keys to its machines is asked."""
    return any(map(_METADATA.search, command.args))


def _opens_environment(command: ShellCommand) -> bool:
    named = (*command.args, *(redirect.target.text for redirect in command.redirects))
    return any(re.search(r"/proc/[^/]+/environ$", path) for path in named)


def _lists_environment(command: ShellCommand) -> bool:
    """Return whether the environment is searched for the name of a secret."""
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
    if command.name in ("tmux", "byobu"):
        return command.operands[:1] in (("kill-server",), ("kill-session",))
    if command.name in ("pkill", "killall"):
        asks = command.has_flag("lV", "--list", "--version", "--help") or {"-0", "-CONT", "-CHLD"} & set(command.args)
        return bool(command.args) and not asks
    return command.name == "kill" and "1" in command.operands and bool({"-STOP", "-19", "-SIGSTOP"} & set(command.args))


RULES = (
    ShellRule("install software from an address or for the machine", lambda c: INSTALLS in c.marks or _machine_wide(c)),
    ShellRule(
        "read secrets that a program keeps",
        lambda c: REVEALS in c.marks or _reads_memory(c) or _lists_environment(c) or _asks_metadata(c),
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


_MANAGERS = frozenset({"npm", "pnpm", "yarn", "bun", "composer", "bundle"})
"""Package managers that run scripts of the project and of its packages."""
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
_READERS = word_set("store-readers")
_ENVIRONMENT = (
    re.compile(
        r"(?:print|dumps?|post|put|send\w*|write|urlencode|request|urlopen)\s*\((?!\s*len\()"
        r"[^;\n]{0,1000}(?<!in )\bos\.environ\b"
        r"(?!\s*\[|\.(?:get|setdefault|pop)\b)"
    ),
    re.compile(r"(?:console\.\w+|stringify|fetch|write|send|post)\s*\([^;\n]{0,1000}\bprocess\.env\b(?!\s*[.\[?])"),
    re.compile(r"\b(?:pp?|puts|print|post\w*|write)\b[^;\n]{0,1000}\bENV\b(?!\s*\[|\.fetch|\{)"),
    re.compile(r"\b(?:print|say|post|Dumper)\b[^;\n]{0,1000}%\{?\$?\{?ENV\b"),
)
"""Code in Python, JavaScript, Ruby and Perl that prints or sends the whole environment."""
_SHOWN = re.compile(
    r"\b(?:print\w*|pp?|puts|say|echo|dumps?|write\w*|console\.\w+|log|post|put|send\w*|request|urlopen|fetch)\b\s*\(?"
    r"(?!\s*\(?(?:len|bool|type|defined\??|isset|empty|strlen|length)\b)[^;\n]{0,200}?"
    r"(?:\benviron(?:\.get\(|\[)|\bgetenv\s*\(|\bprocess\.env(?:\.|\[)|\bENV(?:\.fetch\(|\[|\{)|\$_(?:ENV|SERVER)\[|Sys\.getenv\()"
    r"\s*[\"']?(\w+)"
)
"""Code that prints or sends a variable of the environment; the group is its name."""
_DECIDES = re.compile(r"(?:init|telinit|runit-init|shutdown|mkfs(?:\.\w+)?|mke2fs|wipefs|blkdiscard)$")
_FLAKE = re.compile(r"(?:(?:git|hg|tarball|file)\+)?(?:https?|ssh|git)://|(?:github|gitlab|sourcehut|tarball):")
_FETCHES = re.compile(r"(?:git\+)?(?:https?|ssh|git)://|(?:github|gitlab|bitbucket|gist):|npm:|jsr:")


def _runs_as_root(command: ShellCommand) -> bool:
    """Return whether code of the project runs as root: a script, a build, hooks of a package."""
    if (
        not ROOT & set(command.via)
        or {"docker", "podman"} & set(command.via)
        or command.has_flag("nV", "--help", "--version", "--dry-run")
    ):
        return False
    if command.name in _MAKES or (command.name in _MANAGERS and bool(command.operands)):
        return True
    if "/" in command.words[0].text and is_project(command):
        return True
    runs = is_a(command.name, "shell") or command.name in ("source", ".") or is_a(command.name, "interpreter")
    inline = command.has_flag("ce", "--eval") or "-m" in command.args or command.name in EDITORS
    return runs and not inline and bool(command.operands)


def _installs_build(command: ShellCommand) -> bool:
    """Return whether a build is installed on the machine."""
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
    return bool(given) or bool(ROOT & set(command.via))


def _edits_tree(command: ShellCommand) -> bool:
    """Return whether many files outside the working directory are changed in place."""
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
    """Return whether a directory of keys is copied, or a store of a browser or a keyring is read."""
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
    """Return whether ssh-keygen writes a key to the keys of the user."""
    if command.name != "ssh-keygen" or command.has_flag("lyBFHR"):
        return False
    files = [b for a, b in itertools.pairwise(command.args) if re.fullmatch(r"-\w*f", a)]
    return any(re.search(r"(?:^|/)\.ssh/", resolve_place(command, path)) for path in files)


def _shows_environment(command: ShellCommand) -> bool:
    code = f"{command.text}\n{command.stdin or ''}"
    if not is_a(command.name, "interpreter"):
        return False
    shown = any(SECRET.search(name) for name in _SHOWN.findall(code))
    return shown or any(which.search(code) for which in _ENVIRONMENT)


def _decided_later(command: ShellCommand) -> bool:
    """Return whether a variable decides what a program does that can end the machine or a disk."""
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
    """Return whether code from an address is fetched and run at once."""
    operands = command.operands
    if command.name == "go":
        return operands[:1] == ("run",) and any(re.match(r"[\w.-]+\.\w+/.*@", o) for o in operands[1:2])
    if command.name == "deno":
        return operands[:1] in (("run",), ("install",), ("serve",)) and any(map(_FETCHES.match, operands[1:]))
    if command.name == "uv":
        return operands[:1] == ("run",) and any(map(_FETCHES.match, operands[1:2]))
    if command.name == "nix":
        return operands[:1] in (("run",), ("shell",), ("develop",)) and any(map(_FLAKE.match, operands[1:]))
    if command.name in ("kubectl", "oc"):
        return operands[:1] in (("apply",), ("create",), ("replace",)) and any(
            re.match(r"https?://", operand) for operand in command.args
        )
    return command.name in ("npx", "bunx", "pnpx") and any(map(_FETCHES.match, operands[:1]))


REACH_RULES = (
    ShellRule("install software from an address or for the machine", lambda c: _installs_build(c) or _from_address(c)),
    ShellRule("run code of the project as root", lambda c: bool(c.words) and _runs_as_root(c)),
    ShellRule("edit a tree outside the working directory", _edits_tree),
    ShellRule("read a file of credentials", _takes_store),
    ShellRule("copy/move file into sensitive credential/SSH/shell-rc path", _makes_key),
    ShellRule("read secrets that a program keeps", _shows_environment),
    ShellRule("a command that is made up while it runs", _decided_later),
)
