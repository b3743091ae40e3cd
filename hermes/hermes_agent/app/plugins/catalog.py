"""The catalogue of plugins (`plugins.catalog`): a folder, a JSON file or an https address.

A folder has one YAML file for each entry, and `removed.yaml`; JSON has `{entries, removed, generated_at}`. An entry
pins the commit that is installed. An address is asked at most every six hours; its entries are used for a day, and
its removals until it is read again. Source: plugin contract of 0.23 §11.4, §11.5.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from hermes_agent.app.plugins.sources import PluginSource
from hermes_agent.config.bounded_yaml import YamlRejected, parse_yaml
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.text import nearest_name
from hermes_agent.plugins.removed_list import REMOVED_PLACE, RemovedPlugin, removed_row
from hermes_agent.system.files import PRIVATE, write_atomic

KEY = "plugins.catalog"
CACHE_PLACE = ("cache", "plugin-catalog.json")
MAX_BYTES = 2 * 2**20
MAX_ENTRIES = 10_000
FETCH_S = 5.0
FRESH_S, KEPT_S, FAILED_S = 6 * 3600.0, 24 * 3600.0, 60.0
CAPABILITIES = ("provides_tools", "provides_hooks", "provides_middleware", "requires_env")
TIERS = ("official", "community")
REMOVED = "removed"

_NAME = re.compile(r"[a-z0-9_-]{1,64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_VERSION = re.compile(r"[A-Za-z0-9._+-]{0,32}")
TEXTS = (
    *("name", "repo", "sha", "subdir", "description", "title", "maintainer", "tier", "category"),
    *("version", "requires_hermes", "docs_url", "known_issues"),
)
FIELDS = (*TEXTS, "capabilities", "platforms")
_IS_LIST = re.compile(r"^- ", re.MULTILINE)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class CatalogEntry(LazyNamedTuple):
    """A plugin of the catalogue, pinned to a commit."""

    name: str
    repo: str
    sha: str
    subdir: str = ""
    description: str = ""
    title: str = ""
    maintainer: str = ""
    tier: str = "community"
    category: str = ""
    version: str = ""
    requires_hermes: str = ""
    docs_url: str = ""
    known_issues: str = ""
    platforms: tuple[str, ...] = ()
    capabilities: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Names that the plugin registers or needs, by field of a manifest."""

    @property
    def source(self) -> PluginSource:
        """Return what is fetched: the pinned commit."""
        return PluginSource("git", self.repo, self.sha, self.subdir)

    def as_origin(self) -> dict[str, str]:
        """Return the entry as it is recorded with an installed plugin."""
        return {key: getattr(self, key) for key in ("name", "repo", "sha", "subdir", "tier", "version")}

    def as_json(self) -> dict[str, Any]:
        """Return every field as JSON types."""
        return {**self._asdict(), "capabilities": {key: list(names) for key, names in self.capabilities.items()}}


class Catalog(LazyNamedTuple):
    """The catalogue at one time."""

    entries: Mapping[str, CatalogEntry]
    removed: tuple[RemovedPlugin, ...]
    problems: tuple[str, ...] = ()
    """Entries that cannot be used, each with the reason."""

    def find(self, name: str) -> CatalogEntry:
        """Return the entry of a name.

        Raises:
            UserError: there is none; the message names the nearest one.
        """
        if name in self.entries:
            return self.entries[name]
        near = nearest_name(name, sorted(self.entries))
        raise UserError(
            f"the catalogue has no plugin `{name}`" + (f" (did you mean `{near}`?)" if near else ""),
            hint=f"`hermes plugins search` lists it; a Python package is pip:{name}, a repository owner/{name}.",
        )


def is_catalog_name(text: str) -> bool:
    """Return whether a source can be the name of an entry."""
    return _NAME.fullmatch(text) is not None


def load_catalog(home: Path, where: str, *, now: float | None = None) -> Catalog:
    """Read the catalogue, and keep a copy of its removed list in the home.

    Args:
        where: the setting `plugins.catalog`.
        now: seconds since the epoch.

    Raises:
        UserError: there is no catalogue, or it cannot be read.
    """
    if not where:
        raise UserError(
            "no catalogue of plugins is named",
            hint=f"`hermes config set {KEY} PLACE` names a folder, a JSON file or an https address; "
            "a plugin is also installed by its repository: `hermes plugins install owner/repo`.",
        )
    if "://" in where:
        document = _fetched(home, where, time.time() if now is None else now)
    else:
        document = _read_place(Path(where).expanduser())
    catalog = parse_catalog(document)
    _keep_removed(home, where, catalog.removed)
    return catalog


