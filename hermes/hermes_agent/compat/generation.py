"""Detection of the generation of upstream's import paths that a plugin uses.

The plugin's source is parsed, not imported.
"""

from __future__ import annotations

import ast
import importlib.util
import logging
from collections.abc import Iterator
from pathlib import Path

from hermes_agent.compat.import_hook import moved

logger = logging.getLogger(__name__)

OLDER, NEWER, BOTH = "0.19", "0.20 to 0.23", "0.19 and 0.20 to 0.23"
NEW_MODULES = frozenset(
    {
        *(
            "agent.delegation_context",
            "agent.relay_runtime",
            "hermes_cli.approval_transport",
            "hermes_cli.plugin_events",
        ),
        *("hermes_cli.version_info", "hermes_yaml", "plugins.plugin_storage", "tools.tts_streaming"),
    }
)
"""Modules that upstream added in 0.20 or later and that were not split from older ones."""
NEW_NAMES = frozenset(
    {
        *(("agent.memory_provider", name) for name in ("RecallStatus", "is_trivial_prompt", "spawn_context_thread")),
        *(("hermes_cli.plugins", name) for name in ("PluginRegistration", "PluginState", "iter_hook_callbacks")),
        *(("hermes_constants", name) for name in ("hermes_home_key", "profile_name_for_home")),
        *(("agent.redact", name) for name in ("redact_for_egress", "register_redaction_patterns")),
    }
)
MAX_FILES, MAX_BYTES = 500, 2**20


def import_generation(path: str, source: str) -> str:
    """Return the generation of a plugin's import paths, or "" if its imports do not determine it.

    Args:
        path: the plugin's directory, or the value of its entry point.
        source: source of the manifest: `entrypoint`, `user`, …
    """
    newer = {row.newer for row in moved()} | NEW_MODULES
    older = {(row.older, name) for row in moved() for name in row.names}
    found: set[str] = set()
    for module, name in _imports(_folder(path) if source == "entrypoint" else Path(path)):
        if module in newer or (module, name) in NEW_NAMES or f"{module}.{name}" in newer:
            found.add(NEWER)
        elif (module, name) in older:
            found.add(OLDER)
    return BOTH if len(found) > 1 else next(iter(found), "")


def _folder(value: str) -> Path | None:
    """Return the file or folder of an entry point's top-level package without importing it."""
    try:
        spec = importlib.util.find_spec(value.partition(":")[0].strip().partition(".")[0])
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    return origin.parent if origin.name == "__init__.py" else origin


def _imports(place: Path | None) -> Iterator[tuple[str, str]]:
    if place is None:
        return
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))[:MAX_FILES]
    for file in files:
        try:
            if file.stat().st_size > MAX_BYTES:
                continue
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError) as exc:
            logger.debug("%s cannot be parsed: %s", file, exc)
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield from ((node.module, alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from ((alias.name, "") for alias in node.names)
