"""Paths in commands: which place they name, and what kind of place it is.

`Links` holds the links and mounts that a script makes, through which its later commands write and delete.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace

from hermes_agent.policy.shell.script import (
    UNKNOWN,
    ShellCommand,
    ShellWord,
    has_glob,
    matches_glob,
    word_list,
    word_set,
)

_VITAL = word_set("vital-directories")
SYSTEM_DIRECTORIES = word_set("system-directories")
_SAFE_DEVICES = re.compile(
    r"/dev/(?:null|zero|full|random|urandom|tty\w*|pts(?:/.*)?|stdin|stdout|stderr|fd(?:/.*)?|shm(?:/.*)?|ptmx|(?:tcp|udp)/.*|video\w*"
    r"|dri(?:/.*)?|kvm|snd(?:/.*)?|i2c.*|fuse|net(?:/.*)?|input(?:/.*)?|rtc\w*|log|console|nvidia.*|bus(?:/.*)?|serial/.*|hidraw\w*|vhost.*"
    r"|media\w*|usb(?:mon\d+|/.*)?|tpm\w*|uinput|vfio.*|n?st\d+|cuse|mqueue.*|hugepages.*|loop-control|char/.*|kfd|accel.*|gpiochip\w*|spidev.*|lp\w*)$"
)
_SENSITIVE = re.compile(
    r"(?:^|/)(?:\.ssh(?:/.*)?|\.gnupg(?:/.*)?|\.aws/.*|\.kube/config|\.docker/config\.json|\.netrc|\.pgpass|\.npmrc|\.pypirc"
    r"|\.git-credentials|\.bashrc|\.bash_profile|\.bash_login|\.bash_logout|\.profile|\.zshrc|\.zprofile|\.zshenv|\.zlogin"
    r"|\.bash_aliases|\.kshrc|\.shrc|\.t?cshrc|\.login|\.config/(?:fish/config\.fish|autostart(?:/.*)?|systemd/user(?:/.*)?)|authorized_keys"
    r"|sudoers(?:\.d/.*)?|\.git/hooks/(?!.*\.sample$).*|(?:site-packages|dist-packages|\ufffc)/[^/]+\.pth"
    r"|(?:site|user)customize\.py|\.xprofile|\.xinitrc|\.xsessionrc|\.inputrc|\.pam_environment|\.config/environment\.d/.*)$"
)
_CREDENTIAL = re.compile(
    r"(?:^|/)(?:\.ssh/(?!config|known_hosts|authorized_keys|.*\.pub$)[^/]+|(?:ssh_host_\w+_key|id_(?:rsa|dsa|ecdsa|ed25519)\w*)"
    r"|\.aws/credentials|\.gnupg/(?:private.*|secring.*)|\.netrc|_netrc|\.pgpass|\.my\.cnf|\.git-credentials|\.pypirc"
    r"|\.docker/config\.json|\.kube/config|\.config/(?:gh/hosts\.yml|gcloud/.*|hub|rclone/rclone\.conf|op/.*|doctl/.*)"
    r"|\.azure/.*|\.vault-token|\.cargo/credentials(?:\.toml)?|\.gem/credentials|\.terraform\.d/credentials.*"
    r"|\.password-store/.*|\.local/share/keyrings/.*|\.mozilla/.*/(?:logins\.json|key4\.db|cookies\.sqlite)|Login Data"
    r"|\.env(?:\.(?!(?:example|sample|template|dist|defaults)(?:\.|$))[\w.-]+)?|[^/]+\.kdbx)$"
    r"|^~/\.(?:\w+_history|history)$|^/etc/(?:g?shadow-?|master\.passwd|sudoers|krb5\.keytab|ssl/private/.*|wireguard/.*|kubernetes/admin\.conf|ppp/.*-secrets)$"
    r"|^(?:/var)?/run/secrets/|^~/\.npmrc$"
)
_WELL_KNOWN = word_list("credential-files")
_PROJECT_ENV = re.compile(
    r"(?:^|/)(?:\.env(?:\.(?!(?:example|sample|template|dist)(?:\.|$))[\w.-]+)?|config\.ya?ml|\.envrc)$"
)
_HERMES = re.compile(r"(?:^|/)\.hermes/(?:config\.yaml|\.env|auth\.json)$")
_SYSTEM = re.compile(
    r"/(?:private/etc|private/var(?!/(?:folders|tmp)(?:/|$))|etc|boot|usr|bin|sbin|lib|lib64|sys|proc/sys(?:rq-trigger)?"
    r"|var/lib|var/spool/(?:cron|mail)|var/mail|System|Library)(?:/|$)"
)

_OWN_ROOT = re.compile(r"^/(?:proc/(?:self|thread-self|\d+)(?:/task/\d+)?/root|run/host)(?=/|$)")
"""The root directory by another name."""
_ABOVE = re.compile(r"(?:\.\.(?:/|$)){3,}")
_TOP = re.compile(r"(?:etc|usr|boot|proc|sys|root)(?:/|$)")
"""Names in the root directory: a path that goes up and then names one of them starts at the root."""


def resolve_place(command: ShellCommand, path: str) -> str:
    """Return a path normalized, and absolute when the directory of the command is known."""
    if command.cwd and not path.startswith(("/", "~")):
        path = posixpath.join(command.cwd, path)
    trailing = path.endswith("/")
    if path.startswith("~/") and ".." in path:  # `~/..` is above the home
        above = posixpath.normpath(f"/home/~{path[1:]}")
        path = above.removeprefix("/home/") if above.startswith("/home/~") else above
    path = posixpath.normpath(path) if path else path
    if path.startswith(("/proc/", "/run/host")):
        path = _OWN_ROOT.sub("", path) or "/"
    if path.startswith("../") and (up := _ABOVE.match(path)) and (up[0].count("..") > 4 or _TOP.match(path, up.end())):
        path = "/" + path[up.end() :]
    if path.startswith("//"):
        path = path[1:]
    return path + "/" if trailing and path not in ("/", ".") and path.startswith("~") and "/" not in path else path


def _whole(path: str) -> str:
    """Return the directory that a path like `dir/*` or `dir/.*` empties; other paths unchanged."""
    base = re.sub(r"/(?:\*\*?|\.\*|\.\[\^?!?\.\]\*|\.\.\?\*|\?+\*)$", "", path)
    return (base or "/") if base != path else path


def is_root(path: str) -> bool:
    """Return whether a path is the root directory or everything in it."""
    return _whole(path) == "/"


def is_system_directory(path: str) -> bool:
    """Return whether a path is a directory that the system needs, or everything in it."""
    whole = _whole(path).rstrip("/")
    if whole in SYSTEM_DIRECTORIES:
        return True
    return bool(re.search(r"[*?\[]", whole)) and any(
        directory.count("/") == whole.count("/") and matches_glob(directory, whole) for directory in SYSTEM_DIRECTORIES
    )


def is_vital(path: str) -> bool:
    """Return whether a path is the root or a directory that the start of the system needs, or all in it."""
    return is_root(path) or _whole(path).rstrip("/") in _VITAL


def is_emptied(path: str) -> bool:
    """Return whether a path means all files in the root or in a vital directory: `/etc/*`."""
    return _whole(path) != path and is_vital(path)


def is_home(path: str) -> bool:
    """Return whether a path is the home directory of a user."""
    return bool(re.fullmatch(rf"~[\w{UNKNOWN}-]*|/home/[^/*]+|/Users/[^/*]+|/root", _whole(path.rstrip("/") or "/")))


def is_block_device(path: str) -> bool:
    """Return whether a path is a device that holds data."""
    return path.startswith("/dev/") and not _SAFE_DEVICES.match(path)


def is_system(path: str) -> bool:
    """Return whether a path belongs to the operating system."""
    return bool(_SYSTEM.match(path)) and not path.startswith("/usr/local/src")


def _meanings(path: str) -> Iterator[str]:
    """Yield a path, and for one with a glob the well-known files of credentials that it may name."""
    yield path
    if not has_glob(path):
        return
    yield re.sub(r"\[([^\]!^-])\]", r"\1", path)
    pattern = path.split("/")
    for known in _WELL_KNOWN:
        parts = known.split("/")
        if len(parts) == len(pattern) and all(map(_may_mean, parts, pattern)):
            yield known


def _may_mean(name: str, pattern: str) -> bool:
    """Return whether a glob matches a name; `*` and `?` match no leading dot."""
    return matches_glob(name, pattern) and (name[:1] != "." or pattern[:1] in (".", "[") or pattern == name)


def is_sensitive(path: str) -> bool:
    """Return whether a path holds credentials, or code that a login shell runs."""
    return any(map(_SENSITIVE.search, _meanings(path)))


def is_credential(path: str) -> bool:
    """Return whether a path is a file with keys, passwords or tokens."""
    return any(map(_CREDENTIAL.search, _meanings(path)))


def is_project_env(path: str) -> bool:
    """Return whether a path has the settings or keys of a project."""
    return bool(_PROJECT_ENV.search(path))


def is_hermes_config(path: str) -> bool:
    """Return whether a path is a configuration file of the agent."""
    return bool(_HERMES.search(path))


def is_temporary(path: str) -> bool:
    """Return whether a path is in a directory of temporary files."""
    return bool(re.match(r"(?:/tmp|/var/tmp|/private/tmp|/dev/shm)/[^*?\[]", path))


_OF_LINKS = frozenset({"ln", "ls", "mv", "readlink", "rm", "rmdir", "stat", "unlink"})
"""Programs that act on a link itself, and not on its target."""
MOST_STEPS = 8


_COPIERS = frozenset({"cp", "gcp", "mv", "gmv", "install", "ln", "rsync"})
_PROGRAM = re.compile(r"(?:/usr(?:/local)?|/run/current-system/sw)?/s?bin/([\w.+-]+)$")
"""An installed program; the group is its name."""


class Links:
    """The links, the mounts and the copies of programs that the commands of a script have made so far."""

    def __init__(self) -> None:
        self._targets: dict[str, str] = {}
        self._mounted: set[str] = set()
        self._programs: dict[str, str] = {}
        """Installed programs by the paths of their copies."""

    def record(self, command: ShellCommand) -> None:
        """Record the links and mounts of a command."""
        operands = command.operands
        self._record_program(command)
        if command.name == "ln" and command.has_flag("s", "--symbolic") and operands:
            name = operands[1] if len(operands) > 1 else posixpath.basename(operands[0])
            self._add(command, operands[0], name)
        elif command.name == "mount" and len(operands) > 1 and "bind" in command.text:
            self._add(command, operands[-2], operands[-1])
            self._mounted.add(resolve_place(command, operands[-1]))

    def _record_program(self, command: ShellCommand) -> None:
        """Record a program that is copied, linked or moved to another name."""
        written = [r.target.text for r in command.redirects if r.writes]
        pairs = dict(arg.partition("=")[::2] for arg in command.args if "=" in arg)
        if command.name in _COPIERS and len(command.operands) > 1:
            sources, target = command.operands[:-1], command.operands[-1]
        elif command.name == "cat" and written:
            sources, target = command.operands[:1], written[-1]
        elif command.name == "dd" and "if" in pairs and "of" in pairs:
            sources, target = (pairs["if"],), pairs["of"]
        else:
            return
        found = {word.text for word in command.words if word.substituted}  # `$(which rm)` is known by its name
        for source in sources:
            place = f"/bin/{source}" if source in found and "/" not in source else resolve_place(command, source)
            if match := _PROGRAM.match(place):
                for name in (target, posixpath.join(target, match[1])):
                    self._programs[resolve_place(command, name)] = match[1]

    def _add(self, command: ShellCommand, target: str, name: str) -> None:
        link = resolve_place(command, name)
        from_link = posixpath.join(posixpath.dirname(link), target)
        self._targets[link] = target if target.startswith(("/", "~")) else posixpath.normpath(from_link)
        if name.endswith("/"):
            self._targets[posixpath.join(link, posixpath.basename(target))] = self._targets[link]

    def resolve(self, command: ShellCommand) -> ShellCommand | None:
        """Return the command with links replaced by their targets, or None when it names no link."""
        if not command.words:
            return None
        if self._programs and "/" in command.words[0].text:
            name = self._programs.get(resolve_place(command, command.words[0].text))
            if name is not None:
                return replace(command, words=(ShellWord(name), *command.words[1:]))
        if not self._targets:
            return None
        words = tuple(word._replace(text=self._resolve_path(command, word)) for word in command.words[1:])
        redirects = tuple(
            r._replace(target=r.target._replace(text=self._resolve_path(command, r.target))) for r in command.redirects
        )
        if words == command.words[1:] and redirects == command.redirects:
            return None
        return replace(command, words=(command.words[0], *words), redirects=redirects)

    def _resolve_path(self, command: ShellCommand, word: ShellWord) -> str:
        option, equals, value = word.text.rpartition("=")
        path = resolve_place(command, value)
        if value.endswith("/") or command.name not in _OF_LINKS or path in self._mounted:
            path = self._targets.get(path, path)
        for _ in range(MOST_STEPS):
            link = next((link for link in self._targets if path.startswith(f"{link}/")), None)
            if link is None:
                break
            path = posixpath.normpath(self._targets[link] + path[len(link) :])
        return f"{option}{equals}{path}" if path != resolve_place(command, value) else word.text
