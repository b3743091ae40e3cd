"""Local skills: their folders, their `SKILL.md` and their other files.

A skill is a folder with a `SKILL.md`, below a root and in categories. `open_inside` reads its other files and never
follows a path out of the folder. Source: plugin contract §6.4.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hermes_agent.config.bounded_yaml import YamlRejected, parse_yaml
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.system.files import FileStamp, hold_directory, open_beneath

FOLDERS = ("references", "templates", "scripts", "assets")
MAX_BYTES = 1024 * 1024
MAX_LISTED = 200
"""Files listed of one folder."""


def is_plain_path(path: str) -> bool:
    """Return whether `path` is relative and stays inside its base: no `/x`, no `..`, no `C:`, no NUL."""
    parts = path.replace("\\", "/").split("/")
    drive = len(parts[0]) > 1 and parts[0][1] == ":"
    return bool(path) and not path.startswith(("/", "\\", "~")) and ".." not in parts and not drive and "\0" not in path


def linked_files(directory: Path) -> dict[str, list[str]] | None:
    """Return the files below the four folders as paths relative to `directory`, or None without any."""
    root = os.path.realpath(directory)
    found = {name: _below(root, name) for name in FOLDERS}
    return {name: files for name, files in found.items() if files} or None


def _below(root: str, folder: str) -> list[str]:
    files: list[str] = []
    if not _is_inside(os.path.realpath(f"{root}/{folder}"), root):
        return files
    for place, directories, names in os.walk(f"{root}/{folder}"):
        directories[:] = sorted(d for d in directories if not d.startswith("."))
        for name in sorted(names):
            path = f"{place}/{name}"
            if not name.startswith(".") and _is_inside(os.path.realpath(path), root):
                files.append(os.path.relpath(path, root))
            if len(files) == MAX_LISTED:
                return files
    return files


def open_inside(directory: Path, path: str) -> bytes:
    """Return the content of the file `path` below `directory`.

    Raises:
        PermissionError: the file is hidden, or outside the directory, also through a link.
        OSError: the file cannot be read, or is too long.
    """
    root = os.path.realpath(directory)
    target = os.path.realpath(f"{root}/{path}")
    if not is_plain_path(path) or not _is_inside(target, root):
        raise PermissionError("it is outside the skill's directory")
    if any(part.startswith(".") for part in Path(target).relative_to(root).parts):
        raise PermissionError("it is hidden")
    return _read(target)


def read_file(path: Path) -> bytes:
    """Return the content of a regular file of at most `MAX_BYTES`.

    Raises:
        OSError: it is no regular file, is too long, or cannot be read.
    """
    return _read(os.path.realpath(path))


def _read(path: str) -> bytes:
    """Return the content of a resolved path; a link that is put there now is not followed."""
    directory, name = os.path.split(path)
    with hold_directory(directory, make=False) as above:
        handle = open_beneath(above, name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is no regular file")
        if status.st_size > MAX_BYTES:
            raise OSError(f"{path} has {status.st_size} bytes: at most {MAX_BYTES} are read")
        return file.read(MAX_BYTES)


def _is_inside(path: str, root: str) -> bool:
    return path.startswith(root.rstrip("/") + "/")


NAME_CHARS = 64
DESCRIPTION_CHARS = 1_024
FIELDS_CHARS = 32 * 1_024
"""Characters of the front matter of a skill; a longer one counts as text."""

_TOP = re.compile(r"---[ \t]*\r?\n(.*?\r?\n)?---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_BUILT = (
    "name", "description", "version", "license", "compatibility", "platforms", "environments", "prerequisites",
    "required_environment_variables", "required_credential_files", "required_commands", "setup", "metadata", "tags",
    "related_skills", "argument-hint", "argument_hint",
    "allowed-tools", "user-invocable", "disable-model-invocation", "requires", "always", "homepage",
)  # fmt: skip


@lazy_dataclass(frozen=True, slots=True)
class SkillFile:
    """The content of a `SKILL.md`."""

    text: str
    """The whole file."""
    body: str
    """The text after the front matter."""
    name: str = ""
    """At most 64 characters, or ""."""
    description: str = ""
    """One line of at most 1,024 characters; without the field the first line of the text."""
    fields: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    problem: str = ""
    """Why the front matter could not be read, or ""."""
    _names: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict, compare=False, repr=False)
    """What `names` returned: each new session asks for the same fields of every skill."""

    def names(self, *keys: str) -> tuple[str, ...]:
        """Return the words of the field at a path of keys: a list, or a text with commas."""
        found = self._names.get(keys)
        if found is None:
            found = self._names[keys] = tuple(self._find_names(keys))
        return found

    def _find_names(self, keys: tuple[str, ...]) -> list[str]:
        value: Any = self.fields
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, str):
            value = [word.strip() for word in value.split(",")]
        return [str(item) for item in value if item] if isinstance(value, list) else []


def read_document(path: Path) -> SkillFile:
    """Read the file at `path`.

    Raises:
        OSError: it cannot be read, is no regular file, is too long, or is not UTF-8.
    """
    data = read_file(path)
    try:
        return parse_document(data.decode("utf-8-sig"))
    except UnicodeDecodeError as exc:
        raise OSError(f"{path} is not UTF-8: {exc.reason}") from exc


def parse_document(text: str) -> SkillFile:
    """Return the content of a `SKILL.md`; a front matter that cannot be read is ignored, with the problem."""
    match = _TOP.match(text, 0, FIELDS_CHARS)
    if match is None:
        return SkillFile(text, text, description=_first_line(text))
    body = text[match.end() :]
    try:
        document = parse_yaml(match[1] or "", _BUILT)
    except YamlRejected as exc:
        return SkillFile(text, body, description=_first_line(body), problem=str(exc))
    description = _one_line(document.scalars.get("description", "")) or _first_line(body)
    return SkillFile(
        text,
        body,
        name=_one_line(document.scalars.get("name", ""))[:NAME_CHARS],
        description=description[:DESCRIPTION_CHARS],
        fields=MappingProxyType(document.values),
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _first_line(body: str) -> str:
    lines = (line.strip().lstrip("#").strip() for line in body.splitlines())
    return _one_line(next((line for line in lines if line), ""))[:DESCRIPTION_CHARS]


_SYSTEMS = (("metadata", "openclaw", "os"), ("metadata", "clawdbot", "os"))
_PLATFORMS = {"macos": "darwin", "darwin": "darwin", "linux": "linux", "windows": "win32", "win32": "win32"}


def fits_platform(document: SkillFile, platform: str = sys.platform) -> bool:
    """Return whether the skill is for this system; a skill that names none is for all."""
    names = [name.strip().lower() for name in document.names("platforms")]
    names = names or [name.strip().lower() for keys in _SYSTEMS for name in document.names(*keys)]
    if not names:
        return True
    return any(_PLATFORMS.get(name) == platform or (name == "termux" and _is_termux()) for name in names)


def _is_termux() -> bool:
    return "com.termux" in os.environ.get("PREFIX", "")


def fits_environment(document: SkillFile, environ: Mapping[str, str]) -> bool:
    """Return whether the skill names this environment (`docker`, `s6`, `kanban`), or none."""
    names = [name.strip().lower() for name in document.names("environments")]
    if not names:
        return True
    tests: dict[str, Callable[[], bool]] = {
        "docker": lambda: Path("/.dockerenv").exists() or Path("/run/.containerenv").exists(),
        "s6": lambda: Path("/run/s6").exists(),
        "kanban": lambda: bool(environ.get("HERMES_KANBAN_TASK")),
    }
    return any(name in tests and tests[name]() for name in names)


def fits_tools(document: SkillFile, tools: Collection[str], toolsets: Collection[str]) -> bool:
    """Return whether the skill fits these tools: what it requires exists, what it replaces does not."""

    def names(key: str) -> tuple[str, ...]:
        return document.names("metadata", "hermes", key)

    return (
        all(name in tools for name in names("requires_tools"))
        and all(name in toolsets for name in names("requires_toolsets"))
        and not any(name in tools for name in names("fallback_for_tools"))
        and not any(name in toolsets for name in names("fallback_for_toolsets"))
    )


def required_variables(document: SkillFile) -> list[str]:
    """Return the names of the variables that the skill requires."""
    setup = document.fields.get("setup")
    collected = setup.get("collect_secrets") if isinstance(setup, Mapping) else None
    lists: tuple[Any, ...] = (document.fields.get("required_environment_variables"), collected)
    names = [*document.names("prerequisites", "env_vars")]
    for maker in ("openclaw", "clawdbot"):
        names += document.names("metadata", maker, "requires", "env")
    for entries in lists:
        for entry in entries if isinstance(entries, list) else ():
            name = (entry.get("name") or entry.get("env_var")) if isinstance(entry, Mapping) else entry
            if isinstance(name, str) and name:
                names.append(name)
    return list(dict.fromkeys(names))


def required_commands(document: SkillFile) -> list[str]:
    """Return the programs that the skill requires, in the forms of upstream and of OpenClaw."""
    names = [*document.names("prerequisites", "commands"), *document.names("required_commands")]
    for maker in ("openclaw", "clawdbot"):
        names += document.names("metadata", maker, "requires", "bins")
    return list(dict.fromkeys(name for name in names if re.fullmatch(r"[\w.+-]+", name)))


def missing_variables(document: SkillFile, has_value: Callable[[str], bool]) -> list[str]:
    """Return the required variables without a value."""
    return [name for name in required_variables(document) if not has_value(name)]


def missing_credential_files(document: SkillFile, home: Path) -> list[str]:
    """Return the files of `required_credential_files` that the home does not have."""
    entries = document.fields.get("required_credential_files")
    paths = [e.get("path") if isinstance(e, Mapping) else e for e in entries] if isinstance(entries, list) else []
    return [path for path in paths if isinstance(path, str) and not (is_plain_path(path) and (home / path).is_file())]


_SETTING = re.compile(r"[\w-]+(?:\.[\w-]+)*")


class SkillSetting(LazyNamedTuple):
    """A setting that a skill declares in `metadata.hermes.config`."""

    key: str
    """Below `skills.config`."""
    description: str
    default: Any

    def value(self, values: Mapping[str, Any]) -> tuple[Any, bool]:
        """Return the value of `skills.config`, or the default, and whether the config sets it."""
        value: Any = values
        for part in self.key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is None:
            value = values.get(self.key)
        is_set = value is not None
        value = value if is_set else self.default
        return (os.path.expanduser(value) if isinstance(value, str) else value), is_set  # noqa: PTH111 - `~` in any text


def declared_settings(document: SkillFile) -> list[SkillSetting]:
    """Return the settings that the skill declares; an entry without a usable key is left out."""
    value: Any = document.fields
    for key in ("metadata", "hermes", "config"):
        value = value.get(key) if isinstance(value, Mapping) else None
    found: dict[str, SkillSetting] = {}
    for entry in value if isinstance(value, list) else ():
        key = str(entry.get("key") or "") if isinstance(entry, Mapping) else ""
        if _SETTING.fullmatch(key):
            about = _one_line(str(entry.get("description") or entry.get("prompt") or ""))
            found.setdefault(key, SkillSetting(key, about[:DESCRIPTION_CHARS], entry.get("default")))
    return list(found.values())


logger = logging.getLogger(__name__)

ACTIONS = ("create", "patch", "edit", "delete", "write_file", "remove_file")
"""What the tool `skill_manage` does with a skill."""
SKILL_FILE = "SKILL.md"
HUB = ".hub"
"""Folder below `skills/` with taps, the lock and earlier states; the library does not look into it."""
MAX_DEPTH = 4
"""Levels below a root at which a skill may be."""
MAX_SKILLS = 2_000
SETTLED_NS = 1_000_000_000
"""Nanoseconds after a change from which on a folder's time of change is a sign of the next one."""
_NO_SKILLS = frozenset({"README.md", "DESCRIPTION.md", "CHANGELOG.md", "LICENSE.md"})


