"""`hermes plugins pack`: several plugins with their settings in one file, `hermes-pack.yaml`.

A pack grants nothing: keys of permissions and secrets refuse it as a whole, each plugin is asked about, and values that
the user has set stay. Source: plugin contract of 0.23 §11.6.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.app.plugins.catalog import check_address, fetch_text, is_catalog_name
from hermes_agent.app.plugins.catalog_commands import COMMIT, catalog_record
from hermes_agent.app.plugins.home import InstalledPlugins
from hermes_agent.app.plugins.install import run_install
from hermes_agent.app.plugins.terminal_io import confirm, is_interactive, printable, table
from hermes_agent.config import load
from hermes_agent.config.bounded_yaml import YamlRejected, parse_yaml
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.plugins.manifest import PluginManifest

MAX_BYTES, FETCH_S, MAX_PLUGINS = 2**20, 10.0, 100
SECRET_WORDS = ("token", "secret", "password", "api_key", "private_key", "credential", "auth")
OPERATOR_KEYS = frozenset(
    {
        *("granted_capabilities", "capabilities_consent", "mcp_allowlist", "trust", "isolation", "on_guard_error"),
        *("ignore_missing_env", "llm"),
    }
)
"""Settings of `plugins.entries.<id>` that only the operator decides."""
SETTINGS = ("settings", "config")


class PackMember(LazyNamedTuple):
    """A plugin of a pack: an entry of the catalogue, or a commit of a repository."""

    name: str
    repo: str = ""
    ref: str = ""
    subdir: str = ""

    @property
    def source(self) -> str:
        """Return the source for `hermes plugins install`."""
        return f"{self.repo}#{self.subdir}" if self.repo and self.subdir else self.repo or self.name


class PluginPack(LazyNamedTuple):
    """The content of a pack."""

    name: str
    about: Mapping[str, str]
    """`description`, `author` and `version`, where they are given."""
    members: tuple[PackMember, ...]
    config: Mapping[str, Mapping[str, Any]]
    skills: tuple[str, ...]


def read_pack(source: str) -> PluginPack:
    """Read a pack.

    Raises:
        UserError: it cannot be read, or it is refused.
    """
    try:
        if "://" in source:
            check_address(source)
            text = fetch_text(source, MAX_BYTES, FETCH_S)
        else:
            data = Path(source).expanduser().read_bytes()
            if len(data) > MAX_BYTES:
                raise ValueError(f"it has more than {MAX_BYTES} bytes")
            text = data.decode("utf-8-sig")
        document = parse_yaml(text, ("plugins", "config", "skills"))
    except (OSError, ValueError, YamlRejected) as exc:
        why = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise UserError(f"the pack {source} cannot be read: {why}") from exc
    given, config, skills = (document.values.get(key) for key in ("plugins", "config", "skills"))
    if not isinstance(given, list) or not given or len(given) > MAX_PLUGINS:
        raise UserError(f"the pack {source} needs a list `plugins` of 1 to {MAX_PLUGINS} plugins")
    if config is not None and not (isinstance(config, dict) and all(isinstance(v, dict) for v in config.values())):
        raise UserError(f"the pack {source}: config must map plugins to their settings")
    if refused := sorted(set(_refused_keys(config or {}))):
        raise UserError(
            f"the pack {source} is refused: its config sets {', '.join(refused)}",
            hint="A pack gives no permissions and holds no secrets; set these yourself.",
        )
    about = {key: document.scalars[key] for key in ("description", "author", "version") if document.scalars.get(key)}
    members = tuple(_member(row, source) for row in given)
    names = tuple(str(name) for name in skills) if isinstance(skills, list) else ()
    return PluginPack(document.scalars.get("name", "") or Path(source).stem, about, members, config or {}, names)


def _member(row: Any, source: str) -> PackMember:
    if isinstance(row, str):
        row = {"name": row}
    fields = {key: str(row.get(key) or "").strip() for key in PackMember._fields} if isinstance(row, dict) else {}
    member = PackMember(**fields) if fields else PackMember("")
    if member.repo and (COMMIT.fullmatch(member.ref) is None or ".." in member.subdir.split("/")):
        raise UserError(f"the pack {source}: {member.repo} needs `ref`, a commit of 40 hexadecimal digits")
    if not member.repo and not is_catalog_name(member.name):
        raise UserError(f"the pack {source}: {row!r} is no plugin: expected `name`, or `repo` with `ref`")
    return member


def _refused_keys(config: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for key, value in config.items():
        name = str(key).lower()
        place = f"{path}.{key}" if path else str(key)
        words = any(word in name for word in SECRET_WORDS)
        if path and (name in OPERATOR_KEYS or name.startswith("allow_") or words):
            yield place
        elif isinstance(value, Mapping):
            yield from _refused_keys(value, place)


def run_pack(args: argparse.Namespace) -> int:
    """Install, show or export a pack."""
    if args.action == "export":
        return _export(InstalledPlugins(), args.name, enabled_only=args.enabled_only)
    if not args.source:
        print(f"hermes: name the pack: hermes plugins pack {args.action} SRC", file=sys.stderr)
        return EXIT_USAGE
    pack = read_pack(args.source)
    _show(pack)
    return EXIT_OK if args.action == "show" else _install(pack, args)


def _show(pack: PluginPack) -> None:
    print(printable(f"{pack.name} {pack.about.get('version', '')}".strip()))
    rows = [(key, pack.about[key]) for key in ("description", "author") if key in pack.about]
    for member in pack.members:
        rows.append(("plugin", f"{member.source}@{member.ref[:12]}" if member.ref else f"{member.name} (catalogue)"))
    rows += [("config", f"{name}: {json.dumps(values, default=str)}") for name, values in pack.config.items()]
    rows += [("skill", f"{name} (named only; `hermes skills install {name}`)") for name in pack.skills]
    print("\n".join(table(rows)))


def _install(pack: PluginPack, args: argparse.Namespace) -> int:
    """Install each plugin after a question for the pack and one for each plugin."""
    if not is_interactive():
        raise UserError(
            "a pack is not installed without a terminal: each plugin is asked about",
            hint="`hermes plugins install` installs one.",
        )
    if not confirm(f"Install these {len(pack.members)} plugins?"):
        print("Not installed.")
        return EXIT_FAILED
    failed = []
    for member in pack.members:
        options = argparse.Namespace(
            source=member.source, ref=member.ref, enable=None, force=args.force, yes=False, allow_removed=False
        )
        try:
            if run_install(options) != EXIT_OK:
                failed.append(member.name or member.repo)
        except UserError as exc:  # the others are still installed
            print(f"hermes: {printable(str(exc))}", file=sys.stderr)
            failed.append(member.name or member.repo)
    _apply_config(pack)
    if failed:
        print(f"Not installed: {printable(', '.join(failed))}")
    return EXIT_FAILED if failed else EXIT_OK


def _apply_config(pack: PluginPack) -> None:
    """Write the settings of the pack's installed plugins that have no value yet."""
    from hermes_agent.config.edit import set_value  # loads the editor of the config

    here = InstalledPlugins()
    ours = {name for m in here.found.plugins.values() if _is_member(here, m, pack) for name in m.answers_to}
    for name, values in pack.config.items():
        if name not in ours:
            print(f"The settings of {printable(name)} are left out: the pack did not install it.")
            continue
        wanted = {k: v for k, v in values.items() if k not in SETTINGS}
        for part in SETTINGS:
            wanted |= values[part] if isinstance(values.get(part), Mapping) else {}
        entry = load(here.home).settings.plugins.entries.get(name) or {}
        present = {**(entry.get("config") or {}), **(entry.get("settings") or {})}
        for key, value in wanted.items():
            if key in present:
                print(f"plugins.entries.{name}.settings.{key} stays as you set it.")
            else:
                set_value(here.home, ("plugins", "entries", name, "settings", str(key)), value, environ=os.environ)


