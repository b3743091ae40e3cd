"""Take a plugin out of the settings that name it, as far as they are the person's own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from hermes_agent.config.edit import set_value
from hermes_agent.core.errors import UserError
from hermes_agent.plugins.gate import PluginSettings

__all__ = ["unlist"]


def unlist(home: Path, names: Collection[str], settings: PluginSettings, environ: Mapping[str, str]) -> list[str]:
    """Remove the names from `plugins.enabled` and `plugins.disabled`.

    Returns:
        A sentence for each list that still names the plugin, because it cannot be changed here.
    """
    left = []
    for field in ("enabled", "disabled"):
        present: tuple[str, ...] = getattr(settings, field)
        kept = [name for name in present if name not in names]
        if len(kept) != len(present):
            try:
                set_value(home, ("plugins", field), kept, environ=environ)
            except UserError as exc:
                left.append(f"plugins.{field} still names it: {' '.join(str(exc).split())}")
    return left