def parse_catalog(document: Mapping[str, Any]) -> Catalog:
    """Return the catalogue of `{entries, removed}`; an unusable entry is left out with the reason."""
    rows = document.get("entries")
    if isinstance(rows, Mapping):
        rows = [{"name": name, **row} if isinstance(row, Mapping) else row for name, row in rows.items()]
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        raise UserError("the catalogue has no list `entries`", hint=f"Is {KEY} the right place?")
    entries: dict[str, CatalogEntry] = {}
    problems: list[str] = []
    for row in rows[:MAX_ENTRIES]:
        try:
            entry = _entry(row)
            entries[entry.name] = entry
        except ValueError as exc:
            name = row.get("name") if isinstance(row, Mapping) else row
            problems.append(f"entry {str(name)[:64]!r} is left out: {exc}")
    given = document.get(REMOVED)
    removed = tuple(
        entry for entry in (removed_row(row) for row in (given if isinstance(given, list) else ())) if entry is not None
    )
    return Catalog(entries, removed, tuple(problems))


def _entry(row: Any) -> CatalogEntry:
    if not isinstance(row, Mapping):
        raise ValueError("it is no mapping")
    texts = {key: str(row.get(key) or "").strip() for key in TEXTS}
    texts["tier"] = texts["tier"] or "community"
    if not is_catalog_name(texts["name"]):
        raise ValueError("name must be 1 to 64 of a-z, 0-9, `_` and `-`")
    parts = urlsplit(texts["repo"])
    if parts.scheme not in ("https", "ssh", "file") or parts.password is not None:
        raise ValueError(f"repo {texts['repo'][:120]!r} must be an https address of a git repository")
    if _COMMIT.fullmatch(texts["sha"]) is None:
        raise ValueError("sha must be a commit of 40 hexadecimal digits")
    if texts["subdir"].startswith("/") or ".." in texts["subdir"].split("/"):
        raise ValueError(f"subdir {texts['subdir']!r} leads out of the repository")
    if texts["tier"] not in TIERS:
        raise ValueError(f"tier {texts['tier']!r} must be one of {', '.join(TIERS)}")
    if _VERSION.fullmatch(texts["version"]) is None:
        raise ValueError("version must be at most 32 of letters, digits and . _ + -")
    if any(not c.isprintable() for text in texts.values() for c in text):
        raise ValueError("it has control characters")
    platforms = row.get("platforms")
    given = row.get("capabilities")
    capabilities = {
        key: tuple(map(str, names))
        for key, names in (given.items() if isinstance(given, Mapping) else ())
        if key in CAPABILITIES and isinstance(names, list) and names
    }
    texts["subdir"] = texts["subdir"].strip("/")
    return CatalogEntry(
        **texts,
        platforms=tuple(map(str, platforms)) if isinstance(platforms, list) else (),
        capabilities=capabilities,
    )


def _read_place(place: Path) -> Mapping[str, Any]:
    """Return the document of a folder or a file.

    Raises:
        UserError: it cannot be read.
    """
    try:
        if place.is_dir():
            return _read_folder(place)
        document = json.loads(_read_bounded(place))
    except (OSError, ValueError, RecursionError) as exc:
        why = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise UserError(f"the catalogue {place} cannot be read: {why}", hint=f"{KEY} names it.") from exc
    if not isinstance(document, Mapping):
        raise UserError(f"the catalogue {place} is no mapping with `entries`", hint=f"{KEY} names it.")
    return document


def _read_bounded(file: Path) -> str:
    with file.open("rb") as handle:
        data = handle.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    return data.decode("utf-8-sig")


