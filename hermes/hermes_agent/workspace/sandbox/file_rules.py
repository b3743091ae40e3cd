"""The table of what the sandbox and the file tools show of the file system: what is not listed here is not there.

Data and pure functions. Imports the standard library alone: the search process loads it on its own.

Secrets of the system's services that root may read: files in `/etc` and beside it that other users may not.

An agent that runs as root has no more business with them than any other user. Imports the standard library alone.

Steering files: what other programs of the user run or obey later, without being asked. One table for all tools.

`write_file` and `patch` ask about each content of such a file (`Places.write_concern`); a command in the sandbox can
neither change nor make one (`steering_watch`). What runs only when the user builds or starts the project (a Makefile,
`package.json`, a virtual environment) is not in the table: ordinary rules hold for it. Imports the standard library
alone.

The settings of a repository: read as git reads them, and written again. Imports the standard library alone.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

SYSTEM = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc", "/opt", "/snap", "/sys"),
    *("/nix/store", "/nix/var/nix/profiles", "/gnu/store", "/home/linuxbrew/.linuxbrew"),
    *("/run/current-system", "/run/booted-system", "/run/opengl-driver"),
    *("/var/lib/dpkg", "/var/lib/rpm", "/var/lib/pacman", "/var/lib/texmf", "/var/cache/fontconfig", "/var/log"),
)
"""Programs, their settings and logs, as far as the agent's user may read them; for root: as far as others may."""
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
"""The file tools see the machine's; commands in the sandbox have their own, empty ones."""
HOMES = ("/home", "/root", "/Users", "/var/home")

SHOWN_OF_HOME = (
    *(".rustup", ".cargo/bin", ".cargo/env", ".cargo/git", ".cargo/registry"),
    *(".pyenv", ".rye", ".pixi/bin", ".pixi/envs", ".virtualenvs", ".local/share/virtualenvs", ".local/share/uv"),
    *(".local/share/pipx", ".local/share/pypoetry", ".local/bin", ".local/lib"),
    *(".nvm", ".fnm", ".local/share/fnm", ".volta/bin", ".volta/tools", ".bun/bin", ".bun/install", ".deno/bin"),
    *(".npm-global", ".npm/_cacache", ".yarn/bin", ".local/share/pnpm"),
    *(".goenv", ".gvm", ".rbenv", ".rvm", ".gem/ruby", ".asdf", ".local/share/mise"),
    *(".sdkman/bin", ".sdkman/candidates", ".jenv", ".jbang/bin", ".m2/repository", ".m2/wrapper"),
    *(".gradle/caches", ".gradle/wrapper", ".ivy2/cache"),
    *(".ghcup", ".cabal/bin", ".cabal/packages", ".stack/programs", ".opam", ".elan", ".juliaup"),
    *(".julia/artifacts", ".julia/compiled", ".julia/packages", ".dotnet", ".nuget/packages", ".mix", ".luarocks"),
    *(".composer/vendor", ".config/composer/vendor", ".foundry/bin", ".krew/bin", ".tfenv", ".pub-cache/bin"),
    *(".nix-profile", ".nix-defexpr", ".local/state/nix/profiles", ".guix-profile"),
    *(".config/git/attributes", ".config/git/ignore", ".gitignore"),
)
"""Hidden entries of the user's home that are shown: toolchains, without the files that hold their credentials."""
CACHES = (
    *(".cache/huggingface/hub", ".cache/torch", ".cache/ms-playwright", ".cache/puppeteer", ".cache/electron"),
    ".cache/fontconfig",
)
"""Caches that are of use without being written."""
TEMPORARY_CACHE = ".cache"
"""Commands have their own, empty one, with `CACHES` in it."""
WITHHELD = ("snap", "Library")
"""Entries of a home that are not hidden by their name, and hold what programs keep: profiles of browsers."""


def is_inside(path: str, directory: str) -> bool:
    """Say whether a resolved path is `directory` or lies in it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def is_above(path: str, place: str) -> bool:
    """Say whether a resolved path is a directory on the way to `place`."""
    return path != place and is_inside(place, path)


def is_shown_of_home(place: str) -> bool:
    """Say whether a path below the user's home, relative to it, is shown; empty for the home itself."""
    top = place.partition("/")[0]
    if not top:
        return True
    if not top.startswith("."):
        return top not in WITHHELD
    return any(is_inside(place, shown) for shown in (*SHOWN_OF_HOME, *CACHES))


