"""Static scan of a skill: what in its files could harm the machine or steer the agent.

The scan reads and runs nothing. It finds known attacks only; the guarantee is the sandbox and the approval of tool
calls, as for every text that the agent reads.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from hermes_agent.commands import RESERVED
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.untrusted import find_injection
from hermes_agent.skills.skill_file import FIELDS_CHARS, SKILL_FILE, is_plain_path, parse_document

SKILL_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""Names of skills that are installed or written."""
MAX_FILES = 200
MAX_FILE_BYTES = 1024 * 1024
MAX_TOTAL_BYTES = 8 * 1024 * 1024
SKILL_CHARS = 100_000
"""Characters of a `SKILL.md`."""

Level = Literal["caution", "dangerous"]
Verdict = Literal["safe", "caution", "dangerous"]


class SkillEntry(LazyNamedTuple):
    """One file of a skill, before it is written anywhere."""

    kind: Literal["file", "link", "other"]
    size: int
    data: bytes | None
    """Content of a file, or target of a link; None when it was not read."""
    executable: bool = False


class SkillFinding(LazyNamedTuple):
    """One thing that the scan found."""

    level: Level
    file: str
    what: str


class SkillScan(LazyNamedTuple):
    """The result of a scan."""

    findings: tuple[SkillFinding, ...]

    @property
    def verdict(self) -> Verdict:
        """Return the worst level among the findings."""
        levels = {finding.level for finding in self.findings}
        return "dangerous" if "dangerous" in levels else "caution" if levels else "safe"

    def lines(self) -> list[str]:
        """Return one line for each finding."""
        return [f"{found.level}: {found.file}: {found.what}" for found in self.findings]


def scan_skill(name: str, entries: Mapping[str, SkillEntry]) -> SkillScan:
    """Return what is wrong with a skill.

    Args:
        name: name of its folder.
        entries: its files by path relative to the folder.
    """
    return SkillScan(tuple(_findings(name, entries)))


def read_entries(directory: Path) -> dict[str, SkillEntry]:
    """Return the files of a folder on disk; links are not followed, and files that are too large not read."""
    found: dict[str, SkillEntry] = {}
    for place, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted([*names, *(one for one in folders if Path(place, one).is_symlink())]):
            path = Path(place, name)
            status = path.lstat()
            relative = str(path.relative_to(directory))
            if stat.S_ISLNK(status.st_mode):
                found[relative] = SkillEntry("link", 0, os.fsencode(path.readlink()))
            elif not stat.S_ISREG(status.st_mode):
                found[relative] = SkillEntry("other", 0, None)
            else:
                data = path.read_bytes() if status.st_size <= MAX_FILE_BYTES else None
                found[relative] = SkillEntry("file", status.st_size, data, bool(status.st_mode & 0o111))
            if len(found) > MAX_FILES:
                return found
    return found


def _findings(name: str, entries: Mapping[str, SkillEntry]) -> Iterator[SkillFinding]:
    yield from _about_name(name)
    yield from _about_sizes(entries)
    for path, entry in sorted(entries.items()):
        problem = _about_place(path, entry)
        if problem:
            yield SkillFinding("dangerous", _shown(path), problem)
        elif entry.data is not None:
            yield from (SkillFinding(level, _shown(path), what) for level, what in _about_content(path, entry.data))
    main = entries.get(SKILL_FILE)
    if main is None:
        yield SkillFinding("dangerous", SKILL_FILE, "it is missing")
    elif main.kind == "file" and main.data is not None:
        yield from _about_document(name, main.data)


def _about_name(name: str) -> Iterator[SkillFinding]:
    if SKILL_NAME.fullmatch(name) is None or ".." in name:
        yield SkillFinding("dangerous", _shown(name), f"the name does not match {SKILL_NAME.pattern}")
    elif name in RESERVED or name.partition(".")[0] in _DEVICES:
        yield SkillFinding("dangerous", name, f"the name is reserved: /{name} is a command of the agent")


_DEVICES = frozenset({"con", "prn", "aux", "nul"})


