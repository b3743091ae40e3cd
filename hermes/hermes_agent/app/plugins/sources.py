"""Sources of plugins: parse what the user typed, fetch from git, copy a directory, unpack an archive.

Nothing here asks or prints. Git runs with a fixed configuration, depth 1, and without hooks, templates, filters,
submodules, prompts or the user's settings; only listed protocols are allowed. Archives and directories are untrusted:
size, number of files and growth are limited, and no file or link may lead out of the target. Source of the forms:
plugin contract §1.13.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tarfile
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal
from urllib.parse import urlsplit, urlunsplit

from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.system.processes import run, tool_environment

GITHUB = "https://github.com/"
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
SCHEMES = ("https", "http", "ssh", "git", "file")
FORMS = (
    "Forms: owner/repo[/subdir], a git URL (…#subdir, …@ref), a directory, an archive (.zip, .tar.gz, …), "
    "a wheel, pip:NAME."
)

_SHORT = re.compile(r"(\w[\w.-]*)/(\w[\w.-]*?)(?:\.git)?((?:/[\w. -]+)*)(?:@([^\s#@]+))?(?:#(.+))?")
_SCP = re.compile(r"[\w.-]+@[\w.-]+:(?!//)\S+")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[\w., -]+\])?\s*((===?|~=|!=|[<>]=?).+|@\s*\S+)?")


class PluginSource(LazyNamedTuple):
    """Where a plugin comes from."""

    kind: Literal["git", "directory", "archive", "pip"]
    location: str
    """URL, absolute path, or requirement for pip."""
    ref: str = ""
    """Branch, tag or commit; "" for the default branch."""
    subdir: str = ""

    @property
    def label(self) -> str:
        """Return the source as shown to the user, without a password."""
        text = _without_password(self.location)
        if self.ref:
            text += f"@{self.ref}"
        return f"{text}#{self.subdir}" if self.subdir else text

    def as_origin(self) -> dict[str, Any]:
        """Return the source as JSON types for the grant store, without a password."""
        where = _without_password(self.location)
        return {"kind": self.kind, "source": where, "ref": self.ref, "subdir": self.subdir}

    @classmethod
    def of_origin(cls, origin: Any) -> PluginSource | None:
        """Return the source that `as_origin` encoded, or None if `origin` has none."""
        if origin.get("kind") not in ("git", "directory", "archive", "pip") or not origin.get("source"):
            return None
        return cls(origin["kind"], origin["source"], origin.get("ref", ""), origin.get("subdir", ""))


def parse_source(text: str, *, ref: str = "", cwd: Path) -> PluginSource:
    """Parse the source of a plugin.

    Args:
        ref: value of `--ref`; it must not contradict a ref in `text`.
        cwd: folder that relative paths start from.

    Raises:
        UserError: `text` has none of the known forms.
    """
    source = _parse(text.strip(), cwd)
    if ref:
        if source.kind != "git":
            raise UserError(f"--ref is for git; {text} is a {source.kind}")
        if source.ref not in ("", ref):
            raise UserError(f"{text} names {source.ref!r} and --ref {ref!r}", hint="Name one of them.")
        source = source._replace(ref=ref)
    _check(source, text)
    return source


def _parse(text: str, cwd: Path) -> PluginSource:
    if text.startswith("pip:"):
        return PluginSource("pip", text.removeprefix("pip:").strip())
    local = _local(text, cwd)
    if local is not None:
        return local
    if "://" in text or _SCP.fullmatch(text):
        return _git_url(text.removeprefix("git+"))
    short = _SHORT.fullmatch(text)
    if short is not None and not text.startswith("."):
        owner, repo, below, ref, subdir = short.groups()
        return PluginSource("git", f"{GITHUB}{owner}/{repo}.git", ref or "", (subdir or below or "").strip("/"))
    if "/" not in text and _REQUIREMENT.fullmatch(text):
        return PluginSource("pip", text)
    raise UserError(f"{text!r} is no source of a plugin that is known here", hint=FORMS)


def _local(text: str, cwd: Path) -> PluginSource | None:
    path_text, _, subdir = text.partition("#")
    path = cwd / Path(path_text).expanduser()
    meant = text.startswith((".", "/", "~"))
    if path.is_dir() and (meant or path_text):
        return PluginSource("directory", str(path.resolve()), subdir=subdir.strip("/"))
    if path.is_file():
        if path.name.endswith(".whl"):
            return PluginSource("pip", str(path.resolve()))
        if path.name.lower().endswith(ARCHIVES):
            return PluginSource("archive", str(path.resolve()), subdir=subdir.strip("/"))
        raise UserError(f"{path} is neither a directory nor an archive", hint=FORMS)
    if meant:
        raise UserError(f"{path} is not there", hint=FORMS)
    return None


def _git_url(text: str) -> PluginSource:
    url, _, subdir = text.partition("#")
    ref = ""
    head, at, tail = url.rpartition("@")
    after_host = head.partition("://")[2] if "://" in head else head.partition(":")[2]
    if at and "/" in after_host:  # otherwise `@` ends the user name in `user@host`
        url, ref = head, tail
    parts = urlsplit(url) if "://" in url else None
    if parts is not None:
        if parts.scheme not in SCHEMES:
            raise UserError(f"{text}: {parts.scheme}:// is no way to fetch a plugin", hint=FORMS)
        tree = re.fullmatch(r"(/[^/]+/[^/]+)/tree/([^/]+)(?:/(.+))?", parts.path)
        if parts.hostname == "github.com" and tree is not None:
            return PluginSource("git", f"{GITHUB[:-1]}{tree[1]}.git", tree[2], (subdir or tree[3] or "").strip("/"))
    before, git, below = url.partition(".git/")
    if git and not subdir:  # …/repo.git/subdir
        url, subdir = f"{before}.git", below
    return PluginSource("git", url, ref, subdir.strip("/"))


def _check(source: PluginSource, text: str) -> None:
    if not source.location or source.location.startswith("-") or source.ref.startswith("-"):
        raise UserError(f"{text!r}: a source and a ref do not begin with `-` and are not empty", hint=FORMS)
    if ".." in source.subdir.split("/"):
        raise UserError(f"{text!r}: the folder {source.subdir!r} leads out of the source")
    if any(not c.isprintable() for c in f"{source.location}{source.ref}{source.subdir}"):
        raise UserError(f"{text!r} has control characters")


def _without_password(location: str) -> str:
    if "://" not in location:
        return location
    parts = urlsplit(location)
    if parts.password is None:
        return location
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username}@{host}"))


LIMIT_S = 600.0
"""Time limit of a fetch, in seconds; git gives up earlier after a minute below 1 kB/s."""
KEPT_BYTES = 64 * 1024
_CONFIG = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.autocrlf=false",
    "fetch.recurseSubmodules=false",
    "submodule.recurse=false",
    "credential.helper=",
    "protocol.ext.allow=never",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=60",
    "advice.detachedHead=false",
    "gc.auto=0",
)
_SECRET_NAMES = ("SSH_AUTH_SOCK",)
"""Variables that git may see: the ssh agent signs but does not reveal keys."""


def fetch_git(source: PluginSource, target: Path, tell: Callable[[bytes], None] | None = None) -> str:
    """Check out a git source into the new folder `target`, without `.git`, and return the commit.

    Args:
        tell: receives the output of git.

    Raises:
        UserError: git is not installed, or it fails; the message has its error.
    """
    program = shutil.which("git")
    if program is None:
        raise UserError(
            f"{source.label} is fetched with the program git, which is not there", hint="Install git, and try again."
        )
    target.mkdir(parents=True)
    git = GitProgram(program, target, tell)
    git("init", "--quiet", "--template=", why=source)
    progress = ("--progress",) if tell else ("--quiet",)
    git("fetch", "--depth=1", "--no-tags", *progress, "--", source.location, source.ref or "HEAD", why=source)
    git("checkout", "--quiet", "--detach", "FETCH_HEAD", why=source)
    commit = git("rev-parse", "HEAD", why=source).strip()
    shutil.rmtree(target / ".git")
    return commit


class GitProgram:
    """The program `git` with a fixed configuration, in one directory.

    Args:
        max_bytes: largest file that git may write, such as a pack; None for no limit.
    """

    def __init__(
        self,
        program: str,
        directory: Path,
        tell: Callable[[bytes], None] | None = None,
        *,
        max_bytes: int | None = None,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._program, self._directory, self._tell = program, directory, tell
        self._max_bytes, self._limit_s = max_bytes, limit_s

    def __call__(self, *arguments: str, why: PluginSource) -> str:
        """Run git and return its output.

        Raises:
            UserError: it fails, or exceeds a limit.
        """
        return self.read(*arguments, why=why).decode("utf-8", "replace")

    def read(self, *arguments: str, why: PluginSource, stdin: bytes = b"", kept_bytes: int = KEPT_BYTES) -> bytes:
        """Run git and return its output as bytes, of at most `kept_bytes`."""
        settings = [part for setting in _CONFIG for part in ("-c", setting)]
        argv = [self._program, *settings, *arguments]
        if self._max_bytes is not None:  # the limit of the kernel holds for the pack while it is received
            argv = ["/bin/sh", "-c", 'ulimit -f "$0" && exec "$@"', str(self._max_bytes // 512), *argv]
        done = run(
            argv,
            cwd=self._directory,
            env=_environment(os.environ, why.location),
            timeout_s=self._limit_s,
            output_limit_bytes=kept_bytes,
            cancelled=threading.Event(),
            on_output=self._tell,
            stdin=stdin,
        )
        text = done.output.decode("utf-8", "replace")
        if done.timed_out:
            raise UserError(f"{why.label} was not fetched within {self._limit_s:g} s", hint="Try again later.")
        if done.exit_code != 0 and self._max_bytes is not None and _TOO_LARGE.search(text):
            size = f"{self._max_bytes // 1024 // 1024} MB"
            raise UserError(f"{why.label} cannot be fetched: it is larger than {size}", hint="Fetch a smaller one.")
        if done.exit_code != 0:
            raise UserError(f"{why.label} cannot be fetched: {_last_line(text)}", hint=_hint(text, why))
        return done.output


_TOO_LARGE = re.compile(r"File too large|died of signal 25|signal 25|pack exceeds maximum")


def _environment(environ: Mapping[str, str], location: str) -> dict[str, str]:
    """Return the environment of git; from an https address no redirect leads to http."""
    schemes = [scheme for scheme in SCHEMES if scheme != "http" or not location.startswith("https:")]
    own = {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": ":".join(schemes),
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "LC_ALL": "C",
    }
    kept = {name: environ[name] for name in _SECRET_NAMES if name in environ}
    authorities = {"GIT_SSL_CAINFO": environ["SSL_CERT_FILE"]} if environ.get("SSL_CERT_FILE") else {}
    return {**authorities, **tool_environment(environ), **kept, **own}


def _last_line(text: str) -> str:
    """Return the error messages of git in one line."""
    lines = [line.strip() for line in text.replace("\r", "\n").splitlines() if line.strip()]
    messages = [line for line in lines if line.startswith(("fatal:", "error:", "remote:", "ssh:"))] or lines[-2:]
    words = " ".join(messages[-3:]) or "git said nothing"
    return "".join(c if c.isprintable() else "?" for c in words)[:500]


def _hint(text: str, source: PluginSource) -> str:
    if "couldn't find remote ref" in text:
        return "It has no such branch or tag; a commit is named by all 40 digits."
    if "certificate" in text or "SSL" in text:
        return (
            "`SSL_CERT_FILE` names a file with the authorities that are trusted, if its certificate is a private one."
        )
    if any(
        sign in text for sign in ("could not read Username", "Authentication failed", "Permission denied (publickey")
    ):
        return "It is not there, or it is private: use an ssh URL and an ssh agent that has the key."
    return "" if source.location.startswith("file:") else "Is the name right, and is there a network?"


MAX_FILES = 10_000
MAX_BYTES = 256 * 1024 * 1024
LEFT_OUT = frozenset({".git", "__pycache__", ".hg", ".svn"})


class ArchiveLimits:
    """Number of files and bytes that a plugin may still add.

    Args:
        name: name of the source, for the error message.
        files: largest number of files.
        size: largest total size, in bytes.
    """

    def __init__(self, name: str, files: int = MAX_FILES, size: int = MAX_BYTES) -> None:
        self._name, self._files, self._size = name, files, size
        self._limits = f"at most {files} files and {size // 1024 // 1024} MB are taken"

    def spend(self, size: int, *, files: int = 1) -> None:
        """Count `files` more files with `size` bytes in total.

        Raises:
            UserError: a limit is exceeded.
        """
        self._files -= files
        self._size -= size
        if self._files < 0 or self._size < 0:
            raise UserError(f"{self._name} is too large for a plugin: {self._limits}")


def copy_tree(source: Path, target: Path, name: str) -> None:
    """Copy the directory `source` to the new folder `target`, without version control data and bytecode.

    Raises:
        UserError: an entry is not a file, folder or link inside `source`, or a limit is exceeded.
    """
    budget = ArchiveLimits(name)
    root = source.resolve()
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        into = target / here.relative_to(root)
        into.mkdir(mode=0o755, parents=True, exist_ok=True)
        for entry in sorted(folders):
            if entry in LEFT_OUT:
                folders.remove(entry)
            elif (here / entry).is_symlink():
                folders.remove(entry)
                files.append(entry)
        for entry in files:
            _copy(here / entry, into / entry, root, budget)


def _copy(path: Path, target: Path, root: Path, budget: ArchiveLimits) -> None:
    info = path.lstat()
    name = path.relative_to(root)
    if stat.S_ISLNK(info.st_mode):
        leads = os.readlink(path)  # noqa: PTH115
        if not stays_inside(name, leads):
            raise UserError(f"{name} is a link to {leads!r}, out of the plugin", hint="Such a plugin is not installed.")
        budget.spend(0)
        target.symlink_to(leads)
    elif stat.S_ISREG(info.st_mode):
        budget.spend(info.st_size)
        shutil.copyfile(path, target)
        target.chmod(0o755 if info.st_mode & 0o111 else 0o644)
    else:
        raise UserError(f"{name} is neither a file nor a folder", hint="Such a plugin is not installed.")


def stays_inside(name: Path, leads: str) -> bool:
    """Return True if a link at the relative path `name` that points to `leads` stays inside the same tree."""
    if not leads or leads.startswith("/"):
        return False
    reached = os.path.normpath(os.path.join(name.parent, leads))  # noqa: PTH118
    return reached != ".." and not reached.startswith("../")


MAX_RATIO = 200
"""Largest ratio of unpacked to packed size; archives made to fill the disk exceed 1,000."""
MAX_LINK = 4096
RATIO_FREE = 1024 * 1024
"""Unpacked bytes that are allowed in addition, whatever the ratio."""


def unpack(archive: Path, target: Path) -> None:
    """Unpack a .zip or .tar.* archive into the new folder `target`.

    Raises:
        UserError: the archive is damaged or too large, or a member leads out of the target or is a special file.
    """
    target.mkdir(parents=True)
    try:
        size = archive.stat().st_size
        budget = _GrowthLimits(archive.name, size)
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                _unzip(opened, target, budget)
        else:
            with tarfile.open(archive) as tar:
                _untar(tar, target, budget)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, RuntimeError, NotImplementedError) as exc:
        # RuntimeError: encrypted member; NotImplementedError: unsupported compression
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc) or type(exc).__name__
        raise UserError(f"{archive} cannot be unpacked: {reason}") from exc


class _GrowthLimits(ArchiveLimits):
    """Archive limits that also limit the ratio of unpacked to packed size."""

    def __init__(self, name: str, packed: int) -> None:
        super().__init__(name)
        self._archive, self._left = name, RATIO_FREE + packed * MAX_RATIO

    def spend(self, size: int, *, files: int = 1) -> None:
        super().spend(size, files=files)
        self._left -= size
        if self._left < 0:
            raise UserError(f"{self._archive} grows to more than {MAX_RATIO} times its size: it is not unpacked")


def _unzip(archive: zipfile.ZipFile, target: Path, budget: ArchiveLimits) -> None:
    for member in archive.infolist():
        budget.spend(0)
        name = _safe_name(member.filename)
        mode = member.external_attr >> 16
        if member.is_dir():
            _folder(target / name)
        elif stat.S_ISLNK(mode):
            with archive.open(member) as content:
                _link(target, name, content.read(MAX_LINK).decode("utf-8", "surrogateescape"))
        elif stat.S_IFMT(mode) in (0, stat.S_IFREG):
            with archive.open(member) as content:
                _file(target / name, content.read, mode & 0o111, budget)
        else:
            raise UserError(f"the archive has {member.filename!r}, which is neither a file nor a folder")


def _untar(archive: tarfile.TarFile, target: Path, budget: ArchiveLimits) -> None:
    for member in archive:
        budget.spend(0)
        name = _safe_name(member.name)
        if member.isdir():
            _folder(target / name)
        elif member.issym():
            _link(target, name, member.linkname)
        elif member.isreg():
            content: IO[bytes] | None = archive.extractfile(member)
            if content is None:
                raise UserError(f"the archive has {member.name!r} without content")
            _file(target / name, content.read, member.mode & 0o111, budget)
        elif member.islnk():
            raise UserError(f"the archive has {member.name!r}, a hard link: it is not unpacked")
        else:
            raise UserError(f"the archive has {member.name!r}, which is neither a file nor a folder")


def _safe_name(name: str) -> Path:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise UserError(f"the archive has {name!r}, which leads out of the plugin: it is not unpacked")
    return Path(*path.parts)


def _folder(path: Path) -> None:
    _no_link_above(path)
    path.mkdir(mode=0o755, parents=True, exist_ok=True)


def _file(path: Path, read: Callable[[int], bytes], executable: int, budget: ArchiveLimits) -> None:
    _folder(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o755 if executable else 0o644), "wb") as out:
        while data := read(256 * 1024):  # sizes that an archive declares may be wrong
            budget.spend(len(data), files=0)
            out.write(data)


def _link(target: Path, name: Path, leads: str) -> None:
    if not stays_inside(name, leads):
        raise UserError(f"the archive has a link {str(name)!r} to {leads!r}, out of the plugin: it is not unpacked")
    _folder((target / name).parent)
    (target / name).symlink_to(leads)


def _no_link_above(path: Path) -> None:
    """Raise UserError if the path leads through a link that the archive created."""
    for above in (path, *path.parents):
        if above.is_symlink():
            raise UserError(f"the archive writes through its own link {above.name!r}: it is not unpacked")
