"""Which place a path of a command names.

Other names that a script gives to a place: links and mounts, through which its later commands write and delete.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from fnmatch import fnmatchcase

from hermes_agent.policy.shell.script import ShellCommand, ShellWord

SYSTEM_DIRECTORIES = frozenset(
    [
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/home",
        "/lib",
        "/lib32",
        "/lib64",
        "/nix",
        "/opt",
        "/proc",
        "/root",
        "/run",
        "/sbin",
        "/srv",
        "/sys",
        "/usr",
        "/var",
        "/Applications",
        "/Library",
        "/System",
        "/Users",
        "/usr/bin",
        "/usr/lib",
        "/usr/local",
        "/usr/local/bin",
        "/usr/sbin",
        "/usr/share",
        "/var/lib",
        "/var/log",
        "/nix/store",
        "/etc/nixos",
    ]
)
_SAFE_DEVICES = re.compile(
    r"/dev/(?:null|zero|full|random|urandom|tty\w*|pts(?:/.*)?|stdin|stdout|stderr|fd(?:/.*)?|shm(?:/.*)?|ptmx|(?:tcp|udp)/.*|video\w*"
    r"|dri(?:/.*)?|kvm|snd(?:/.*)?|i2c.*|fuse|net(?:/.*)?|input(?:/.*)?|rtc\w*|log|console|nvidia.*|bus(?:/.*)?|serial/.*|hidraw\w*|vhost.*"
    r"|media\w*|usb.*|tpm\w*|uinput|vfio.*|n?st\d+|cuse|mqueue.*|hugepages.*|loop-control|char/.*|kfd|accel.*|gpiochip\w*|spidev.*|lp\w*)$"
)
_SENSITIVE = re.compile(
    r"(?:^|/)(?:\.ssh(?:/.*)?|\.gnupg(?:/.*)?|\.aws/.*|\.kube/config|\.docker/config\.json|\.netrc|\.pgpass|\.npmrc|\.pypirc"
    r"|\.git-credentials|\.bashrc|\.bash_profile|\.bash_login|\.bash_logout|\.profile|\.zshrc|\.zprofile|\.zshenv|\.zlogin"
    r"|\.bash_aliases|\.kshrc|\.config/(?:fish/config\.fish|autostart(?:/.*)?|systemd/user(?:/.*)?)|authorized_keys"
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
    r"|^/etc/(?:g?shadow-?|sudoers|krb5\.keytab|ssl/private/.*|wireguard/.*|kubernetes/admin\.conf|ppp/.*-secrets)$"
    r"|^(?:/var)?/run/secrets/|^~/\.npmrc$"
)
_PROJECT_ENV = re.compile(
    r"(?:^|/)(?:\.env(?:\.(?!(?:example|sample|template|dist)(?:\.|$))[\w.-]+)?|config\.ya?ml|\.envrc)$"
)
_HERMES = re.compile(r"(?:^|/)\.hermes/(?:config\.yaml|\.env|auth\.json)$")
_SYSTEM = re.compile(
    r"/(?:etc|boot|usr|bin|sbin|lib|lib64|sys|proc/sys(?:rq-trigger)?|var/lib|var/spool/cron|System|Library)(?:/|$)"
)

_ABOVE = re.compile(r"(?:\.\.(?:/|$)){3,}")
_TOP = re.compile(r"(?:etc|usr|boot|proc|sys|root)(?:/|$)")
"""So far above the working directory that it is taken for the root, or where the root's own names stand."""


def resolve_place(command: ShellCommand, path: str) -> str:
    """Return the path without detours, absolute where the command's directory is known."""
    if command.cwd and not path.startswith(("/", "~")):
        path = posixpath.join(command.cwd, path)
    trailing = path.endswith("/")
    if path.startswith("~/") and ".." in path:  # `~/..` is above the home
        above = posixpath.normpath(f"/home/~{path[1:]}")
        path = above.removeprefix("/home/") if above.startswith("/home/~") else above
    path = posixpath.normpath(path) if path else path
    if path.startswith("../") and (up := _ABOVE.match(path)) and (up[0].count("..") > 4 or _TOP.match(path, up.end())):
        path = "/" + path[up.end() :]
    if path.startswith("//"):
        path = path[1:]
    return path + "/" if trailing and path not in ("/", ".") and path.startswith("~") and "/" not in path else path


