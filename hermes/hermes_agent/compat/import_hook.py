"""Serve upstream's import names from `upstream/`: the path of a file there is the name that it is imported by.

The finder stands before Python's own path search, so that a stray `utils.py` on the path is never taken for
upstream's. What is reserved and not served is not found, with the reason from `declined.toml`.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import logging
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

__all__ = [
    "RESERVED",
    "UPSTREAM",
    "UpstreamFinder",
    "install",
    "installed",
    "is_served",
    "served_file",
    "uninstall",
]

logger = logging.getLogger(__name__)

UPSTREAM = Path(__file__).resolve().parent / "upstream"
RESERVED = frozenset(
    {
        "agent",
        "cron",
        "gateway",
        "hermes_cli",
        "hermes_constants",
        "hermes_state",
        "model_tools",
        "plugins",
        "providers",
        "run_agent",
        "tools",
        "toolsets",
        "utils",
    }
)
"""Upstream's top-level names; all of them are ours to answer for."""
TELL_TALE = ("hermes_constants", "hermes_cli")
"""Names that nobody but upstream's distribution has."""


class UpstreamFinder(MetaPathFinder):
    """Answers for `RESERVED`, and for nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where the shim is.

        Raises:
            ModuleNotFoundError: the name is upstream's and is not served; it says why.
        """
        if fullname.partition(".")[0] not in RESERVED:
            return None
        file = served_file(fullname)
        if file is not None:
            package = [str(file.parent)] if file.name == "__init__.py" else None
            return importlib.util.spec_from_file_location(fullname, file, submodule_search_locations=package)
        if _is_probe():
            return None
        raise ModuleNotFoundError(f"No module named {fullname!r} ({_reason(fullname)})", name=fullname)


def served_file(fullname: str) -> Path | None:
    """Return the shim of an import name, or None."""
    place = UPSTREAM.joinpath(*fullname.split("."))
    for file in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
        if file.is_file():
            return file
    return None


def install() -> None:
    """Serve the names from now on; a second call does nothing."""
    if installed():
        return
    _warn_of_the_real_one()
    at = next((i for i, finder in enumerate(sys.meta_path) if finder is PathFinder), len(sys.meta_path))
    sys.meta_path.insert(at, UpstreamFinder())


def uninstall() -> None:
    """Take the finder away, and the modules that it served."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, UpstreamFinder)]
    for name in list(sys.modules):
        if is_served(name):
            del sys.modules[name]


def installed() -> bool:
    """Say whether the names are served now."""
    return any(isinstance(finder, UpstreamFinder) for finder in sys.meta_path)


def is_served(name: str) -> bool:
    """Say whether the imported module `name` is one of the shims."""
    file = str(getattr(sys.modules.get(name), "__file__", ""))
    return name.partition(".")[0] in RESERVED and file.startswith(str(UPSTREAM))


def _is_probe() -> bool:
    """Say whether `importlib.util.find_spec` asks: it expects None for a module that is not there, not an error."""
    frame = sys._getframe(1)
    for _ in range(4):
        if frame.f_back is None:
            return False
        frame = frame.f_back
        if frame.f_code is importlib.util.find_spec.__code__:
            return True
    return False


def _reason(fullname: str) -> str:
    from hermes_agent.compat.declined import reason  # TOML is read only when something is missing

    return reason(fullname)


def _warn_of_the_real_one() -> None:
    for name in TELL_TALE:
        present = sys.modules.get(name)
        spec = present.__spec__ if present is not None else PathFinder.find_spec(name)
        if spec is not None:
            logger.warning(
                "upstream's own `%s` is installed (%s): it cannot live beside this package, whose names win; uninstall"
                " one of the two",
                name,
                spec.origin,
            )
            return
