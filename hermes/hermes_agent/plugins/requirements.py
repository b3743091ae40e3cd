"""Requirements of a plugin: a version of hermes-agent, other plugins and Python packages.

`requires_hermes` is compared with the published versions of hermes-agent that this program is compatible with, not with
its own version. Source: plugin contract of 0.23 §4.1 to §4.3.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from hermes_agent import __version__
from hermes_agent.config.home import make_plugin_folders
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.plugins.manifest import PluginManifest

logger = logging.getLogger(__name__)

Version = tuple[int, int, int]

SERVED_VERSIONS: tuple[Version, ...] = (
    (0, 19, 0),
    *((0, minor, patch) for minor in (20, 21, 22) for patch in range(10)),
    *((0, 23, patch) for patch in range(4)),
)
"""Published versions of hermes-agent that this program is compatible with by its plugin contract."""
SERVED_RANGE = "0.19.0 to 0.23.3"

UPSTREAM_ADAPTERS = frozenset(
    f"{platform}-platform"
    for platform in (
        *("dingtalk", "discord", "email", "feishu", "google_chat", "homeassistant", "irc", "line", "matrix"),
        *("mattermost", "ntfy", "photon", "raft", "simplex", "slack", "sms", "teams", "telegram", "wecom", "whatsapp"),
    )
)
"""Names of the plugins with upstream's adapters of single services, of which users install those that they need."""

_CLAUSE = re.compile(r"(>=|<=|==|!=|>|<)?\s*v?(\d+)(?:\.(\d+))?(?:\.(\d+))?\S*")
_COMPARE: Mapping[str, Callable[[Version, Version], bool]] = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
}
_PROJECT = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")


class VersionClause(LazyNamedTuple):
    """One comparison of `requires_hermes`."""

    operator: str
    version: Version

    def holds(self, version: Version) -> bool:
        """Return whether a version satisfies the clause."""
        return _COMPARE[self.operator](version, self.version)


def parse_clauses(spec: str) -> tuple[list[VersionClause], list[str]]:
    """Return the clauses of a `requires_hermes`, and the parts that cannot be parsed.

    A version is cut to three numbers: suffixes such as "rc1" or "+local" are dropped, a missing number is 0. A version
    without an operator means `>=`.
    """
    clauses: list[VersionClause] = []
    unreadable: list[str] = []
    for part in (part.strip() for part in spec.split(",")):
        match = _CLAUSE.fullmatch(part)
        if match is not None:
            version = (int(match[2]), int(match[3] or 0), int(match[4] or 0))
            clauses.append(VersionClause(match[1] or ">=", version))
        elif part:
            unreadable.append(part)
    return clauses, unreadable


def hermes_refusal(spec: str) -> str:
    """Return why a `requires_hermes` is not met, or "" if one served version satisfies all its clauses."""
    clauses, _ = parse_clauses(spec)  # a part that cannot be parsed refuses nothing
    if any(all(clause.holds(version) for clause in clauses) for version in SERVED_VERSIONS):
        return ""
    return (
        f"requires hermes {spec}, running {__version__}, which serves the plugin contract of {SERVED_RANGE}: "
        "none of these versions satisfies it"
    )


def missing_packages(requirements: Iterable[str]) -> list[str]:
    """Return the Python requirements that no installed distribution satisfies."""
    return [requirement for requirement in requirements if not _is_installed(requirement)]


def _is_installed(requirement: str) -> bool:
    from importlib import metadata  # 20 ms that a plugin without requirements does not need

    try:
        from packaging.requirements import InvalidRequirement, Requirement  # an optional package of the environment
    except ImportError:
        match = _PROJECT.match(requirement)
        return match is None or _installed_version(metadata, match[1]) is not None
    try:
        parsed = Requirement(requirement)
    except InvalidRequirement:
        return True  # `plugins validate` reports an invalid requirement
    if parsed.marker is not None and not parsed.marker.evaluate():
        return True
    version = _installed_version(metadata, parsed.name)
    return version is not None and parsed.specifier.contains(version, prereleases=True)


def _installed_version(metadata: object, name: str) -> str | None:
    try:
        return str(metadata.version(name))  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001 - damaged metadata counts as a package that is not installed
        return None


def prepare_load(manifest: PluginManifest, home: Path) -> None:
    """Create the folders of the home that plugins expect, and log declared packages that are missing.

    Either may fail, and the plugin still loads.
    """
    if manifest.source != "bundled":
        try:
            make_plugin_folders(home)
        except OSError as exc:  # a home that is read-only or on a full disk
            logger.debug("plugin %s may miss a folder of the home: %s", manifest.key, exc)
    missing = missing_packages(manifest.python_dependencies)
    if missing:
        logger.warning(
            "Plugin %s declares Python dependencies that are not installed: %s. Install them into the environment of "
            "hermes-agent (`hermes plugins install` offers it; on NixOS services.hermes-agent.extraPythonPackages), "
            "then restart",
            manifest.key,
            ", ".join(missing),
        )


def load_order(
    manifests: Iterable[PluginManifest], will_load: Callable[[PluginManifest], bool]
) -> list[PluginManifest]:
    """Return the plugins so that each comes after those that it requires; all others keep their order.

    Upstream's adapters come before other plugins of users: there they are bundled, and published plugins derive from
    them without a requirement.

    A required plugin that does not load, a requirement of a plugin on itself, and a cycle are logged; the plugins still
    load.
    """
    found = sorted(manifests, key=lambda m: 0 if m.source == "bundled" else 1 if m.name in UPSTREAM_ADAPTERS else 2)
    loading = {m.key: m for m in found if will_load(m)}
    keys = {name: m.key for m in reversed(loading.values()) for name in m.answers_to}
    edges = {key: _required_keys(m, keys) for key, m in loading.items() if m.requires_plugins}
    if not edges:
        return found
    ordered: list[PluginManifest] = []
    placed: set[str] = set()
    path: list[str] = []

    def place(manifest: PluginManifest) -> None:
        if manifest.key in placed:
            return
        if manifest.key in path:
            cycle = " -> ".join((*path[path.index(manifest.key) :], manifest.key))
            logger.warning("plugins require each other in a cycle: %s; they load in the order of discovery", cycle)
            return
        path.append(manifest.key)
        for key in edges.get(manifest.key, ()):
            place(loading[key])
        path.pop()
        if manifest.key not in placed:
            placed.add(manifest.key)
            ordered.append(manifest)

    for manifest in found:
        place(manifest)
    return ordered


def _required_keys(manifest: PluginManifest, keys: Mapping[str, str]) -> list[str]:
    required: list[str] = []
    for entry in manifest.requires_plugins:
        name = str(entry.get("id", "")) if isinstance(entry, Mapping) else str(entry)
        key = keys.get(name)
        if key == manifest.key:
            logger.warning("Plugin %s requires itself; ignored", manifest.key)
        elif key is None:
            logger.warning(
                "Plugin %s requires plugin '%s' which is not enabled/installed; loading anyway (probe availability at "
                "runtime via ctx.has_plugin). Enable it with `hermes plugins enable %s`",
                *(manifest.key, name, name),
            )
        else:
            required.append(key)
    return sorted(required)