def _about_sizes(entries: Mapping[str, SkillEntry]) -> Iterator[SkillFinding]:
    if len(entries) > MAX_FILES:
        yield SkillFinding("dangerous", ".", f"it has more than {MAX_FILES} files")
    for path, entry in sorted(entries.items()):
        if entry.size > MAX_FILE_BYTES:
            yield SkillFinding("dangerous", _shown(path), f"it has {entry.size:,} bytes: at most {MAX_FILE_BYTES:,}")
    total = sum(entry.size for entry in entries.values())
    if total > MAX_TOTAL_BYTES:
        yield SkillFinding("dangerous", ".", f"its files have {total:,} bytes: at most {MAX_TOTAL_BYTES:,}")
    folded: dict[str, str] = {}
    for path in sorted(entries):
        other = folded.setdefault(path.casefold(), path)
        if other != path:
            yield SkillFinding("dangerous", _shown(path), f"its name differs from {other} in case only")


def _about_place(path: str, entry: SkillEntry) -> str:
    """Return why a file may not be written, or ""."""
    parts = path.split("/")
    if not is_plain_path(path) or "\\" in path or any(part in ("", ".", "..") for part in parts):
        return "its path leads out of the skill"
    if any(part.casefold() in (".git", ".hg", ".svn") for part in parts):
        return "it is part of a repository within the skill"
    if not path.isprintable():
        return "its name has control characters or invisible ones"
    if entry.kind == "link":
        return f"it is a link to {_shown(os.fsdecode(entry.data or b''))}: links are not installed"
    return "" if entry.kind == "file" else "it is neither a file nor a folder"


_BINARIES = (
    (b"\x7fELF", "a Linux program or library"),
    (b"MZ", "a Windows program"),
    (b"\xcf\xfa\xed\xfe", "a macOS program"),
    (b"\xfe\xed\xfa", "a macOS program"),
    (b"\xca\xfe\xba\xbe", "a macOS program or a Java class"),
    (b"!<arch>\n", "a library or a package"),
    (b"\0asm", "a WebAssembly program"),
)
_ENDINGS = (".pyc", ".so", ".dll", ".exe", ".dylib", ".jar", ".deb", ".rpm", ".msi", ".whl", ".apk")
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".xz", ".bz2", ".7z")


def _about_content(path: str, data: bytes) -> Iterator[tuple[Level, str]]:
    for magic, what in _BINARIES:
        if data.startswith(magic) and (magic != b"MZ" or b"PE\0\0" in data[:4096] or path.lower().endswith(".exe")):
            yield "dangerous", f"it is {what}: a skill brings no compiled programs"
            return
    if path.lower().endswith(_ENDINGS):
        yield "dangerous", "it is a compiled program or a package by its name"
        return
    if path.lower().endswith(_ARCHIVES):
        yield "caution", "it is an archive, which the scan does not open"
        return
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return  # an image or another asset: nothing of it is shown to the model
    yield from _about_text(text)


