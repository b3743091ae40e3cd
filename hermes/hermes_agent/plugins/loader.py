"""Loader of plugins: import, the call of `register(ctx)`, and the reload of one plugin.

A load is a transaction: if it fails, all its registrations and imports are undone.

From a pinned directory no bytecode is read or written. A pin covers sources, and Python trusts bytecode by its time
stamp alone: a planted `.pyc` would run. A path hook sees every import from these directories.

A reload imports a directory plugin under a new module name while the old version runs. After the new version has
registered, it replaces the old one in every store in one step; running calls finish with the old code. If the new
version does not load, the old one stays. An installed package cannot be imported twice: it needs a restart. Source:
plugin contract §1.7, §1.9, §13 row 3; contract of 0.23 §2.4.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Literal, cast

from hermes_agent.core.errors import PluginError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.log_context import attribute_loggers
from hermes_agent.core.registry import Owner, StagedStores, registration_context
from hermes_agent.plugins.activation import Activation, find_plugin
from hermes_agent.plugins.discovery import Discovery
from hermes_agent.plugins.entry_points import GROUP
from hermes_agent.plugins.extension_registration import register_package
from hermes_agent.plugins.host_services import HostServices
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.memory_context import MemoryCollector, TwoContexts, register_memory_plugin
from hermes_agent.plugins.plugin_record import LoadedPlugin
from hermes_agent.plugins.provider_registration import has_registered
from hermes_agent.plugins.registration import find_register
from hermes_agent.runtime import workers
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.runtime.steps import OVERRUN, DeadlineStep, Steps
from hermes_agent.runtime.workers import TimeLimitExceeded, can_interrupt, interrupt_after
from hermes_agent.system.installation import COMPAT, COMPAT_IMPORTS, install_hint

if TYPE_CHECKING:
    from hermes_agent.plugins.context import PluginContext
    from hermes_agent.tools import ToolRegistry

logger = logging.getLogger(__name__)

PARENT = "hermes_plugins"
MEMORY_PARENT = "_hermes_user_memory"
"""Package of upstream's loader of memories; some register only under a name in it."""
"""Name of the synthetic package that contains the modules of directory plugins."""
NO_REGISTER = "no register() function"
NOT_INSTALLED = re.compile(r"ModuleNotFoundError: No module named '([^'.]+)[^']*'")
SOURCE_ONLY_SOURCES = ("user", "project")
"""Sources with pinned directories: bytecode in them is not covered by a grant (`SourceOnlyLoader`)."""


MAX_ABANDONED_LOADS = 8
"""Limit of loads that still run in abandoned threads; above it no plugin is loaded."""
_abandoned = 0


def time_limit_text(limit_s: float) -> str:
    """Return the error text of a plugin that exceeded its load time limit."""
    return f"load timed out after {limit_s:g}s (import + register() never returned)"


class LoadFailed(PluginError):
    """The plugin could not be imported or registered.

    Args:
        where: `file:line`, or "" if the failure has no place in the plugin's files.
    """

    def __init__(self, plugin: str, message: str, where: str = "") -> None:
        super().__init__(plugin, message)
        self.where = where


def slug(key: str) -> str:
    """Return the part of the module name that is made from `key`."""
    return key.replace("/", "__").replace("-", "_")


def module_name(key: str, parent: str = PARENT) -> str:
    """Return a module name that no other plugin uses, although "a-b" and "a_b" have the same slug."""
    name = f"{parent}.{slug(key)}"
    number = 2
    while name in sys.modules:
        name, number = f"{parent}.{slug(key)}__{number}", number + 1
    return name


