"""What a person typed as the source of a plugin, understood. Source of the forms: plugin contract §1.13."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from hermes_agent.core.errors import UserError

__all__ = ["ARCHIVES", "PluginSource", "parse_source"]

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


class PluginSource(NamedTuple):
    """Where a plugin comes from."""

    kind: Literal["git", "directory", "archive", "pip"]
    location: str
    """URL, absolute path, or what pip is to be given."""
    ref: str = ""
    """Branch, tag or commit; empty for the default branch."""
    subdir: str = ""

    @property
    def label(self) -> str:
        """The source for people and for the record: without a password in it."""
        text = _without_password(self.location)
        if self.ref:
            text += f"@{self.ref}"
        return f"{text}#{self.subdir}" if self.subdir else text

    def as_origin(self) -> dict[str, Any]:
        """Return it as JSON types, for the record."""
        where = _without_password(self.location)
        return {"kind": self.kind, "source": where, "ref": self.ref, "subdir": self.subdir}

    @classmethod
    def of_origin(cls, origin: Any) -> PluginSource | None:
        """Read what `as_origin` gave; None when the record has no source."""
        if origin.get("kind") not in ("git", "directory", "archive", "pip") or not origin.get("source"):
            return None
        return cls(origin["kind"], origin["source"], origin.get("ref", ""), origin.get("subdir", ""))


def parse_source(text: str, *, ref: str = "", cwd: Path) -> PluginSource:
    """Understand the source of a plugin.

    Args:
        ref: what `--ref` says; it may not contradict one in `text`.
        cwd: what a relative path starts from.

    Raises:
        UserError: it is none of the forms.
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
    if at and "/" in after_host:  # else it is the user of `user@host`
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
