"""How this program is installed: its bundled plugins, its extras, and the command that adds an extra.

No command contains the bare distribution name, since another program has it on a package index.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

NAME = "hermes-agent"
_EXTRA = re.compile(r"""(.*?)\s*;\s*extra\s*==\s*["']([\w-]+)["']\s*""")
_DISTRIBUTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

COMPAT = "compat"
"""The extra with the packages that upstream installs and that published plugins import without declaring them."""
COMPAT_IMPORTS: Mapping[str, str] = {
    "PIL": "pillow",
    "anyio": "anyio",
    "croniter": "croniter",
    "cryptography": "cryptography",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "fastapi": "fastapi",
    "jinja2": "jinja2",
    "jwt": "pyjwt",
    "markdown": "markdown",
    "multipart": "python-multipart",
    "openai": "openai",
    "packaging": "packaging",
    "pathspec": "pathspec",
    "psutil": "psutil",
    "ptyprocess": "ptyprocess",
    "pydantic": "pydantic",
    "python_multipart": "python-multipart",
    "starlette": "starlette",
    "tenacity": "tenacity",
    "urllib3": "urllib3",
    "websockets": "websockets",
}
"""By import name, the package of the extra `compat`."""

BUNDLED_PLUGINS = Path(__file__).resolve().parent.parent / "_bundled"
"""Folder of the bundled plugins in the package."""
SHIPPED = BUNDLED_PLUGINS.with_name("_shipped")
"""Folder of the pages and systemd units in the package."""
PIPX_FILE, UV_FILE = "pipx_metadata.json", "uv-receipt.toml"
"""Files that these installers leave in an environment of theirs."""
VERSIONS = ".versions"
"""Suffix of the folder in which `hermes update` makes the successors of an environment."""


def stable_prefix() -> Path:
    """Return the environment of this program by the path that stays the same after `hermes update`."""
    prefix = Path(sys.prefix)
    if prefix.parent.name.endswith(VERSIONS):
        link = prefix.parent.with_name(prefix.parent.name.removesuffix(VERSIONS))
        if link.is_symlink():
            return link
    return prefix


def stable_python() -> Path:
    """Return the interpreter of this program by a path that stays the same after `hermes update`."""
    prefix = stable_prefix()
    return Path(sys.executable) if prefix == Path(sys.prefix) else prefix / "bin" / Path(sys.executable).name


@functools.cache
def bundled_plugin(category: str, name: str) -> ModuleType:
    """Return the module of one bundled plugin, imported at its first use."""
    import importlib.util

    module_name = "hermes_plugins_bundled_" + re.sub(r"\W", "_", f"{category}_{name}")
    file = BUNDLED_PLUGINS / category / name / "__init__.py"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module


def extras() -> dict[str, list[str]]:
    """Return the requirements of each extra, as the installed metadata declares them.

    Empty if the program runs from a source tree without metadata.
    """
    from importlib import metadata  # takes 20 ms of a start, and few commands need it

    try:
        declared = metadata.requires(NAME) or ()
    except metadata.PackageNotFoundError:
        return {}
    return read_extras(declared)


def read_extras(declared: Iterable[str]) -> dict[str, list[str]]:
    """Return the requirements of each extra from lines `Requires-Dist` of metadata."""
    found: dict[str, list[str]] = {}
    for match in filter(None, map(_EXTRA.fullmatch, declared)):
        found.setdefault(match[2], []).append(match[1])
    return found


def missing_packages(requirements: Iterable[str]) -> list[str]:
    """Return the requirements without an installed distribution; versions are not compared."""
    return [text for text in requirements if not _is_installed(text)]


def _is_installed(requirement: str) -> bool:
    from importlib import metadata

    name = _DISTRIBUTION.match(requirement.strip())
    try:
        return name is not None and bool(metadata.version(name[0]))
    except metadata.PackageNotFoundError:
        return False


def install_hint(extra: str) -> str:
    """Return, in backticks, how to add an extra to this installation: a command, or a setting of Nix."""
    if sys.prefix.startswith("/nix/store/"):
        return f'`services.hermes-agent.extraDependencyGroups = [ "{extra}" ];`'
    needed = extras().get(extra, [])
    if needed and (Path(sys.prefix) / PIPX_FILE).is_file():
        return f"`{shlex.join(['pipx', 'inject', NAME, *needed])}`"
    if needed and (Path(sys.prefix) / UV_FILE).is_file():  # an environment without pip
        return f"`{shlex.join(['uv', 'pip', 'install', '--python', str(stable_python()), *needed])}`"
    target = _target(origin(), extra)
    packages = [target] if target else needed
    return f"`{shlex.join([str(stable_python()), '-m', 'pip', 'install', *packages])}`"


def origin() -> Mapping[str, Any]:
    """Return the source that the installer recorded (PEP 610), else the source tree."""
    from importlib import metadata

    try:
        text = metadata.distribution(NAME).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        text = None
    tree = Path(__file__).resolve().parents[3]
    if text is None:
        return {"url": tree.as_uri()} if (tree / "pyproject.toml").is_file() else {}
    try:
        value = json.loads(text)
    except ValueError:  # truncated
        value = None
    return value if isinstance(value, dict) else {}


def _target(origin: Mapping[str, Any], extra: str) -> str:
    """Return the pip requirement of the program with an extra; empty if its source is unknown or missing."""
    url = str(origin.get("url") or "")
    parts = urlsplit(url)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        with contextlib.suppress(OSError):  # in a folder of another user
            return f"{path}[{extra}]" if path.is_file() or (path / "pyproject.toml").is_file() else ""
        return ""
    vcs = origin.get("vcs_info")
    if isinstance(vcs, dict):
        url = f"{vcs.get('vcs', 'git')}+{url}@{vcs.get('commit_id', 'HEAD')}"
    return f"{NAME}[{extra}] @ {url}" if url else ""
