"""Portable packages (Agent Plugins 1.0): `plugin.json`, the skills, and the MCP servers.

A package has no Python code. An unusable skill or server is left out with a reason, and the rest is used. No path may
lead out of the package, also through a link. Source: plugin contract of 0.23 §12.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hermes_agent.core.lazy_types import LazyNamedTuple

SERVERS_FILE = "mcp.json"
SCHEMA = "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json"
SERVERS_SCHEMA = "https://agent-plugins.org/schemas/1.0.0/mcp.schema.json"
MAX_BYTES = 2**20
EXTENSION = "com.nousresearch.hermes"
ROOT, DATA = "PLUGIN_ROOT", "PLUGIN_DATA"

_TEXTS = ("version", "description", "homepage", "repository", "license")
_KNOWN = frozenset({"$schema", "name", "author", "keywords", "extensions", *_TEXTS})
_NAME = re.compile(r"(?!.*(?:--|\.\.))[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
_SKILL = re.compile(r"(?!.*--)[a-z0-9]+(?:-[a-z0-9]+)*")
_COMMAND = re.compile(r"[^\s/$]+|\./[^\s$]+")
_PLACEHOLDER = re.compile(r"\$\{(PLUGIN_ROOT|PLUGIN_DATA)\}")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class InvalidPackage(Exception):
    """A package, a skill or a server that cannot be used; the text says why."""


class PackageManifest(LazyNamedTuple):
    """The content of a `plugin.json`."""

    name: str
    texts: Mapping[str, str]
    """`version`, `description`, `homepage`, `repository` and `license`, where they are given."""
    author: str
    keywords: tuple[str, ...]
    extensions: Mapping[str, Any]
    notes: tuple[str, ...]
    """What was ignored."""


class PackageSkill(LazyNamedTuple):
    """A skill of a package."""

    name: str
    file: Path
    description: str


class PackageServer(LazyNamedTuple):
    """An MCP server of a package, with the block that `mcp_servers` of the config would have."""

    name: str
    block: Mapping[str, Any]


class PackageContent(LazyNamedTuple):
    """The usable parts of a package, and why others are left out."""

    skills: tuple[PackageSkill, ...]
    servers: tuple[PackageServer, ...]
    problems: tuple[str, ...]


def read_package(file: str) -> PackageManifest:
    """Read a `plugin.json`.

    Raises:
        InvalidPackage: it cannot be used.
    """
    document = _read_json(Path(file))
    if document.get("$schema") != SCHEMA:
        raise InvalidPackage(f"$schema is {document.get('$schema')!r}: expected {SCHEMA}")
    name = document.get("name")
    if not isinstance(name, str) or len(name) > 64 or _NAME.fullmatch(name) is None:
        raise InvalidPackage(f"name is {name!r}: expected at most 64 of a-z, 0-9, `-` and `.`")
    for key in _TEXTS:
        _check_type(document, key, str)
    keywords, author = document.get("keywords", []), document.get("author", {})
    if not isinstance(keywords, list) or not all(isinstance(word, str) for word in keywords):
        raise InvalidPackage(f"keywords is {keywords!r}: expected a list of texts")
    extras = set(author) - {"name", "email", "url"} if isinstance(author, dict) else {str(author)}
    if extras or not all(isinstance(value, str) for value in author.values()):
        raise InvalidPackage(f"author is {author!r}: expected a mapping with name, email and url")
    notes = [f"plugin.json: unknown key {key!r} ignored" for key in sorted(set(document) - _KNOWN)]
    extensions = document.get("extensions", {})
    if not isinstance(extensions, dict):
        notes.append("plugin.json: extensions is no mapping; ignored")
        extensions = {}
    for server, options in server_options(extensions).items():
        if unused := sorted(set(options) - _USED_OPTIONS):
            notes.append(f"plugin.json: {', '.join(unused)} of server {server!r} has no effect here")
    texts = {key: document[key] for key in _TEXTS if key in document}
    shown = ", ".join(author[key] for key in ("name", "email", "url") if author.get(key))
    return PackageManifest(name, texts, shown, tuple(keywords), extensions, tuple(notes))


def read_content(folder: Path, data: Path) -> PackageContent:
    """Read the skills and the servers of a package.

    Args:
        data: the folder of its data, which `${PLUGIN_DATA}` names.
    """
    problems: list[str] = []
    skills = tuple(_skills(folder, problems))
    servers: list[PackageServer] = []
    file = folder / SERVERS_FILE
    if os.path.lexists(file):
        try:
            servers = _servers(file, folder, data, problems)
        except InvalidPackage as exc:
            problems.append(f"{SERVERS_FILE}: {exc}; no server is used")
    return PackageContent(skills, tuple(servers), tuple(problems))


_USED_OPTIONS = frozenset({"trust"})
"""Options of a server with an effect; the others are for upstream's desktop program."""