def _whole(path: str) -> str:
    """Return the directory that `dir/*`, `dir/.*`, `dir/{*,.*}` empties; other paths as they are."""
    base = re.sub(r"/(?:\*\*?|\.\*|\.\[\^?!?\.\]\*|\.\.\?\*|\?+\*)$", "", path)
    return (base or "/") if base != path else path


def is_root(path: str) -> bool:
    """Say whether it is the root directory or everything in it."""
    return _whole(path) == "/"


def is_system_directory(path: str) -> bool:
    """Say whether it is a directory that the system cannot do without, or everything in it."""
    whole = _whole(path).rstrip("/")
    if whole in SYSTEM_DIRECTORIES:
        return True
    return bool(re.search(r"[*?\[]", whole)) and any(
        directory.count("/") == whole.count("/") and fnmatchcase(directory, whole) for directory in SYSTEM_DIRECTORIES
    )


def is_home(path: str) -> bool:
    """Say whether it is somebody's whole home directory."""
    return bool(re.fullmatch(r"~[\w-]*|/home/[^/*]+|/Users/[^/*]+|/root", _whole(path.rstrip("/") or "/")))


def is_block_device(path: str) -> bool:
    """Say whether it is a device that holds data."""
    return path.startswith("/dev/") and not _SAFE_DEVICES.match(path)


def is_system(path: str) -> bool:
    """Say whether it belongs to the operating system."""
    return bool(_SYSTEM.match(path)) and not path.startswith("/usr/local/src")


def is_sensitive(path: str) -> bool:
    """Say whether it holds credentials, or what a login shell runs."""
    return bool(_SENSITIVE.search(path))


def is_credential(path: str) -> bool:
    """Say whether it is a file that holds keys, passwords or tokens."""
    return bool(_CREDENTIAL.search(path))


def is_project_env(path: str) -> bool:
    """Say whether it holds a project's settings or keys."""
    return bool(_PROJECT_ENV.search(path))


def is_hermes_config(path: str) -> bool:
    """Say whether it is the agent's own configuration."""
    return bool(_HERMES.search(path))


def is_temporary(path: str) -> bool:
    """Say whether it lies where nothing is kept."""
    return bool(re.match(r"(?:/tmp|/var/tmp|/private/tmp|/dev/shm)/[^*?\[]", path))


_OF_LINKS = frozenset({"ln", "ls", "mv", "readlink", "rm", "rmdir", "stat", "unlink"})
"""Programs that take a link for itself, and not for what it leads to."""
MOST_STEPS = 8


class Links:
    """The links and mounts that the commands of a script made so far."""

    def __init__(self) -> None:
        self._targets: dict[str, str] = {}
        self._mounted: set[str] = set()

    def record(self, command: ShellCommand) -> None:
        """Remember what a command links or mounts."""
        operands = command.operands
        if command.name == "ln" and command.has_flag("s", "--symbolic") and operands:
            name = operands[1] if len(operands) > 1 else posixpath.basename(operands[0])
            self._add(command, operands[0], name)
        elif command.name == "mount" and len(operands) > 1 and "bind" in command.text:
            self._add(command, operands[-2], operands[-1])
            self._mounted.add(resolve_place(command, operands[-1]))

    def _add(self, command: ShellCommand, target: str, name: str) -> None:
        link = resolve_place(command, name)
        beside = posixpath.join(posixpath.dirname(link), target)
        self._targets[link] = target if target.startswith(("/", "~")) else posixpath.normpath(beside)
        if name.endswith("/"):
            self._targets[posixpath.join(link, posixpath.basename(target))] = self._targets[link]

    def resolve(self, command: ShellCommand) -> ShellCommand | None:
        """Return the command with the places that its paths lead to; None where it names no link."""
        if not self._targets or not command.words:
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
