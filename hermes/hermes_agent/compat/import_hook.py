"""Import hook that serves upstream's names from the table `served.txt`, without files of those names.

The finder precedes Python's path search, so a stray `utils.py` on the path never replaces upstream's, except while a
plugin takes upstream's out of `sys.modules` and puts its own folder first on the path. A reserved name
that is not served raises an error with the reason from `declined.toml`. `moved.txt` lists the modules into which
upstream split older ones; the new and the old module share their objects.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import opcode
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, cast

from hermes_agent.core.lazy_types import LazyNamedTuple

logger = logging.getLogger(__name__)

HERE = Path(__file__).resolve().parent
TABLE, DECLINED, MOVED = HERE / "served.txt", HERE / "declined.toml", HERE / "moved.txt"
NOWHERE = HERE / "upstream"
"""Folder in the `__file__` of served modules.

It does not exist, so a plugin that adds it to its path finds nothing.
"""
CHILD = HERE / "child"
"""Folder with the `sitecustomize` of the processes that plugins start."""
RESERVED = frozenset(
    {
        "agent",
        "cron",
        "gateway",
        "hermes_cli",
        "hermes_constants",
        "hermes_state",
        "hermes_state_common",
        "hermes_state_sessions",
        "hermes_yaml",
        "model_tools",
        "plugins",
        "providers",
        "run_agent",
        "tools",
        "toolsets",
        "utils",
    }
)
"""Upstream's top-level names, all handled by this hook."""
PACKAGES = frozenset({"agent", "cron", "gateway", "hermes_cli", "plugins", "providers", "tools"})
"""Those of them that have modules."""
UNDECIDED = "no published plugin was known to need it; docs/plugins/surface.md lists what is served"
PROGRAMS = frozenset({"hermes_cli.main"})
"""Modules that plugins start with `python -m`: they are the command `hermes`."""
SCRIPTS = {"tools.mcp_stdio_watchdog": HERE / "mcp_watchdog.py"}
"""Served modules that plugins start as programs by their file."""
UPSTREAM_MODULES = ("hermes_constants", "hermes_cli")
"""Names that exist only in upstream's distribution."""


class ServedModule(LazyNamedTuple):
    """A section of the table."""

    doc: str
    names: dict[str, tuple[str, str]]
    """By upstream's name: our module and the name in it. A name that ends in `()` is called at each use."""
    older: str = ""
    """The older module of upstream that these names were split from and are shared with."""