def load(manifest: PluginManifest, ctx: object, owner: Owner, stores: StagedStores | None = None) -> Any:
    """Import the plugin, call `register(ctx)`, and return the module or the entry point's object.

    Args:
        stores: returns the staged store in place of a host's store that the plugin reaches without `ctx`.

    Raises:
        LoadFailed: the import or `register` raised anything, `SystemExit` included.
    """
    try:
        with registration_context(owner, stores):
            if manifest.portable:
                register_package(cast("PluginContext", ctx).registration)
                return None
            loaded = _import(manifest)
            register = find_register(loaded, manifest)
            if register is None and manifest.kind == "exclusive" and manifest.source != "entrypoint":
                loaded = _import_directory(manifest, MEMORY_PARENT)
                register = find_register(loaded, manifest)
            if register is None and manifest.source == "entrypoint" and has_registered(ctx):
                return loaded
            if register is None:
                logger.warning("Plugin '%s' has no register() function", manifest.name)
                raise LoadFailed(manifest.key, NO_REGISTER, _file_of(loaded))
            if isinstance(ctx, MemoryCollector):
                register_memory_plugin(register, loaded, ctx)
            elif isinstance(ctx, TwoContexts):
                register(ctx.general)
                register_memory_plugin(register, loaded, ctx.memory)
            else:
                register(ctx)
            return loaded
    except (LoadFailed, KeyboardInterrupt):
        raise
    except BaseException as exc:  # a plugin may even call sys.exit()
        raise LoadFailed(manifest.key, _describe(exc), _place(exc, manifest)) from exc


def load_within(
    limit_s: float, bridge: Bridge, manifest: PluginManifest, ctx: object, owner: Owner, stores: StagedStores | None
) -> Any:
    """Load as `load` does, for at most `limit_s` seconds (`plugins.load_timeout_s`); 0 sets no limit.

    In the main thread the plugin is interrupted. In any other thread it is abandoned in a daemon thread; the caller
    must give its later registrations no effect (`StagedHost`).

    Raises:
        LoadFailed: also after the time limit, and when too many abandoned loads still run.
    """
    global _abandoned
    if limit_s == 0:
        return load(manifest, ctx, owner, stores)
    if can_interrupt():
        try:
            with interrupt_after(limit_s):
                return load(manifest, ctx, owner, stores)
        except TimeLimitExceeded as exc:  # the alarm rang between the last statement and the return
            raise LoadFailed(manifest.key, time_limit_text(exc.limit_s)) from exc
    if _abandoned >= MAX_ABANDONED_LOADS:
        raise LoadFailed(
            manifest.key, f"not loaded: {_abandoned} loads of plugins that timed out still run; restart the process"
        )
    loaded = bridge.run_steps_inline(_steps(limit_s, manifest.key, lambda: load(manifest, ctx, owner, stores)))
    if loaded is OVERRUN:
        _abandoned += 1
        raise LoadFailed(manifest.key, time_limit_text(limit_s))
    return loaded


@contextlib.contextmanager
def transaction(ground: HostServices, manifest: PluginManifest) -> Iterator[None]:
    """Undo every registration, and every import of the plugin's own modules, if the block raises.

    Otherwise attribute the plugin's loggers to the plugin from then on. Either way no place that ends imports stays on
    `sys.path`.
    """
    root, places = _root_module(manifest), set(sys.path)
    before = set(sys.modules)
    refusals = len(ground.tools.refusals)
    state = ground.stores.snapshot()
    try:
        yield
    except BaseException:
        ground.stores.restore(state)
        del ground.tools.refusals[refusals:]
        for name in set(sys.modules) - before:
            if name == root or name.startswith(f"{root}."):
                del sys.modules[name]
        raise
    finally:
        _drop_unreadable(manifest.key, places)
    attribute_loggers(root, manifest.key)


def _drop_unreadable(key: str, before: set[str]) -> None:
    """Remove places that a plugin added to `sys.path` and that cannot be listed, such as a link to itself.

    Python passes over a place that is missing or closed. Any other error ends each later import in this process.
    """
    for place in [place for place in sys.path if place not in before]:
        try:
            os.scandir(place or ".").close()
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        except (OSError, ValueError) as exc:
            sys.path.remove(place)
            logger.warning("Plugin '%s' put %s on sys.path: it cannot be read (%s), so it was removed", key, place, exc)