_HIDDEN = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
)
_JOINED = re.compile("(?<=[\u00a9-\U0001faff\ufe0f])\u200d(?=[\u2190-\U0001faff])|\U0001f3f4[\U000e0000-\U000e007f]+")
"""Joiners within an emoji, and the tags of a flag, which hide nothing."""
_FETCH = r"(?:curl|wget|fetch|iwr|Invoke-WebRequest)\b[^\n|;]{0,400}"
_REMOTE_CODE = re.compile(
    rf"{_FETCH}\|\s*(?:sudo\s+)?(?:\S*/)?(?:env\s+)?(?:ba|z|da|k|fi)?sh\b"
    rf"|{_FETCH}\|\s*(?:sudo\s+)?(?:\S*/)?(?:python[\d.]*|perl|ruby|node|iex)\b"
    r"|(?:ba|z|da)?sh\s+(?:-c\s+)?[\"']?(?:<\(|\$\(|`)\s*(?:curl|wget)\b"
    r"|\beval\s+[\"']?(?:\$\(|`)\s*(?:curl|wget)\b"
    r"|base64\s+(?:-d|-D|--decode)[^\n|]{0,200}\|\s*(?:sudo\s+)?(?:ba|z|da)?sh\b",
    re.IGNORECASE,
)
_SECRET = (
    r"(?:~/\.ssh\b|\.ssh/(?:id_|\*)|\bid_(?:rsa|ed25519|ecdsa)\b|/\.env\b|\bcat\s+\.env\b|\.aws/credentials|\.netrc\b"
    r"|\.git-credentials\b|\bauth\.json\b|/etc/shadow\b|\.gnupg\b|CREDENTIALS_DIRECTORY|\.kube/config"
    r"|\$\{?\w*(?:API_?KEY|TOKEN|SECRET|PASSWORD|PASSWD)\w*|\bprintenv\b|\benv\s*\|)"
)
_SEND = (
    r"(?:\bcurl\b[^\n]{0,300}(?:-d|--data\S*|-F|--form|-T|--upload-file|-X\s*P(?:OST|UT))|\bwget\b[^\n]{0,200}--post"
    r"|\bnc\s+(?:-\w+\s+)*[\w.-]+\s+\d+|\b(?:requests|httpx|session)\.(?:post|put)\b|\burlopen\s*\(|\bscp\s|\brsync\s"
    r"|/dev/tcp/)"
)
_EXFILTRATION = re.compile(rf"{_SECRET}[\s\S]{{0,600}}?{_SEND}|{_SEND}[\s\S]{{0,600}}?{_SECRET}")
_DESTRUCTION = re.compile(
    r"\brm\s+-\w*[rf]\w*\s+(?:--no-preserve-root\s+)?(?:/|~|\$HOME)/?(?:\s|\*|$)|\bmkfs\.\w+\s+/dev/|"
    r"\bdd\s[^\n]{0,100}of=/dev/(?:sd|nvme|vd)|:\(\)\s*\{\s*:\|:&\s*\};:",
    re.MULTILINE,
)
_PERSISTENCE = re.compile(
    r">>?\s*~?\S*(?:\.bashrc|\.zshrc|\.profile|authorized_keys)\b|\bcrontab\s+-(?!l)|/etc/(?:cron|sudoers)", re.I
)


def _about_text(text: str) -> Iterator[tuple[Level, str]]:
    plain = _JOINED.sub("", text.removeprefix("\ufeff"))
    if found := _HIDDEN.search(plain):
        line = plain.count("\n", 0, found.start()) + 1
        yield "dangerous", f"line {line} has an invisible or direction-changing character (U+{ord(found[0]):04X})"
    patterns: tuple[tuple[Level, str, re.Pattern[str]], ...] = (
        ("dangerous", "it runs a program that it downloads", _REMOTE_CODE),
        ("dangerous", "it sends secrets away", _EXFILTRATION),
        ("dangerous", "it destroys files or disks", _DESTRUCTION),
        ("caution", "it changes files that run at login or at set times", _PERSISTENCE),
    )
    for level, what, pattern in patterns:
        if found := pattern.search(text):
            line = text.count("\n", 0, found.start()) + 1
            yield level, f"line {line}: {what} ({_shown(found[0][:80])!r})"
    injection = find_injection(text)
    if injection and "invisible character" not in injection:
        yield "dangerous", f"text that tries to change the agent's rules: {injection}"


def _about_document(name: str, data: bytes) -> Iterator[SkillFinding]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        yield SkillFinding("dangerous", SKILL_FILE, "it is not UTF-8")
        return
    if len(text) > SKILL_CHARS:
        yield SkillFinding("dangerous", SKILL_FILE, f"it has {len(text):,} characters: at most {SKILL_CHARS:,}")
    document = parse_document(text)
    if document.problem:
        yield SkillFinding("dangerous", SKILL_FILE, f"its front matter cannot be read: {document.problem}")
    elif text.startswith("---") and document.body == text:
        yield SkillFinding("dangerous", SKILL_FILE, f"its front matter has no end within {FIELDS_CHARS:,} characters")
    elif document.name and document.name != name:
        yield SkillFinding("caution", SKILL_FILE, f"it names itself {_shown(document.name)!r}, its folder is {name!r}")


def _shown(text: str) -> str:
    """Return a text of the skill for a message: one line without control characters."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)[:200]