class UpstreamFinder:
    """Finder of the names in `RESERVED`.

    Args:
        in_child: whether this process is one that a plugin started, where it is the last finder.
    """

    def __init__(self, *, in_child: bool = False) -> None:
        self._in_child = in_child

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a served module, or None if the name is not reserved.

        For `importlib.util.find_spec`, None also means that a reserved name is not served.

        Raises:
            ModuleNotFoundError: the name is reserved and not served; the message has the reason.
        """
        if fullname.partition(".")[0] not in RESERVED:
            return None
        if self._in_child and fullname in PROGRAMS:
            return ModuleSpec(fullname, cast(Any, ProgramLoader()))
        if not self._in_child and (theirs := _taken_over(fullname, path)) is not None:
            return theirs
        if fullname in served():
            return _spec(fullname, package=any(name.startswith(f"{fullname}.") for name in served()))
        if fullname.startswith("plugins.") and (found := _plugin_module(fullname)) is not None:
            return found
        if _is_probe():
            return None
        raise ModuleNotFoundError(f"No module named {fullname!r} ({reason(fullname)})", name=fullname)


class UpstreamModule(ModuleType):
    """A served module. An assignment changes what importers get, but not what the agent calls."""

    def __setattr__(self, name: str, value: Any) -> None:
        older = served()[self.__name__].older
        if older and not name.startswith("__"):
            setattr(importlib.import_module(older), name, value)
            return
        names = served()[self.__name__].names if "__spec__" in vars(self) and self.__spec__ is not None else {}
        if name not in names:
            super().__setattr__(name, value)
            return
        present = None if names[name][1].endswith("()") else getattr(self, name)
        if value is present:
            return
        assign = getattr(present, "assign", None)
        if assign is not None:  # the agent uses this table, too
            assign(value)
            return
        logger.warning(
            "`%s.%s` was replaced: plugins that import it get the new object, the agent does not call it. To change the"
            " agent, register through `ctx` (hooks, middleware, register_tool with override=True)",
            self.__name__,
            name,
        )
        super().__setattr__(name, value)


class UpstreamLoader:
    """Loader of served modules; each name is imported at its first use."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return an empty module."""
        return UpstreamModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Set up the lookup of the module's names."""
        _set_up(module)

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of a script for `python -m`.

        Raises:
            ImportError: it is none.
        """
        if (script := SCRIPTS.get(fullname)) is not None:
            return compile(script.read_text(encoding="utf-8"), str(script), "exec")
        raise ImportError(f"it is no program here; the command is `hermes`, or `python -m {next(iter(PROGRAMS))}`")


class ProgramLoader:
    """Loader of the command `hermes` for `python -m`."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the program."""
        return compile("import sys\nfrom hermes_agent.app.main import main\nsys.exit(main())\n", fullname, "exec")

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return None: the module is a usual one."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Refuse an import: it is a program.

        Raises:
            ModuleNotFoundError: always.
        """
        name = module.__name__
        raise ModuleNotFoundError(f"No module named {name!r} ({reason(name)})", name=name)


def _set_up(module: ModuleType) -> None:
    section = served()[module.__name__]
    names = section.names
    look_up = functools.partial(_look_up, module, names)
    if section.older:
        look_up = functools.partial(_look_up_older, module, section.older)
    vars(module).update(
        __doc__=section.doc,
        __all__=[name for name in names if not name.startswith("_")],
        __getattr__=look_up,
        __dir__=lambda: sorted({*vars(module), *names}),
    )


def _spec(name: str, *, package: bool) -> ModuleSpec:
    place = NOWHERE.joinpath(*name.split("."))
    file = SCRIPTS.get(name) or (place / "__init__.py" if package else place.with_suffix(".py"))
    loader: Any = UpstreamLoader()  # not an `importlib.abc.Loader`, which imports `importlib.resources`
    spec = ModuleSpec(name, loader, origin=str(file), is_package=package)
    spec.has_location = True
    return spec


def _make_present() -> None:
    """Put the top-level modules into `sys.modules`, where upstream has them before it loads a plugin.

    A plugin with a module of the same name takes upstream's away from there while it imports its own.
    """
    for name in sorted(RESERVED - set(sys.modules)):
        spec = _spec(name, package=name in PACKAGES)
        module = sys.modules[name] = UpstreamModule(name)
        vars(module).update(__spec__=spec, __loader__=spec.loader, __package__=spec.parent, __file__=spec.origin)
        vars(module).update(  # the table is read at the first use
            __getattr__=functools.partial(_first_use, module), __dir__=functools.partial(_first_list, module)
        )
        if spec.submodule_search_locations is not None:
            vars(module).update(__path__=spec.submodule_search_locations)


def _first_use(module: ModuleType, name: str) -> Any:
    _set_up(module)
    return getattr(module, name)


def _first_list(module: ModuleType) -> list[str]:
    _set_up(module)
    return dir(module)


def _taken_over(fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Return the spec of a plugin's own module in place of a served one that it took away."""
    parent = fullname.partition(".")[0]
    if parent != fullname:
        present = sys.modules.get(parent)
        is_theirs = present is not None and getattr(present, "__file__", None) in _own_files
        return PathFinder.find_spec(fullname, path) if is_theirs else None
    found = PathFinder.find_spec(fullname, sys.path[:1])
    if found is None or found.origin is None or not installed():
        return None
    _own_files.add(found.origin)
    return found


_own_files: set[str] = set()
"""Files of modules that plugins imported in place of served ones."""


@functools.cache
def served() -> dict[str, ServedModule]:
    """Return the table by module name."""
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
    for row in moved():
        if row.older in table and row.newer not in table:
            known = table[row.older]
            table[row.newer] = ServedModule(known.doc, known.names, row.older)
    return table


class MovedModule(LazyNamedTuple):
    """A row of `moved.txt`."""

    older: str
    newer: str
    names: tuple[str, ...]
    """Names that upstream moved."""


@functools.cache
def moved() -> tuple[MovedModule, ...]:
    """Return the modules that upstream split from older ones."""
    rows: list[list[str]] = []
    for line in MOVED.read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            rows[-1].extend(line.split())
        elif line and not line.startswith("#"):
            modules, _, names = line.partition(":")
            older, _, newer = modules.partition(" > ")
            rows.append([older, newer, *names.split()])
    return tuple(MovedModule(older, newer, tuple(names)) for older, newer, *names in rows)


def install() -> None:
    """Start to serve the names, also in the Python processes of plugins; do nothing if it is done."""
    if installed():
        return
    _warn_of_upstream()
    at = next((i for i, finder in enumerate(sys.meta_path) if finder is PathFinder), len(sys.meta_path))
    sys.meta_path.insert(at, UpstreamFinder())
    _make_present()
    places = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    if str(CHILD) not in places:  # a command has an environment of its own, without it
        os.environ["PYTHONPATH"] = os.pathsep.join([*places, str(CHILD)])