@lazy_dataclass(frozen=True, slots=True)
class LocalSkill:
    """A skill in a folder of the user."""

    document: SkillFile
    file: Path
    """Its `SKILL.md`, or its single file."""
    place: str
    """Path relative to the root: `category/name`."""
    flat: bool = False
    """Whether it is a single file `name.md`, an old form: it can be opened, but no list has it."""
    real: str = ""
    """The path of its file without links; empty when it was not searched for."""

    @property
    def directory(self) -> Path:
        """The folder with its files."""
        return self.file.parent

    @property
    def folder(self) -> str:
        """The last part of its place."""
        return self.place.rpartition("/")[2]

    @property
    def name(self) -> str:
        """The name in its file, or that of its folder."""
        return self.document.name or self.folder

    @property
    def category(self) -> str:
        """The folders between the root and it, or ""."""
        return self.place.rpartition("/")[0]

    @property
    def setting_names(self) -> frozenset[str]:
        """Names that a setting may use for it."""
        return frozenset((self.name, self.folder, self.place))


class SkillFolder:
    """Finds skills below some roots; a file is read again after a change.

    Args:
        roots: of two skills with the same path, that of the earlier root counts.
        now_ns: returns the time in nanoseconds.
    """

    def __init__(self, roots: Sequence[Path], *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.roots, self._now_ns = tuple(roots), now_ns
        self._skills: dict[_FoundFile, tuple[FileStamp | None, LocalSkill | None]] = {}
        self._listings: dict[str, tuple[FileStamp | None, list[os.DirEntry[str]]]] = {}

    def find(self) -> list[LocalSkill]:
        """Return every skill, sorted by path; a file that cannot be read is left out and logged."""
        found: dict[str, LocalSkill] = {}
        for root in self.roots:
            for file in self._files(root):
                if file.place in found or len(found) >= MAX_SKILLS:
                    continue
                skill = self._skill(file)
                if skill is not None:
                    found[file.place] = skill
        return [found[place] for place in sorted(found)]

    def is_empty(self) -> bool:
        """Return whether no skill exists, without reading any."""
        return all(file.flat for root in self.roots for file in self._files(root))

    def _files(self, root: Path) -> Iterator[_FoundFile]:
        return _walk(str(root), os.path.realpath(root), "", MAX_DEPTH, set(), self._listing)

    def _listing(self, folder: str) -> list[os.DirEntry[str]]:
        """Return the entries of a folder, sorted by name; it is read again after a change.

        Raises:
            OSError: it does not exist or cannot be read.
        """
        stamp, known = FileStamp.of(folder), self._listings.get(folder)
        if known is not None and known[0] == stamp:
            return known[1]
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        # a change in the same tick of the clock would not be seen, nor one behind a link
        if stamp is not None and stamp.ctime_ns < self._now_ns() - SETTLED_NS and not any(map(_is_link, entries)):
            self._listings[folder] = (stamp, entries)
        return entries

    def _skill(self, file: _FoundFile) -> LocalSkill | None:
        try:
            status = os.stat(file.path)  # noqa: PTH116 - many files at each start of a session
        except OSError as exc:
            logger.warning("skill %s: left out: %s", file.path, exc.strerror)
            return None
        stamp, known = FileStamp.of(status), self._skills.get(file)
        if known is not None and known[0] == stamp:
            return known[1]
        skill: LocalSkill | None = None
        try:
            document = read_document(Path(file.path))
            if document.problem:
                logger.warning("skill %s: front matter ignored: %s", file.path, document.problem)
            skill = LocalSkill(document, Path(file.path), file.place, file.flat, file.real)
        except OSError as exc:
            logger.warning("skill %s: left out: %s", file.path, exc.strerror or exc)
        self._skills[file] = (stamp, skill)
        return skill


class _FoundFile(LazyNamedTuple):
    """The file of a skill below a root."""

    path: str
    real: str
    place: str
    flat: bool


def _walk(
    root: str, real: str, place: str, depth: int, above: set[str], listing: Callable[[str], list[os.DirEntry[str]]]
) -> Iterator[_FoundFile]:
    """Yield the files of skills below a folder; a link to a folder above is not followed.

    Args:
        real: the path of the folder without links.
        listing: returns the sorted entries of a folder.
    """
    if real in above:
        return
    try:
        entries = listing(root)
    except OSError:  # the folder does not exist or cannot be read
        return
    if place:
        for entry in entries:
            if entry.name == SKILL_FILE and entry.is_file():
                yield _FoundFile(f"{root}/{SKILL_FILE}", _real(entry, real), place, False)
                return
    for entry in entries:
        below = f"{place}/{entry.name}" if place else entry.name
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            if depth > 0:
                yield from _walk(entry.path, _real(entry, real), below, depth - 1, above | {real}, listing)
        elif entry.name.endswith(".md") and entry.name not in _NO_SKILLS and entry.is_file():
            yield _FoundFile(entry.path, _real(entry, real), below.removesuffix(".md"), True)


def _is_link(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink()


def _real(entry: os.DirEntry[str], folder: str) -> str:
    """Return the path of an entry without links; only a link costs a system call."""
    return os.path.realpath(entry.path) if entry.is_symlink() else os.path.join(folder, entry.name)  # noqa: PTH118


def find_skill(name: str, skills: Sequence[LocalSkill]) -> list[LocalSkill]:
    """Return the skills with a name: by path, else by folder, else in the file; single files last."""
    whole = [skill for skill in skills if not skill.flat]
    flat = [skill for skill in skills if skill.flat]
    return (
        [s for s in whole if s.place == name]
        or [s for s in whole if s.folder == name]
        or [s for s in whole if s.name == name]
        or [s for s in flat if name in s.setting_names]
    )