def server_options(extensions: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return the options of servers that a package declares for this program, by server."""
    own = extensions.get(EXTENSION)
    servers = own.get("servers") if isinstance(own, dict) else None
    found = servers if isinstance(servers, dict) else {}
    return {str(name): options for name, options in found.items() if isinstance(options, dict)}


def server_slug(name: str) -> str:
    """Return the name of a server in this program."""
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_")


def _read_json(file: Path) -> dict[str, Any]:
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise InvalidPackage("it is no regular file")
        with file.open("rb") as handle:
            data = handle.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise InvalidPackage(f"it has more than {MAX_BYTES} bytes")
        document = json.loads(data.decode("utf-8-sig"))
    except OSError as exc:
        raise InvalidPackage(exc.strerror or str(exc)) from exc
    except (ValueError, RecursionError) as exc:
        raise InvalidPackage(f"it is no JSON: {exc}") from exc
    if not isinstance(document, dict):
        raise InvalidPackage(f"top level must be a mapping, got {type(document).__name__}")
    return document


def _check_type(document: Mapping[str, Any], key: str, kind: type) -> None:
    if key in document and not isinstance(document[key], kind):
        raise InvalidPackage(f"{key} is {document[key]!r}: expected text")


def _inside(path: Path, folder: Path) -> Path:
    """Return the real path of a part of the package.

    Raises:
        InvalidPackage: it leads out of the package.
    """
    real = path.resolve()
    if not real.is_relative_to(folder.resolve()):
        raise InvalidPackage(f"{path.name} leads out of the package, to {real}")
    return real


def _skills(folder: Path, problems: list[str]) -> Iterator[PackageSkill]:
    root = folder / "skills"
    try:
        names = sorted(os.listdir(_inside(root, folder))) if root.is_dir() else []  # noqa: PTH208
    except (OSError, InvalidPackage) as exc:
        problems.append(f"skills: {exc}; no skill is used")
        return
    for name in names:
        file = root / name / "SKILL.md"
        if not file.parent.is_dir() or not os.path.lexists(file):
            continue
        try:
            yield _read_skill(name, file, folder)
        except InvalidPackage as exc:
            problems.append(f"skill {name!r} is left out: {exc}")


def _read_skill(name: str, file: Path, folder: Path) -> PackageSkill:
    from hermes_agent.skills.skill_file import read_document  # only a package needs it

    real = _inside(file, folder)
    try:
        document = read_document(real)
    except OSError as exc:
        raise InvalidPackage(exc.strerror or str(exc)) from exc
    fields = document.fields
    if document.problem:
        raise InvalidPackage(f"its front matter cannot be read: {document.problem}")
    if len(name) > 64 or _SKILL.fullmatch(name) is None:
        raise InvalidPackage("the name of its folder must be at most 64 of a-z, 0-9 and single `-`")
    if fields.get("name") != name:
        raise InvalidPackage(f"its name is {fields.get('name')!r}, and its folder {name!r}")
    about = fields.get("description")
    if not isinstance(about, str) or not 1 <= len(about.strip()) <= 1024:
        raise InvalidPackage("its description must be a text of 1 to 1024 characters")
    for key, most in (("license", MAX_BYTES), ("compatibility", 500), ("allowed-tools", MAX_BYTES)):
        value = fields.get(key, "")
        if not isinstance(value, str) or len(value) > most:
            raise InvalidPackage(f"its {key} must be a text of at most {most} characters")
    metadata = fields.get("metadata", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for pair in metadata.items() for v in pair):
        raise InvalidPackage("its metadata must map texts to texts")
    return PackageSkill(name, real, about.strip())


def _servers(file: Path, folder: Path, data: Path, problems: list[str]) -> list[PackageServer]:
    document = _read_json(_inside(file, folder))
    if document.get("$schema") != SERVERS_SCHEMA:
        raise InvalidPackage(f"$schema is {document.get('$schema')!r}: expected {SERVERS_SCHEMA}")
    given = document.get("mcpServers")
    if set(document) != {"$schema", "mcpServers"} or not isinstance(given, dict):
        raise InvalidPackage("it must have exactly $schema and mcpServers, a mapping")
    found: dict[str, PackageServer] = {}
    for name, server in given.items():
        slug = server_slug(name)
        try:
            if not slug:
                raise InvalidPackage("its name has no letters or digits")
            if slug in found:
                raise InvalidPackage(f"another server of the package is called {slug!r}, too")
            found[slug] = PackageServer(slug, _block(server, folder, data))
        except InvalidPackage as exc:
            problems.append(f"server {name!r} is left out: {exc}")
    return list(found.values())


def _block(server: Any, folder: Path, data: Path) -> dict[str, Any]:
    if not isinstance(server, dict):
        raise InvalidPackage("it is no mapping")
    match server.get("type"):
        case "stdio":
            return _program(server, folder, data)
        case "streamable-http":
            return _address(server)
    raise InvalidPackage(f"type {server.get('type')!r} is not supported: expected stdio or streamable-http")


def _program(server: Mapping[str, Any], folder: Path, data: Path) -> dict[str, Any]:
    _check_keys(server, {"type", "command", "args", "env", "cwd"})
    command, args, env = server.get("command"), server.get("args", []), server.get("env", {})
    if not isinstance(command, str) or _COMMAND.fullmatch(command) is None:
        raise InvalidPackage(f"command {command!r} must be the name of a program, or ./path in the package")
    if not isinstance(args, list) or not all(isinstance(value, str) for value in args):
        raise InvalidPackage("args must be a list of texts")
    _check_texts(env, "env")
    if reserved := sorted({ROOT, DATA} & set(env)):
        raise InvalidPackage(f"{ROOT} and {DATA} are reserved, and env sets {', '.join(reserved)}")
    root = folder.resolve()
    values = {ROOT: str(root), DATA: str(data)}

    def expanded(text: str) -> str:
        return _PLACEHOLDER.sub(lambda found: values[found[1]], text)

    if command.startswith("./"):
        command = str(_inside(root / command, root))
    return {
        "command": command,
        "args": [expanded(value) for value in args],
        "env": {**{name: expanded(value) for name, value in env.items()}, **values},
        "cwd": _working_directory(server.get("cwd", "./"), root, data, expanded),
    }


def _working_directory(cwd: Any, root: Path, data: Path, expanded: Any) -> str:
    if not isinstance(cwd, str) or not (cwd == "." or cwd.startswith(("./", f"${{{ROOT}}}", f"${{{DATA}}}"))):
        raise InvalidPackage(f"cwd {cwd!r} must begin with ./, ${{{ROOT}}} or ${{{DATA}}}")
    place = Path(expanded(cwd)) if cwd.startswith("$") else root / cwd
    return str(_inside(place, data if cwd.startswith(f"${{{DATA}}}") else root))


def _address(server: Mapping[str, Any]) -> dict[str, Any]:
    _check_keys(server, {"type", "url", "headers"})
    url, headers = server.get("url"), server.get("headers", {})
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        host = parts.hostname
    except ValueError as exc:
        raise InvalidPackage(f"url {url!r} is no address: {exc}") from exc
    if parts.scheme not in ("http", "https") or not host or parts.username is not None or parts.fragment:
        raise InvalidPackage(f"url {url!r} must be an absolute http(s) address without a user and a fragment")
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise InvalidPackage(f"url {url!r} must use https; http is for this machine only")
    _check_texts(headers, "headers")
    return {"url": url, "headers": dict(headers)}


def _check_keys(server: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(set(server) - known):
        raise InvalidPackage(f"unknown keys: {', '.join(unknown)}")


def _check_texts(value: Any, key: str) -> None:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise InvalidPackage(f"{key} must map names to texts")
