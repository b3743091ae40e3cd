"""What to do about a plugin that did not load, where the reason tells it."""

from __future__ import annotations

import re
import sys

from hermes_agent.plugins.manifest import PluginManifest

__all__ = ["NOT_INSTALLED", "remedy_for"]

NOT_INSTALLED = re.compile(r"ModuleNotFoundError: No module named '([^'.]+)[^']*'")


def remedy_for(error: str, manifest: PluginManifest) -> str:
    """Return one sentence; empty when nothing better is known than the error itself."""
    missing = NOT_INSTALLED.fullmatch(error)
    if missing is not None and missing[1] not in ("hermes_agent", "hermes_plugins"):
        return (
            f"add the package that brings `{missing[1]}`: `{sys.executable} -m pip install {missing[1]}`, on NixOS "
            "services.hermes-agent.extraPythonPackages"
        )
    if error == "no register() function":
        return f"define `def register(ctx):` in {manifest.path}{'' if _is_package(manifest) else '/__init__.py'}"
    if error.startswith("No __init__.py in"):
        return "a directory plugin has plugin.yaml and __init__.py side by side"
    return ""


def _is_package(manifest: PluginManifest) -> bool:
    return manifest.source == "entrypoint"