_BASES = {"/etc": 99, "/usr/local/etc": 99, "/var/log": 99, "/opt": 3}
"""Where they lie, and how deep they are looked for."""


def others_may_read(path: str) -> bool:
    """Say whether every user may read a path of these directories; true elsewhere, and where there is no such path."""
    base = next((base for base in _BASES if is_inside(path, base)), None)
    if base is None:
        return True
    places = [base]
    for name in filter(None, path[len(base) :].split("/")):
        places.append(f"{places[-1]}/{name}")
    try:
        return not any(_is_closed(os.lstat(place).st_mode) for place in places)
    except OSError:
        return True


def _is_closed(mode: int) -> bool:
    if stat.S_ISDIR(mode):
        return not mode & stat.S_IXOTH
    return stat.S_ISREG(mode) and not mode & stat.S_IROTH


class Protected:
    """The list of them. It is made anew when a directory has changed; a mere `chmod` counts from the next start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._directories: dict[str, int] = {}
        self._found: tuple[str, ...] = ()

    def paths(self) -> tuple[str, ...]:
        """Return files, and directories as a whole."""
        with self._lock:
            if not self._directories or any(_change_time(path) != time for path, time in self._directories.items()):
                self._directories = {}
                self._found = tuple(path for base, depth in _BASES.items() for path in self._below(base, depth))
            return self._found

    def _below(self, directory: str, depth: int) -> list[str]:
        self._directories[directory] = _change_time(directory)
        try:
            entries = list(os.scandir(directory))
        except OSError:
            return []
        found: list[str] = []
        for entry in entries:
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except OSError:  # gone meanwhile
                continue
            if _is_closed(mode):
                found.append(entry.path)
            elif stat.S_ISDIR(mode) and depth > 1:
                found += self._below(entry.path, depth - 1)
        return found


def _change_time(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - some hundreds for each command
    except OSError:
        return -1


_ANYWHERE = """
    .envrc .autoenv .autoenv.zsh .vscode .idea .zed .fleet .devcontainer .devcontainer.json .cursor .claude .mcp.json
    .codex .gemini .helix .lapce .nova .vs .externaltoolbuilders .ycm_extra_conf.py
    .exrc _exrc .vimrc _vimrc .gvimrc .nvimrc .nvim.lua .lvimrc .dir-locals.el .dir-locals-2.el .emacs.desktop
    .gdbinit .gdbearlyinit .lldbinit .pdbrc .irbrc .pryrc .iex.exs .ghci .rprofile .renviron .octaverc
"""
ANYWHERE = frozenset(_ANYWHERE.split())
"""Names that count in every directory: editors, debuggers, interpreters, shells and other agents look for them where
they start. In small letters: some file systems make no difference."""
_SUFFIXES = (".code-workspace",)

_IN_HOME = """
    .profile .bash_profile .bash_login .bash_logout .bashrc .bashrc.d .bash_aliases .bash_completion .inputrc
    .zshenv .zprofile .zshrc .zlogin .zlogout .zsh .oh-my-zsh .kshrc .mkshrc .tcshrc .cshrc .login .logout
    .config/fish .config/nushell .config/powershell .config/zsh .config/bash .config/starship.toml
    .gitconfig .gitattributes .config/git .hgrc .config/hg .ssh .gnupg
    .config/systemd .config/autostart .config/autostart-scripts .config/environment.d .config/plasma-workspace
    .config/upstart .config/user-tmpfiles.d .config/xdg-desktop-portal .config/dconf
    .config/i3 .config/sway .config/hypr
    .local/share/systemd .local/share/applications .local/share/dbus-1 .local/share/autostart .local/share/kservices5
    .local/share/nautilus .local/share/gnome-shell
    .xprofile .xsession .xsessionrc .xinitrc .xserverrc .Xresources .pam_environment .environment .forward .procmailrc
    .vim .vimrc .gvimrc .config/nvim .config/vim .emacs .emacs.d .config/emacs .nanorc .tmux.conf .config/tmux .screenrc
    .config/Code .config/VSCodium .config/JetBrains .config/zed .lesskey .lessfilter .psqlrc .sqliterc .Rprofile
    .pythonrc.py .pythonrc .config/pip .pip .npmrc .yarnrc .yarnrc.yml .cargo/config .cargo/config.toml .gemrc .irbrc
    .config/direnv .docker .config/containers .kube .aws .local/bin bin
