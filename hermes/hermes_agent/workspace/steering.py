"""Steering files: what other programs of the user run or obey later, without being asked. One table for all tools.

`write_file` and `patch` ask about each content of such a file (`Places.write_concern`); a command in the sandbox can
neither change nor make one (`steering_watch`). What runs only when the user builds or starts the project (a Makefile,
`package.json`, a virtual environment) is not in the table: ordinary rules hold for it. Imports the standard library
alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator

__all__ = [
    "ANYWHERE",
    "GIT_FILES",
    "HELD",
    "IN_HOME",
    "is_git_directory",
    "is_harmless_key",
    "is_of_home",
    "steering_reason",
    "is_steering_name",
]

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
