"""What a plugin needs and does not find: variables and Python packages, with the way to add each."""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path
from typing import Any, NamedTuple

from hermes_agent.config import home_paths
from hermes_agent.config.effective import is_generated
from hermes_agent.core.redact import looks_like_secret_name
from hermes_agent.io.installation import missing_packages
from hermes_agent.plugins.gate import SecretLookup, make_value_check
from hermes_agent.plugins.manifest import PluginManifest

__all__ = [
    "NIX_PACKAGES",
    "RequiredVariable",
    "requirement_hint",
    "missing_packages",
    "missing_variables",
    "pip_refusal",
]

NIX_PACKAGES = "services.hermes-agent.extraPythonPackages"
_DISTRIBUTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class RequiredVariable(NamedTuple):
    """An entry of `requires_env`. Source: plugin contract §1.6."""

    name: str
    description: str = ""
    url: str = ""
    """Where to get a value."""
    secret: bool = True
    """Whether it is hidden while it is typed."""


def missing_variables(manifest: PluginManifest, secrets: SecretLookup) -> list[RequiredVariable]:
    """Return what `requires_env` names and has no value yet."""
    has = make_value_check(secrets)
    found = [_variable(entry) for entry in manifest.requires_env]
    return [v for v in dict.fromkeys(found) if not has(v.name)]


def _variable(entry: Any) -> RequiredVariable:
    if not isinstance(entry, dict):
        return RequiredVariable(str(entry), secret=looks_like_secret_name(str(entry)))
    name = str(entry["name"])
    told = entry.get("secret", entry.get("password"))
    secret = looks_like_secret_name(name) if told is None else bool(told)
    text = entry.get("description") or entry.get("prompt") or ""
    return RequiredVariable(name, str(text), str(entry.get("url") or ""), secret)


def requirement_hint(requirements: list[str], home: Path) -> str:
    """Return what adds Python packages to the agent's environment."""
    if pip_refusal(home) is not None:
        names = " ".join(f"ps.{m[0]}" for text in requirements if (m := _DISTRIBUTION.match(text.strip())))
        return f"{NIX_PACKAGES} = ps: [ {names} ];" if _is_nix(home) else _pip_line(requirements, "a writable Python")
    return _pip_line(requirements, sys.executable)


def pip_refusal(home: Path) -> str | None:
    """Return why no package may be installed beside the agent, or None."""
    if _is_nix(home):
        return f"this agent is declared by Nix: add it to {NIX_PACKAGES} (a directory: extraPlugins) and rebuild"
    library = Path(sysconfig.get_path("purelib"))
    if not _is_writable(library):
        return f"{library} cannot be written: install it with what installed hermes-agent"
    marker = Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED"
    if sys.prefix == sys.base_prefix and marker.exists():
        return (
            f"{sys.prefix} belongs to the system's package manager: install the agent into a venv (README.md, Install)"
        )
    return None


def _is_nix(home: Path) -> bool:
    where = home_paths(home)
    return where.declared is not None or is_generated(where.effective) or sys.prefix.startswith("/nix/store/")


def _is_writable(folder: Path) -> bool:
    import tempfile  # only when a package is to be installed

    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _pip_line(requirements: list[str], python: str) -> str:
    return f"{python} -m pip install {' '.join(_quoted(r) for r in requirements)}"


def _quoted(text: str) -> str:
    return text if re.fullmatch(r"[\w.=-]+", text) else f"'{text}'"