def check_outcome(record: LoadedPlugin) -> None:
    """Check that a plugin registered what its kind promises.

    Raises:
        LoadFailed: a plugin of kind `model-provider` registered no profile.
    """
    manifest = record.manifest
    if manifest.kind == "model-provider" and not (record.providers_registered or record.problems or record.notes):
        raise LoadFailed(manifest.key, "no provider profile registered")


def note_failure(record: LoadedPlugin, exc: LoadFailed) -> None:
    """Record and log why a plugin did not load."""
    record.forget_registrations()
    record.status, record.error, record.where = "failed", str(exc), exc.where
    record.remedy = remedy_for(str(exc), record.manifest)
    logger.warning("Failed to load plugin '%s': %s", record.manifest.name, record.failure)
    logger.debug("traceback of plugin %s", record.manifest.key, exc_info=exc.__cause__ or exc)


def remedy_for(error: str, manifest: PluginManifest) -> str:
    """Return what the operator can do about a plugin that did not load, or "" if unknown."""
    if error.startswith("load timed out"):
        return "raise `plugins.load_timeout_s` (seconds; 0 sets no limit) if the plugin needs longer"
    missing = NOT_INSTALLED.fullmatch(error)
    if missing is not None and missing[1] not in ("hermes_agent", "hermes_plugins"):
        if missing[1] in COMPAT_IMPORTS:
            package = COMPAT_IMPORTS[missing[1]]
            return (
                f"the plugin needs `{package}`, which upstream installs: the extra `{COMPAT}` adds all such packages:"
                f" {install_hint(COMPAT)}; `{sys.executable} -m pip install {package}`, on NixOS"
                f" extraPythonPackages = ps: [ ps.{package} ], adds it alone"
            )
        return (
            f"add the package that provides `{missing[1]}`: `{sys.executable} -m pip install {missing[1]}`, on NixOS "
            "services.hermes-agent.extraPythonPackages"
        )
    if error == NO_REGISTER:
        file = manifest.path if manifest.source == "entrypoint" else f"{manifest.path}/__init__.py"
        return f"define `def register(ctx):` in {file}"
    if error.startswith("No __init__.py in"):
        return "a directory plugin has plugin.yaml and __init__.py in one folder"
    return ""


def _steps(limit_s: float, key: str, call: Callable[[], Any]) -> Steps[Any]:
    return (yield DeadlineStep(call, limit_s, f"loading plugin {key}"))


def _root_module(manifest: PluginManifest) -> str:
    """Return the name of the module that holds all modules of the plugin."""
    if manifest.source == "entrypoint":
        return manifest.path.partition(":")[0].strip().partition(".")[0]
    return module_name(manifest.key)


def _import(manifest: PluginManifest) -> Any:
    if manifest.source == "entrypoint":
        return _import_entry_point(manifest)
    return _import_directory(manifest)


def _import_directory(manifest: PluginManifest, package: str = PARENT) -> ModuleType:
    directory = Path(manifest.path)
    file = directory / "__init__.py"
    if not file.is_file():
        raise LoadFailed(manifest.key, f"No __init__.py in {directory}")
    if package not in sys.modules:
        parent = ModuleType(package)
        parent.__path__ = []
        parent.__package__ = package
        sys.modules[package] = parent
    _forget_aliases(manifest.path)
    name = module_name(manifest.key, package)
    source = None
    if manifest.source in SOURCE_ONLY_SOURCES:
        ignore_bytecode(manifest.path)
        source = SourceOnlyLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(
        name, file, loader=source, submodule_search_locations=[str(directory)]
    )
    if spec is None or spec.loader is None:
        raise LoadFailed(manifest.key, f"cannot import {file}")
    module = importlib.util.module_from_spec(spec)
    module.__package__ = name
    module.__path__ = [str(directory)]
    sys.modules[name] = module
    importlib.invalidate_caches()
    spec.loader.exec_module(module)
    return module