def uninstall() -> None:
    """Remove the finder and the modules that it served."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, UpstreamFinder)]
    for name in list(sys.modules):
        if is_served(name):
            del sys.modules[name]
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(CHILD) in places:
        places.remove(str(CHILD))
        os.environ["PYTHONPATH"] = os.pathsep.join(places)
        if not places:
            del os.environ["PYTHONPATH"]


def find_in_child(fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Serve the names in a process that a plugin started, after everything else on its path.

    Raises:
        ModuleNotFoundError: the name is not served; the message has the reason.
    """
    from hermes_agent.compat import agent  # a name may need a host

    agent.allow_building()
    finder = UpstreamFinder(in_child=True)
    sys.meta_path.append(finder)
    return finder.find_spec(fullname, path)


def installed() -> bool:
    """Return whether the names are served now."""
    return any(isinstance(finder, UpstreamFinder) for finder in sys.meta_path)


def is_served(name: str) -> bool:
    """Return whether the imported module `name` is a served one."""
    return isinstance(getattr(sys.modules.get(name), "__loader__", None), UpstreamLoader)


@functools.cache
def declined() -> dict[str, str]:
    """Return the reasons by name that is not served; the reason of a package covers its modules."""
    import tomllib  # loaded only if a name is missing

    return {str(k): str(v) for k, v in tomllib.loads(DECLINED.read_text(encoding="utf-8"))["modules"].items()}


def decision(fullname: str) -> str | None:
    """Return the reason of `declined.toml` for a name, its module or its package; None if there is none."""
    module, _, rest = fullname.rpartition(".")
    older = {row.newer: row.older for row in moved()}
    name = older.get(fullname) or (f"{older[module]}.{rest}" if module in older else fullname)
    while name:
        if name in declined():
            return declined()[name]
        name = name.rpartition(".")[0]
    return None


def reason(fullname: str) -> str:
    """Return a short reason why hermes-agent does not serve `fullname`."""
    return f"hermes-agent does not serve it: {decision(fullname) or UNDECIDED}"


def _plugin_module(fullname: str) -> ModuleSpec | None:
    from hermes_agent.compat.plugin_modules import find_plugin_module  # few plugins import other ones

    return find_plugin_module(fullname)


def _look_up(module: ModuleType, names: Mapping[str, tuple[str, str]], name: str) -> Any:
    if name not in names:
        full = f"{module.__name__}.{name}"
        if full in declined():
            _warn_declined(full)  # a plugin that catches the error hides the reason
        if not name.startswith("__") and _is_from_import():
            raise _no_such_name(module, name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
    taken_from, ours = names[name]
    source = importlib.import_module(taken_from)
    if ours.endswith("()"):
        return getattr(source, ours.removesuffix("()"))()
    return vars(module).setdefault(name, getattr(source, ours))


def _look_up_older(module: ModuleType, older: str, name: str) -> Any:
    """Return a name from the older module."""
    try:
        return getattr(importlib.import_module(older), name)
    except AttributeError:
        if not name.startswith("__") and _is_from_import():
            raise _no_such_name(module, name) from None
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}") from None


@functools.cache
def _warn_declined(full: str) -> None:
    logger.warning("`%s` was asked for: %s", full, reason(full))


def _is_probe() -> bool:
    """Return whether `importlib.util.find_spec` is calling, which expects None for a missing module."""
    frame = sys._getframe(1)
    for _ in range(4):
        if frame.f_back is None:
            return False
        frame = frame.f_back
        if frame.f_code is importlib.util.find_spec.__code__:
            return True
    return False


def _no_such_name(module: ModuleType, name: str) -> ImportError:
    why = reason(f"{module.__name__}.{name}")
    return ImportError(f"cannot import name {name!r} from {module.__name__!r} ({why})", name=module.__name__)


def _is_from_import() -> bool:
    """Return whether `from module import name` is looking the name up; Python's own error has no reason."""
    frame = sys._getframe(2)
    if frame.f_code is _first_use.__code__ and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_code[frame.f_lasti] == opcode.opmap["IMPORT_FROM"]


def _warn_of_upstream() -> None:
    for name in UPSTREAM_MODULES:
        present = sys.modules.get(name)
        spec = present.__spec__ if present is not None else PathFinder.find_spec(name)
        if spec is not None:
            logger.warning(
                "upstream's own `%s` is installed (%s): this package serves the same names first; uninstall"
                " one of the two",
                name,
                spec.origin,
            )
            return