def _is_member(here: InstalledPlugins, manifest: PluginManifest, pack: PluginPack) -> bool:
    origin, record = here.trust.entry(manifest).origin, catalog_record(here, manifest)
    commits, names = {m.ref for m in pack.members if m.ref}, {m.name for m in pack.members if not m.repo}
    return record.get("name") in names or origin.get("commit") in commits


_PLAIN = re.compile(r"[A-Za-z0-9][\w./:@+-]*")


def _export(here: InstalledPlugins, name: str, *, enabled_only: bool) -> int:
    """Print a pack of the plugins that were installed from the catalogue or from git."""
    lines = [f"name: {_text(name)}", "plugins:"]
    left_out = []
    for key, manifest in sorted(here.found.plugins.items()):
        origin, record = here.trust.entry(manifest).origin, catalog_record(here, manifest)
        if manifest.source != "user" or (enabled_only and not here.activation(manifest)[0].load):
            continue
        if record.get("name"):
            lines.append(f"  - name: {_text(str(record['name']))}")
        elif origin.get("kind") == "git" and COMMIT.fullmatch(str(origin.get("commit") or "")):
            lines += [f"  - repo: {_text(str(origin['source']))}", f"    ref: {_text(str(origin['commit']))}"]
            lines += [f"    subdir: {_text(str(origin['subdir']))}"] if origin.get("subdir") else []
        else:
            left_out.append(key)
    if len(lines) == 2:
        raise UserError("no plugin here was installed from the catalogue or from git, so a pack would be empty")
    print("\n".join(lines))
    for key in left_out:
        print(f"warning: {key} is left out: it was not installed from git", file=sys.stderr)
    return EXIT_OK


def _text(text: str) -> str:
    """Return a YAML scalar."""
    return text if _PLAIN.fullmatch(text) and not text.isdigit() else json.dumps(text)