def _forget_aliases(directory: str) -> None:
    """Remove upstream's names of a plugin's modules (`plugins.…`), which an earlier version may have."""
    for name, module in list(sys.modules.items()):
        if name.startswith("plugins.") and (getattr(module, "__file__", None) or "").startswith(f"{directory}/"):
            above, _, last = name.rpartition(".")
            vars(sys.modules[above]).pop(last, None) if above in sys.modules else None
            del sys.modules[name]


def _import_entry_point(manifest: PluginManifest) -> Any:
    module, _, attributes = manifest.path.partition(":")
    if not module.strip():
        raise ImportError(f"Entry point '{manifest.name}' not found in group '{GROUP}'")
    loaded: Any = importlib.import_module(module.strip())
    for attribute in attributes.strip().split(".") if attributes.strip() else ():
        loaded = getattr(loaded, attribute)
    return loaded


def _describe(exc: BaseException) -> str:
    """Return the exception in one line: `KeyError: 'x'`, `SystemExit(3)`."""
    if isinstance(exc, SystemExit):
        return f"{exc!r} raised during import/register()"
    if isinstance(exc, TimeLimitExceeded):
        return time_limit_text(exc.limit_s)
    text = " ".join(str(exc.msg if isinstance(exc, SyntaxError) else exc).split())
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__


def _file_of(loaded: Any) -> str:
    file = getattr(loaded, "__file__", None)
    return f"{file}:1" if file else ""


def _place(exc: BaseException, manifest: PluginManifest) -> str:
    """Return `file:line` of the innermost frame in the plugin's own files, else of the innermost frame."""
    if isinstance(exc, SyntaxError) and exc.filename:
        return f"{exc.filename}:{exc.lineno or 0}"
    frames = [f for f in traceback.extract_tb(exc.__traceback__) if not f.filename.startswith("<frozen")]
    foreign = [f for f in frames if f.filename not in (__file__, workers.__file__)]
    if manifest.source != "entrypoint":
        own = [f for f in foreign if f.filename.startswith(f"{manifest.path}/")]
        foreign = own or foreign
    return f"{foreign[-1].filename}:{foreign[-1].lineno}" if foreign else ""


_directories: set[str] = set()


class SourceOnlyLoader(SourceFileLoader):
    """Loader that compiles the source at every load."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the present source."""
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


_LOADERS = (
    (ExtensionFileLoader, EXTENSION_SUFFIXES),
    (SourceOnlyLoader, SOURCE_SUFFIXES),
    (SourcelessFileLoader, BYTECODE_SUFFIXES),  # bytecode without a source, `name.pyc`, is a pinned file
)


def ignore_bytecode(directory: str) -> None:
    """Ignore `__pycache__` in every later import below `directory` in this process."""
    _directories.update({f"{os.path.abspath(directory)}/", f"{os.path.realpath(directory)}/"})  # noqa: PTH100
    if _finder not in sys.path_hooks:
        sys.path_hooks.insert(0, _finder)
    for known in [path for path in sys.path_importer_cache if _is_below(path)]:
        del sys.path_importer_cache[known]


def _finder(path: str) -> FileFinder:
    if not _is_below(path):
        raise ImportError(f"{path} is not below a pinned plugin", path=path)
    return FileFinder(path, *_LOADERS)


def _is_below(path: str) -> bool:
    return bool(_directories) and f"{os.path.abspath(path)}/".startswith(tuple(_directories))  # noqa: PTH100


Outcome = Literal["reloaded", "loaded", "stopped", "not loaded", "unchanged", "failed", "restart needed"]


class ReloadResult(LazyNamedTuple):
    """The result of reloading one plugin."""

    key: str
    outcome: Outcome
    reason: str = ""

    def show_tools(self, tools: ToolRegistry, *, new_sessions: bool) -> None:
        """Show the tools of a loaded plugin to every session, or only to new ones."""
        if self.outcome == "loaded" and new_sessions:
            tools.hold_back(self.key)
        elif self.outcome in ("loaded", "reloaded") and not new_sessions:
            tools.show_to_all(self.key)

    def __str__(self) -> str:
        return f"{self.key}: {self.outcome}" + (f": {self.reason}" if self.reason else "")


