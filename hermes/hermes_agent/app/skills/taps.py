"""Taps: git repositories with skills, and their index for a search without a network.

A tap is read as git objects. Nothing is checked out, so that no link, hook, filter or path of a repository acts on the
machine; the files of a skill are written only after their scan.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from hermes_agent.app.plugins.sources import GitProgram, PluginSource, parse_source
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.skills.scan import MAX_FILE_BYTES, MAX_FILES, MAX_TOTAL_BYTES, SKILL_CHARS, SkillEntry
from hermes_agent.skills.skill_file import HUB, SKILL_FILE, parse_document
from hermes_agent.system.files import JsonFile

MAX_PACK = 256 * 1024 * 1024
"""Largest pack that a tap may send, in bytes."""
MAX_ENTRIES = 50_000
"""Files of a tap that are looked at."""
FETCH_S = 300.0
GITHUB = "https://github.com/"
DEFAULT_PATH = "skills/"
_SHORT = re.compile(r"\w[\w.-]*/\w[\w.-]*")
FORMS = "A tap is owner/repo, an https URL of a git repository, or a folder with one."


class Tap(LazyNamedTuple):
    """A repository with skills."""

    repo: str
    """As the user typed it: `owner/repo`, a URL, or an absolute path."""
    path: str = DEFAULT_PATH
    """Folder in the repository with one folder for each skill."""
    trusted: bool = False

    @property
    def trust_level(self) -> str:
        """Return the level as it is shown and stored."""
        return "trusted" if self.trusted else "community"

    @property
    def key(self) -> str:
        """Return the name of its files in the home."""
        return hashlib.sha256(f"{self.repo}\0{self.path}".encode()).hexdigest()[:16]


class TapSkill(LazyNamedTuple):
    """A skill of a tap, as the index has it."""

    tap: Tap
    name: str
    description: str
    version: str
    tags: tuple[str, ...]
    place: str
    """Its folder in the repository."""

    @property
    def identifier(self) -> str:
        """Return `TAP/NAME`, which installs exactly this skill."""
        return f"{self.tap.repo}/{self.name}"


class Taps:
    """The taps of a home.

    Args:
        skills: the folder `skills/` of the home.
        base: URL before `owner/repo` (`skills.tap_base`).
    """

    def __init__(self, skills: Path, *, base: str = GITHUB) -> None:
        self._hub = skills / HUB
        self._file = JsonFile(self._hub / "taps.json")
        self._base = base.rstrip("/") + "/"
        self._trees: dict[str, list[_Row]] = {}

    def all(self) -> list[Tap]:
        """Return the taps in the order in which they were added."""
        rows = self._file.read().get("taps") or ()
        return [
            Tap(str(row["repo"]), str(row.get("path") or DEFAULT_PATH), bool(row.get("trusted")))
            for row in rows
            if isinstance(row, dict) and row.get("repo")
        ]

    def find(self, repo: str) -> Tap:
        """Return the tap with that name.

        Raises:
            UserError: there is none.
        """
        wanted = self.parse(repo)
        found = next((tap for tap in self.all() if tap.repo in (repo, wanted)), None)
        if found is None:
            known = ", ".join(tap.repo for tap in self.all()) or "none"
            raise UserError(
                f"{repo} is no tap of this home", hint=f"`hermes skills tap add {repo}`; there are: {known}"
            )
        return found

    def parse(self, text: str) -> str:
        """Return the name of a tap for what the user typed: a folder becomes absolute.

        Raises:
            UserError: it is no form of a tap.
        """
        text = text.strip().rstrip("/")
        is_local = text.startswith((".", "/", "~")) or (not _SHORT.fullmatch(text) and Path(text).is_dir())
        if is_local:
            folder = Path(text).expanduser().resolve()
            if not folder.is_dir():
                raise UserError(f"{folder} is no folder", hint=FORMS)
            return str(folder)
        if _SHORT.fullmatch(text):
            return text.removesuffix(".git")
        if not text.startswith(("https://", "ssh://", "file://")) or not text.isprintable():
            raise UserError(f"{text!r} is no tap", hint=FORMS)
        if urlsplit(text).password is not None:
            raise UserError("the address of a tap has no password: lists would show it", hint="Use an ssh address.")
        return text

    def add(self, repo: str, path: str = DEFAULT_PATH, *, trusted: bool = False) -> tuple[Tap, int]:
        """Fetch a tap, store it, and return it with the number of its skills; one with that name is replaced.

        Raises:
            UserError: it cannot be fetched, or has no skill.
        """
        tap = Tap(self.parse(repo), f"{path.strip('/')}/".lstrip("/"), trusted)
        if ".." in tap.path.split("/"):
            raise UserError(f"--path {path}: the folder leads out of the repository")
        count = len(self.fetch(tap))
        with self._file.change() as value:
            rows = [row for row in value.get("taps") or () if isinstance(row, dict) and row.get("repo") != tap.repo]
            value["taps"] = [*rows, {"repo": tap.repo, "path": tap.path, "trusted": trusted}]
        return tap, count

    def remove(self, repo: str) -> Tap:
        """Forget a tap with its copy; installed skills stay.

        Raises:
            UserError: there is none.
        """
        tap = self.find(repo)
        with self._file.change() as value:
            value["taps"] = [row for row in value.get("taps") or () if row.get("repo") != tap.repo]
        shutil.rmtree(self._repository(tap), ignore_errors=True)
        self._index(tap).path.unlink(missing_ok=True)
        return tap

    def fetch(self, tap: Tap) -> list[TapSkill]:
        """Fetch the newest state of a tap, and return its skills.

        Raises:
            UserError: it cannot be fetched, or has no skill.
        """
        git = self._git(tap, fresh=True)
        source = self._source(tap)
        self._trees.pop(tap.key, None)
        git("fetch", "--depth=1", "--no-tags", "--quiet", "--no-auto-gc", "--", source.location, "HEAD", why=source)
        git("update-ref", "refs/heads/tap", "FETCH_HEAD", why=source)
        commit = git("rev-parse", "refs/heads/tap", why=source).strip()
        skills = self._read_index(tap, git)
        if not skills:
            hint = "A tap has skills/NAME/SKILL.md; `--path` names another folder, `--path .` the repository itself."
            raise UserError(f"{tap.repo} has no skill below {tap.path or '.'}", hint=hint)
        rows = [skill._asdict() | {"tap": None, "tags": list(skill.tags)} for skill in skills]
        with self._index(tap).change() as value:
            value.update(repo=tap.repo, commit=commit, fetched_at=time.time(), skills=rows)
        return skills

    def skills(self, tap: Tap) -> list[TapSkill]:
        """Return the skills of a tap from its index, without a network."""
        rows = self._index(tap).read().get("skills") or ()
        return [TapSkill(**{**row, "tap": tap, "tags": tuple(row["tags"])}) for row in rows]

    def fetched_at(self, tap: Tap) -> float:
        """Return when a tap was fetched, as seconds since 1970; 0 if it never was."""
        return float(self._index(tap).read().get("fetched_at") or 0)

    def commit(self, tap: Tap) -> str:
        """Return the commit of the fetched state, or ""."""
        return str(self._index(tap).read().get("commit") or "")

    def find_skill(self, wanted: str, source: str = "") -> TapSkill:
        """Return the skill of a name, or of `TAP/NAME`.

        Raises:
            UserError: no tap has it, or several have it.
        """
        taps = [self.find(source)] if source else self.all()
        skills = [skill for tap in taps for skill in self.skills(tap)]
        found = [skill for skill in skills if wanted in (skill.name, skill.identifier)]
        if not found and "/" in wanted:
            repo, _, name = wanted.rpartition("/")
            known = {tap.repo for tap in taps}
            if self.parse(repo) not in known and not Path(wanted).exists():
                raise UserError(f"{repo} is no tap of this home", hint=f"Add it first: `hermes skills tap add {repo}`")
            found = [skill for skill in skills if skill.tap.repo == self.parse(repo) and skill.name == name]
        if len(found) > 1:
            names = ", ".join(skill.identifier for skill in found)
            raise UserError(f"{len(found)} taps have a skill {wanted!r}", hint=f"Name one of them: {names}")
        if not found:
            where = f"{taps[0].repo} has" if len(taps) == 1 else f"none of {len(taps)} taps has"
            hint = (
                "`hermes skills search` lists what there is; `hermes skills search --refresh` fetches the taps again."
            )
            if not taps:
                where, hint = "without a tap there is", "Add a tap: `hermes skills tap add owner/repo`."
            raise UserError(f"{where} no skill {wanted!r}", hint=hint)
        return found[0]

    def entries(self, skill: TapSkill) -> dict[str, SkillEntry]:
        """Return the files of a skill from the fetched state.

        Contents are read only as far as the limits of the scan allow.

        Raises:
            UserError: the copy of the tap is gone.
        """
        git, source = self._git(skill.tap), self._source(skill.tap)
        if skill.tap.key not in self._trees:
            self._trees[skill.tap.key] = list(self._tree(git, source))
        prefix = f"{skill.place}/"
        rows = [row for row in self._trees[skill.tap.key] if row.path.startswith(prefix)]
        found: dict[str, SkillEntry] = {}
        rows = rows[: MAX_FILES + 1]
        total, read = 0, []
        for row in rows:
            total += row.size
            if row.kind != "other" and row.size <= MAX_FILE_BYTES and total <= MAX_TOTAL_BYTES:
                read.append(row)
        contents = self._blobs(git, source, read)
        for row in rows:
            data = contents.get(row.sha) if row in read else None
            found[row.path.removeprefix(prefix)] = SkillEntry(row.kind, row.size, data, row.mode == "100755")
        return found

    def _read_index(self, tap: Tap, git: GitProgram) -> list[TapSkill]:
        source, found = self._source(tap), []
        rows = {row.path: row for row in self._tree(git, source) if _is_skill(tap.path, row.path)}
        contents = self._blobs(git, source, [r for r in rows.values() if r.kind == "file" and r.size <= SKILL_CHARS])
        for path, row in sorted(rows.items()):
            place = path.removesuffix(f"/{SKILL_FILE}")
            text = contents.get(row.sha, b"").decode("utf-8", "replace")
            document = parse_document(text)
            version = document.fields.get("version")
            tags = document.names("metadata", "hermes", "tags") or document.names("tags")
            name = place.rpartition("/")[2]
            found.append(TapSkill(tap, name, document.description, str(version or ""), tags, place))
        return found

    def _tree(self, git: GitProgram, source: PluginSource) -> Iterator[_Row]:
        limit = MAX_ENTRIES * 256
        listing = git.read("ls-tree", "-r", "-z", "-l", "--full-tree", "refs/heads/tap", why=source, kept_bytes=limit)
        rows = listing.split(b"\0")
        if len(listing) >= limit or len(rows) > MAX_ENTRIES:
            raise UserError(f"{source.label} has more than {MAX_ENTRIES} files", hint="It is not used as a tap.")
        for line in filter(None, rows):
            head, _, path = line.partition(b"\t")
            mode, kind, sha, size = head.decode().split()
            yield _Row(mode, sha, int(size) if kind == "blob" else 0, os.fsdecode(path))

    @staticmethod
    def _blobs(git: GitProgram, source: PluginSource, rows: list[_Row]) -> dict[str, bytes]:
        """Return the contents of files by their hash; one run of git reads them all."""
        if not rows:
            return {}
        names = "".join(f"{row.sha}\n" for row in rows).encode()
        size = sum(row.size for row in rows) + 128 * len(rows) + 65_536
        output = git.read("cat-file", "--batch", why=source, stdin=names, kept_bytes=size)
        found: dict[str, bytes] = {}
        at = 0
        while (end := output.find(b"\n", at)) >= 0:
            sha, kind, length = output[at:end].decode().split()
            if kind != "blob":
                raise UserError(f"{source.label} is damaged: {sha} is a {kind}")
            at = end + 1 + int(length)
            found[sha] = output[end + 1 : at]
            at += 1
        return found

    def _git(self, tap: Tap, *, fresh: bool = False) -> GitProgram:
        program = shutil.which("git")
        if program is None:
            raise UserError("taps are fetched with the program git, which is not there", hint="Install git.")
        folder = self._repository(tap)
        git = GitProgram(program, folder, max_bytes=MAX_PACK, limit_s=FETCH_S)
        if not (folder / "HEAD").is_file():
            if not fresh:
                raise UserError(f"the copy of {tap.repo} is gone", hint="`hermes skills search --refresh` fetches it.")
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            git("init", "--quiet", "--bare", "--template=", why=self._source(tap))
        return git

    def _source(self, tap: Tap) -> PluginSource:
        if _SHORT.fullmatch(tap.repo):
            return PluginSource("git", f"{self._base}{tap.repo}.git")
        if "://" in tap.repo:
            return parse_source(tap.repo, cwd=Path.cwd())
        return PluginSource("git", Path(tap.repo).as_uri())

    def _repository(self, tap: Tap) -> Path:
        return self._hub / "taps" / f"{tap.key}.git"

    def _index(self, tap: Tap) -> JsonFile:
        return JsonFile(self._hub / "index" / f"{tap.key}.json")


class _Row(LazyNamedTuple):
    mode: str
    sha: str
    size: int
    path: str

    @property
    def kind(self) -> Literal["file", "link", "other"]:
        if self.mode == "120000":
            return "link"
        return "file" if self.mode.startswith("100") else "other"


def _is_skill(root: str, path: str) -> bool:
    """Return whether a path is the file of a skill: `NAME` or `CATEGORY/NAME` below `root`."""
    if not path.startswith(root) or not path.endswith(f"/{SKILL_FILE}") or ".." in path.split("/"):
        return False
    return path.removeprefix(root).count("/") <= 2