"""
IN_HOME = tuple(_IN_HOME.split())
"""Entries of a home directory, whole. The first component of PATH is often `~/bin` or `~/.local/bin`."""

GIT_FILES = ("config", "config.worktree", "hooks", "commondir")
"""What steers git in a git directory, which is known by what is in it: a bare repository needs no name."""
HELD = ".held"
"""Ends the name of what was set aside."""

_HARMLESS = {
    "advice": "*",
    "author": "name email",
    "branch": "remote merge rebase pushremote description autosetuprebase autosetupmerge sort gh-merge-base"
    " vscode-merge-base",
    "color": "ui branch diff interactive status",
    "commit": "gpgsign verbose",
    "committer": "name email",
    "core": "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks autocrlf eol"
    " safecrlf quotepath abbrev compression sparsecheckout sparsecheckoutcone bigfilethreshold untrackedcache"
    " preloadindex trustctime checkstat sharedrepository commentchar whitespace longpaths hidedotfiles",
    "diff": "algorithm renames renamelimit colormoved mnemonicprefix context",
    "extensions": "objectformat compatobjectformat refstorage noop noop-v1 partialclone worktreeconfig preciousobjects"
    " relativeworktrees",
    "feature": "manyfiles experimental",
    "fetch": "prune prunetags parallel writecommitgraph recursesubmodules",
    "gc": "auto autodetach autopacklimit",
    "index": "version threads sparse skiphash",
    "init": "defaultbranch",
    "lfs": "repositoryformatversion",
    "log": "date decorate abbrevcommit",
    "maintenance": "auto strategy",
    "merge": "ff conflictstyle renames renamelimit",
    "pack": "threads windowmemory usebitmaps",
    "pull": "rebase ff",
    "push": "default autosetupremote followtags recursesubmodules",
    "rebase": "autosquash autostash updaterefs",
    "remote": "url fetch push pushurl pushdefault tagopt prune prunetags mirror promisor partialclonefilter"
    " skipfetchall skipdefaultupdate followremotehead",
    "rerere": "enabled autoupdate",
    "status": "showuntrackedfiles branch short",
    "submodule": "url active branch ignore fetchrecursesubmodules recurse shallow",
    "tag": "gpgsign sort",
    "user": "name email",
}
"""Keys of a repository's config that run nothing, by section; every other key counts as one that does."""
_HELPER_URL = re.compile(r"(?:ext|fd)::", re.IGNORECASE)


def is_steering_name(name: str) -> bool:
    """Say whether an entry of that name steers other programs, wherever it is."""
    name = name.lower()
    return name in ANYWHERE or name.endswith(_SUFFIXES)


def is_git_directory(names: Collection[str]) -> bool:
    """Say whether git may take a directory with these names for a repository, or for a part of one."""
    return ("objects" in names and "refs" in names) or ("HEAD" in names and "commondir" in names)


def is_harmless_key(key: str, value: str) -> bool:
    """Say whether a setting of a repository (`section.subsection.key`, as git lists it) can run nothing."""
    section, _, rest = key.partition(".")
    allowed = _HARMLESS.get(section, "").split()
    if "*" not in allowed and rest.rpartition(".")[2] not in allowed:
        return False
    return _HELPER_URL.match(value) is None


def is_of_home(path: str, home: str) -> bool:
    """Say whether a resolved path is in, or holds, an entry of the home that steers other programs."""
    if home == "/":
        return False
    return any(_is_inside(path, f"{home}/{name}") or _is_inside(f"{home}/{name}", path) for name in IN_HOME)


def steering_reason(target: str, home: str) -> str:
    """Return where a resolved file lies that steers other programs, in words; empty when it does not."""
    if target != home and is_of_home(target, home):
        return "that the user's shell, desktop or other programs run or obey"
    parts = target.split("/")
    for name in (".git", ".hg"):
        if name in parts:
            return f"in a repository's {name} directory"
    if name := next(filter(is_steering_name, parts), ""):
        return f"in {name}, which other programs of the user obey"
    return "in a git repository without a work tree" if any(_completes(*step) for step in _steps(target)) else ""


