"""Serve upstream's import names from the table `served.txt`; no file has such a name.

The finder stands before Python's own path search, so that a stray `utils.py` on the path is never taken for
upstream's. What is reserved and not served is not found, with the reason from `declined.toml`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

logger = logging.getLogger(__name__)

HERE = Path(__file__).resolve().parent
TABLE, DECLINED = HERE / "served.txt", HERE / "declined.toml"
NOWHERE = HERE / "upstream"
"""Where the modules say that they lie. Nothing is there: a plugin that puts that folder on its path finds nothing."""
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
UPSTREAM_MODULES = ("hermes_constants", "hermes_cli")
"""Names that nobody but upstream's distribution has."""


class ServedModule(NamedTuple):
    """A section of the table."""

    doc: str
    names: dict[str, tuple[str, str]]
    """By upstream's name: our module, and what it is called there; with `()` behind it, what is called at each use."""


class UpstreamFinder:
    """Answers for `RESERVED`, and for nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how the module is made.

        Raises:
            ModuleNotFoundError: the name is upstream's and is not served; it says why.
        """
        if fullname.partition(".")[0] not in RESERVED:
            return None
        if fullname in served():
            package = any(name.startswith(f"{fullname}.") for name in served())
            place = NOWHERE.joinpath(*fullname.split("."))
            file = place / "__init__.py" if package else place.with_suffix(".py")
            loader: Any = UpstreamLoader()  # no `importlib.abc.Loader`: importing that brings `importlib.resources`
            spec = ModuleSpec(fullname, loader, origin=str(file), is_package=package)
            spec.has_location = True
            return spec
        if _is_probe():
            return None
        raise ModuleNotFoundError(f"No module named {fullname!r} ({reason(fullname)})", name=fullname)


class UpstreamModule(ModuleType):
    """A served module. Importers see what a plugin assigns to a name; the agent itself does not."""

    def __setattr__(self, name: str, value: Any) -> None:
        names = served()[self.__name__].names if "__spec__" in vars(self) and self.__spec__ is not None else {}
        if name not in names:
            super().__setattr__(name, value)
            return
        present = None if names[name][1].endswith("()") else getattr(self, name)
        if value is present:
            return
        assign = getattr(present, "assign", None)
        if assign is not None:  # a table that the agent goes by
            assign(value)
            return
        logger.warning(
            "`%s.%s` was replaced: plugins that import it get the new one, the agent does not call it. What is to"
            " change for the agent is registered through `ctx` (hooks, middleware, register_tool with override=True)",
            self.__name__,
            name,
        )
        super().__setattr__(name, value)


class UpstreamLoader:
    """Makes a module that imports each of its names when that is first asked for."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Make it."""
        return UpstreamModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module in."""
        doc, names = served()[module.__name__]
        vars(module).update(
            __doc__=doc,
            __all__=[name for name in names if not name.startswith("_")],
            __getattr__=functools.partial(_look_up, module, names),
            __dir__=lambda: sorted({*vars(module), *names}),
        )


@functools.cache
def served() -> dict[str, ServedModule]:
    """Return the table by module."""
    table: dict[str, ServedModule] = {}
    taken_from = ""
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            name, _, doc = line[1:].partition("] ")
            table[name] = section = ServedModule(doc, {})
        elif line and not line.startswith("#"):
            given = line
            if not line.startswith(" "):
                taken_from, _, given = line.partition(": ")
            for word in given.split():
                theirs, _, ours = word.partition("=")
                section.names[theirs] = (f"hermes_agent.{taken_from}", ours or theirs)
    return table


def install() -> None:
    """Serve the names from now on; a second call does nothing."""
    if installed():
        return
    _warn_of_upstream()
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
    """Say whether the imported module `name` is one of those that the table describes."""
    return isinstance(getattr(sys.modules.get(name), "__loader__", None), UpstreamLoader)


@functools.cache
def declined() -> dict[str, str]:
    """Return why what is not served is not, by module or package; a package's reason holds for everything in it."""
    import tomllib  # read only when something is missing

    return {str(k): str(v) for k, v in tomllib.loads(DECLINED.read_text(encoding="utf-8"))["modules"].items()}


def reason(fullname: str) -> str:
    """Return why hermes-agent does not serve `fullname`, in a few words."""
    name = fullname
    while name:
        if name in declined():
            return f"hermes-agent does not serve it: {declined()[name]}"
        name = name.rpartition(".")[0]
    return "hermes-agent does not serve it: no published plugin was known to need it"


def _look_up(module: ModuleType, names: Mapping[str, tuple[str, str]], name: str) -> Any:
    if name not in names:
        full = f"{module.__name__}.{name}"
        if full in declined():
            _warn_declined(full)  # the error of `from module import name` has no room for the reason
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
    taken_from, ours = names[name]
    source = importlib.import_module(taken_from)
    if ours.endswith("()"):
        return getattr(source, ours.removesuffix("()"))()
    return vars(module).setdefault(name, getattr(source, ours))


@functools.cache
def _warn_declined(full: str) -> None:
    logger.warning("`%s` was asked for: %s", full, reason(full))


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


def _warn_of_upstream() -> None:
    for name in UPSTREAM_MODULES:
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