class ReloadSteps(LazyNamedTuple):
    """The operations that a reload uses."""

    decide: Callable[[PluginManifest], Activation]
    load: Callable[[PluginManifest, Activation], LoadedPlugin]
    """Load in parallel to the running version; the new one replaces it only if the load succeeds."""
    stop: Callable[[str], None]
    """Remove every registration of a plugin from every store."""


def reload_targets(name: str | None, found: Discovery, records: dict[str, LoadedPlugin]) -> list[str]:
    """Return the keys to reload: the named one, or all that are found or were loaded.

    Raises:
        UserError: no plugin has the name; the message names the nearest one.
    """
    if name is None:
        return list(dict.fromkeys((*found.plugins, *records)))
    known = next((key for key, r in records.items() if name in r.manifest.answers_to), None)
    return [known or find_plugin(name, found).key]


def reload_one(
    key: str, present: LoadedPlugin | None, found: Discovery, workshop: ReloadSteps, *, by_name: bool
) -> tuple[LoadedPlugin | None, ReloadResult]:
    """Load, reload or unload one plugin as its folder and the settings require.

    Args:
        by_name: the user named this plugin: for an installed package the result says that it needs a restart, also if
            no change is visible.

    Returns:
        The new record of the plugin and the result.
    """
    runs = present is not None and present.enabled
    manifest = found.plugins.get(key)
    if manifest is None:
        return _unload_missing(key, present, found, workshop)
    gate = workshop.decide(manifest)
    if not gate.load:
        if present is not None and runs and gate.status == "changed":
            return present, _keep_present(present, gate.reason)
        if runs:
            workshop.stop(key)
        return LoadedPlugin(manifest, gate.status, gate.reason or None, notes=list(manifest.notes)), ReloadResult(
            key, "stopped" if runs else "not loaded", gate.reason
        )
    if present is not None and runs and not by_name and {present.manifest.source, manifest.source} == {"bundled"}:
        return present, ReloadResult(key, "unchanged")  # part of the release, which only a restart replaces
    if present is not None and runs and "entrypoint" in (present.manifest.source, manifest.source):
        if by_name or present.manifest.distribution != manifest.distribution:
            return present, ReloadResult(key, "restart needed", "it is an installed package, which is imported once")
        return present, ReloadResult(key, "unchanged")
    record = workshop.load(manifest, gate)
    if record.enabled:
        return record, ReloadResult(key, "reloaded" if runs else "loaded")
    if present is not None and runs:
        return present, _keep_present(present, record.failure)
    return record, ReloadResult(key, "failed", record.failure)


def _unload_missing(
    key: str, present: LoadedPlugin | None, found: Discovery, workshop: ReloadSteps
) -> tuple[LoadedPlugin | None, ReloadResult]:
    if present is None:
        return None, ReloadResult(key, "unchanged")
    refused = next((r for r in found.rejected if r.path == present.manifest.path), None)
    if refused is not None and present.enabled:
        return present, _keep_present(present, refused.reason)
    if present.enabled:
        workshop.stop(key)
    return None, ReloadResult(key, "stopped", refused.reason if refused else f"{present.manifest.path} is gone")


def _keep_present(present: LoadedPlugin, reason: str) -> ReloadResult:
    """Record that the new version could not be loaded and the old one stays."""
    present.stale = reason
    return ReloadResult(present.manifest.key, "failed", f"{reason}; the version that was loaded before goes on")


def unload_modules(root: str) -> None:
    """Remove the modules of one version from `sys.modules`; running calls keep their references."""
    for name in [n for n in sys.modules if n == root or n.startswith(f"{root}.")]:
        del sys.modules[name]