def _steps(target: str) -> Iterator[tuple[str, str]]:
    """Yield the directories above a file, each with the name in it that leads to the file."""
    directory, name = os.path.split(target)
    while name:
        yield directory, name
        directory, name = os.path.split(directory)


def _completes(directory: str, name: str) -> bool:
    """Say whether an entry belongs to a git directory, or makes one of a directory that has what steers git."""
    if name not in (*GIT_FILES, "HEAD", "objects", "refs"):
        return False
    try:
        names = {*os.listdir(directory), name}  # noqa: PTH208 - text
    except OSError:
        return False
    return is_git_directory(names) and any(file in names for file in GIT_FILES)


def _is_inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


MOST_BYTES = 1_000_000
_SECTION = re.compile(r"\s*\[\s*([A-Za-z0-9.-]+)")
_VALUE = re.compile(r"(?:^|\])\s*(hookspath|path)\s*=\s*\"?([^\"#;\n]+)", re.IGNORECASE)


def parse_settings(text: str) -> list[tuple[str, str | None]] | None:
    """Return the settings of a config as git reads them; None where it cannot."""
    try:
        done = subprocess.run(
            ["git", "config", "--file", "-", "--no-includes", "--list", "-z"],
            input=text.encode("latin-1"), capture_output=True, timeout=10, check=False, cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    entries = done.stdout.decode("latin-1").split("\0")[:-1]
    parts = (entry.partition("\n") for entry in entries)
    return [(key, value if divided else None) for key, divided, value in parts]


def format_settings(pairs: list[tuple[str, str | None]]) -> bytes:
    """Return a config with these settings."""
    lines = []
    for key, value in pairs:
        section, _, rest = key.partition(".")
        sub, _, name = rest.rpartition(".")
        quoted = sub.replace("\\", "\\\\").replace('"', '\\"')
        text = (value or "").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        lines.append(f'[{section} "{quoted}"]' if sub else f"[{section}]")
        lines.append(f"\t{name}" if value is None else f'\t{name} = "{text}"')
    return "".join(f"{line}\n" for line in lines).encode("latin-1")


def named_paths(text: str, work: str, git: str) -> Iterator[tuple[str, str]]:
    """Yield what a config takes hooks and further settings from, with its kind.

    Args:
        work: the directory that a path of hooks counts from.
        git: the directory of the config, which that of an included file counts from.
    """
    section = ""
    for line in text.splitlines():
        if found := _SECTION.match(line):
            section = found[1].lower()
        if (value := _VALUE.search(line)) is None:
            continue
        name, path = value[1].lower(), value[2].strip()
        if name == "hookspath" and section == "core":
            place = os.path.join(work, path)  # noqa: PTH118 - text
            yield place, "hooks"
            if place.endswith("/_"):  # the hooks that these call lie above
                yield place[:-2], "hooks"
        elif name == "path" and section in ("include", "includeif"):
            yield os.path.join(git, path), "named"  # noqa: PTH118


def paths_around(root: str) -> Iterator[tuple[str, str]]:
    """Yield what lies below a directory and steers a repository above it, or whose config is elsewhere."""
    for work in (root, *(str(parent) for parent in Path(root).parents)):
        for git in _git_directories(work):
            for path, kind in named_paths(_text(f"{git}/config"), work, git):
                full = os.path.normpath(path)
                if full.startswith(f"{root}/"):
                    yield full[len(root) + 1 :], kind
    home = os.path.expanduser("~")  # noqa: PTH111
    for file in (f"{home}/.gitconfig", f"{home}/.config/git/config"):
        for path, kind in named_paths(_text(file), root, os.path.dirname(file)):  # noqa: PTH120
            full = os.path.normpath(os.path.expanduser(path))  # noqa: PTH111
            if full.startswith(f"{root}/"):
                yield full[len(root) + 1 :], kind


def _git_directories(work: str) -> Iterator[str]:
    """Yield the directories with the config of the repository that has its work tree here."""
    if os.path.isdir(f"{work}/.git"):  # noqa: PTH112
        yield f"{work}/.git"
        return
    link = _text(f"{work}/.git")
    if link.startswith("gitdir:"):
        git = os.path.join(work, link.removeprefix("gitdir:").strip())  # noqa: PTH118
        yield git
        if common := _text(f"{git}/commondir").strip():
            yield os.path.normpath(os.path.join(git, common))  # noqa: PTH118


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read(MOST_BYTES)
    except (OSError, ValueError):
        return ""