def _read_folder(place: Path) -> Mapping[str, Any]:
    """Return the document of a folder; the stem of a file is the name of its entry."""
    entries: list[Any] = []
    removed: Any = []
    for file in sorted(place.glob("*.y*ml"))[: MAX_ENTRIES + 1]:
        try:
            text = _read_bounded(file)
            if file.stem == REMOVED:
                text = f"{REMOVED}:\n{text}" if _IS_LIST.search(text) else text
                removed = parse_yaml(text, (REMOVED,)).values.get(REMOVED) or []
                continue
            document = parse_yaml(text, FIELDS)
        except (YamlRejected, OSError, ValueError) as exc:
            if file.stem == REMOVED:
                raise ValueError(f"{file.name}: {exc}") from exc
            entries.append(f"{file.name}: {exc}")
            continue
        row: dict[str, Any] = {key: value for key, value in document.values.items() if isinstance(value, list | dict)}
        row = {"name": file.stem, **document.scalars, **row}
        entries.append(row if row["name"] == file.stem else f"{file.name} has the name {row['name']}")
    return {"entries": entries, REMOVED: removed}


def _fetched(home: Path, url: str, now: float) -> Mapping[str, Any]:
    """Return the document at an address, or the copy of it that is new enough.

    Raises:
        UserError: it cannot be fetched, and there is no copy of the last day.
    """
    check_address(url)
    file = home.joinpath(*CACHE_PLACE)
    try:
        kept = json.loads(file.read_bytes())
    except (OSError, ValueError):
        kept = {}
    if not isinstance(kept, dict) or kept.get("source") != url:
        kept = {}
    age, failed = now - float(kept.get("fetched_at") or 0), now - float(kept.get("failed_at") or 0)
    document = kept.get("document")
    if isinstance(document, dict) and (age < FRESH_S or (failed < FAILED_S and age < KEPT_S)):
        return document
    if failed < FAILED_S:
        raise UserError(f"the catalogue {url} cannot be fetched: {kept.get('why')}", hint="It is asked again in 60 s.")
    try:
        fresh = json.loads(fetch_text(url, MAX_BYTES, FETCH_S))
        if not isinstance(fresh, dict):
            raise ValueError("it is no mapping with `entries`")
    except (OSError, ValueError, RecursionError) as exc:
        _write(file, {**kept, "source": url, "failed_at": now, "why": str(exc)})
        if isinstance(document, dict) and age < KEPT_S:
            return document
        raise UserError(f"the catalogue {url} cannot be fetched: {exc}", hint=f"Is {KEY} right?") from exc
    _write(file, {"source": url, "fetched_at": now, "document": fresh})
    return fresh


def check_address(url: str) -> None:
    """Refuse an address without encryption.

    Raises:
        UserError: it is neither https nor http on this machine.
    """
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        return
    raise UserError(f"{url} is not fetched: it must begin with https://")


def fetch_text(url: str, most_bytes: int, limit_s: float) -> str:
    """Return the text at an address that the operator named; redirects lead to https only.

    Raises:
        OSError: the network or the server failed.
        ValueError: it is too long, no text, or a redirect leads to an address without encryption.
    """
    import httpx  # only a catalogue at an address needs it

    from hermes_agent.adapters.proxies import resolve_proxy_url
    from hermes_agent.system import safe_http

    def check(at: str) -> None:
        try:
            check_address(at)
        except UserError as exc:
            raise ValueError(str(exc)) from exc

    def proxy_for(host: str) -> str | None:
        return resolve_proxy_url(target_hosts=[host])

    async def fetch() -> bytes:
        opened = safe_http.open_url(url, private=True, timeout_s=limit_s, proxy_for=proxy_for, check=check)
        async with opened as (_, response):
            if response.status_code != 200:
                raise OSError(f"the server answered with status {response.status_code}")
            data = bytearray()
            async for piece in response.aiter_bytes():
                data += piece
                if len(data) > most_bytes:
                    raise ValueError(f"it has more than {most_bytes} bytes")
            return bytes(data)

    try:
        return asyncio.run(asyncio.wait_for(fetch(), 2 * limit_s)).decode("utf-8-sig")
    except httpx.HTTPError as exc:
        raise OSError(f"{type(exc).__name__}: {exc}") from exc


def _keep_removed(home: Path, where: str, removed: Sequence[RemovedPlugin]) -> None:
    """Write the copy of the removed list that a load reads, if it changed."""
    file = home.joinpath(*REMOVED_PLACE)
    if removed or file.exists():
        _write(file, {"source": where, REMOVED: [entry._asdict() for entry in removed]})


def _write(file: Path, value: Mapping[str, Any]) -> None:
    text = json.dumps(value) + "\n"
    try:
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(file, text, mode=PRIVATE)
    except OSError as exc:
        raise UserError(f"{file} cannot be written: {exc.strerror}") from exc
