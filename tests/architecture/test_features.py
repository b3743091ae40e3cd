"""One door: built-in features register through `register(ctx, deps)`, and `host` names none of them."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

import hermes_agent
from hermes_agent.console.session_export import FORMATS
from hermes_agent.contracts.command import EVERYWHERE
from hermes_agent.contracts.tool import Registrar
from hermes_agent.host import Host
from hermes_agent.host.features import BuiltinContext, FeatureServices, feature_modules

ROOT = Path(hermes_agent.__file__).parent
HOST = sorted((ROOT / "host").glob("*.py"))
NAMED = {name.removeprefix("hermes_agent.").split(".")[0] for name in feature_modules()}
PARTS = {"agent", "commands", "credentials", "gateway", "plugins", "tools"}
"""Packages with a feature that the host builds on: stores, credentials, the plugins' manager, the gateway."""
FEATURES = NAMED - PARTS
DOORS = {"host/features.py", "plugins/live_tables.py", "plugins/registration.py"}
"""Registration for built-in features, for plugins, and for plugins that change upstream's tables."""
OF_OTHERS = {
    "agent/context_engines.py",  # tools of the selected context engine, for its plugin
    "agent/replay.py",  # tools of a recorded session, which are never run
    "mcp/servers.py",  # tools of MCP servers
    "memory/manager.py",  # tools of the selected memory provider, for its plugin
}
"""Register tools that built-in code does not bring."""


def identifiers(path: Path) -> set[str]:
    """Return every name of a file, with the parts of modules that it imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                found |= {*module.split("."), *(alias.name for alias in names)}
            case ast.Import(names=names):
                found |= {part for alias in names for part in alias.name.split(".")}
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Constant(value=str(text)) if "hermes_agent." in text:
                found |= set(text.replace("`", " ").replace(".", " ").split())
    return found


@pytest.mark.parametrize("path", HOST, ids=lambda path: path.name)
def test_the_host_names_no_feature(path: Path) -> None:
    assert len(FEATURES) == 7
    assert identifiers(path) & FEATURES == set()


BUNDLED = {path.name for path in (ROOT / "_bundled").resolve().glob("*/*") if (path / "plugin.yaml").is_file()}
SETUP = sorted((ROOT / "app" / "setup").glob("*.py"))


@pytest.mark.parametrize("path", SETUP, ids=lambda path: path.name)
def test_the_setup_names_no_bundled_plugin(path: Path) -> None:
    assert {"local", "ollama", "irc"} <= BUNDLED
    tree = ast.parse(path.read_text("utf-8"))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert (texts | identifiers(path)) & BUNDLED == set()


def test_every_module_that_is_named_feature_is_in_the_table_once() -> None:
    there = {".".join(path.relative_to(ROOT.parent).with_suffix("").parts) for path in ROOT.glob("*/feature.py")}
    assert there <= set(feature_modules())
    assert len(set(feature_modules())) == len(feature_modules())


def parsed(*words: str) -> Iterator[tuple[Path, ast.Module]]:
    """Yield each file of the package in which one of the words stands, and its tree."""
    for path in ROOT.rglob("*.py"):
        text = path.read_text("utf-8")
        if any(word in text for word in words):
            yield path, ast.parse(text)


def registrations(tree: ast.Module) -> set[str]:
    """Return the stores that a file registers something in: `tools.register(…)`, `self._table.register(…)`."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    stores = [ast.unparse(call.value) for call in calls if isinstance(call, ast.Attribute) and call.attr == "register"]
    words = {"commands", "registry", "table", "tools"}
    return {store for store in stores if store.split(".")[-1].lstrip("_") in words}


def test_tools_and_commands_are_registered_through_the_context() -> None:
    found = {str(path.relative_to(ROOT)) for path, tree in parsed(".register(") if registrations(tree)}
    served = {name for name in found if name.startswith(("compat/", "testing/"))}
    assert found - served == DOORS | OF_OTHERS


def test_a_front_end_declares_no_command_and_binds_handlers_to_all_that_are_declared_for_it(tmp_path: Path) -> None:
    """`CommandTable.bind` refuses a name without a declaration, and a declaration without a handler."""
    declaring, binding = set(), {}
    for path, tree in parsed("register_slash_command(", ".bind("):
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(attr="register_slash_command")):
                    declaring.add(path.relative_to(ROOT).parts[0])
                case ast.Call(func=ast.Attribute(attr="bind"), args=[ast.Constant(value=str(where)), _]):
                    binding[where] = path.relative_to(ROOT).parts[0]
    assert declaring & {"app", "console", "gateway", "server"} == set()
    assert binding == {"terminal": "console", "chat": "gateway", "socket": "app"}
    assert set(binding) | {"http"} == EVERYWHERE


def test_each_slash_command_is_declared_once_with_all_that_front_ends_show(tmp_path: Path) -> None:
    host = Host.build(tmp_path / "home")
    declared = [command for _, command in host.commands.items()]
    host.bridge.close()
    assert len(declared) > 30
    for command in declared:
        assert re.fullmatch(r"[A-Z][^.]*[^.]", command.description), command
        assert command.where <= EVERYWHERE and command.where, command
        assert command.waits_in <= command.where and not (command.waits_in and not command.during_turn), command
        assert not command.values or command.args_hint, command
    for where in EVERYWHERE:
        here = [command for command in declared if where in command.where]
        names = {command.name for command in here}
        aliases = [alias for command in here for alias in command.aliases if alias not in names]
        assert len(aliases) == len(set(aliases)), where
    assert host.commands.get("export").values == FORMATS


def resolve_hints(module: ModuleType, deps: type) -> dict[str, Any]:
    """Return the types of the fields of `deps`, also of those that its module imports for type checks alone."""
    names = dict(vars(module))
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names.setdefault(alias.asname or alias.name, getattr(importlib.import_module(node.module), alias.name))
    return get_type_hints(deps, names)


def is_of_type(value: Any, hint: Any) -> bool:
    """Say whether a service has the type of its field."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(is_of_type(value, part) for part in get_args(hint))
    kind = origin or hint
    if getattr(kind, "_is_protocol", False):
        return all(hasattr(value, name) for name in kind.__dict__ if not name.startswith("_"))
    return isinstance(value, kind)


def test_each_field_of_a_feature_s_dependencies_gets_a_service_of_its_type(tmp_path: Path) -> None:
    host = Host.build(tmp_path / "home")
    checked = 0
    for name in feature_modules():
        module = importlib.import_module(name)
        deps = getattr(module, module.register.__annotations__["deps"])
        for field, hint in resolve_hints(module, deps).items():
            service = host._features._find_service(name, field)
            assert is_of_type(service, hint), f"{name}: {field} is a {type(service).__name__}, expected {hint}"
            checked += 1
    assert checked > 60
    host.bridge.close()


def test_a_feature_that_needs_what_no_one_provides_is_named_with_the_service() -> None:
    class Nothing:
        """A host without services."""

    with pytest.raises(LookupError, match=r"hermes_agent\.mcp\.servers needs `bridge`"):
        FeatureServices(Nothing()).load(BuiltinContext.__new__(BuiltinContext))


def test_the_context_of_features_has_every_method_that_features_may_call() -> None:
    methods = [name for name in vars(Registrar) if not name.startswith("_")]
    assert len(methods) == 6
    assert [name for name in methods if not callable(getattr(BuiltinContext, name, None))] == []


def test_reports_on_plugins_are_made_in_one_place() -> None:
    """Lists and checks read `PluginReport`; only its module joins the record, the decision and the last load."""
    readers = {
        str(path.relative_to(ROOT))
        for path, tree in parsed("last_load(")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "last_load"
    }
    assert readers == {"plugins/plugin_state.py", "app/plugin_subcommands.py"}
    users = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if re.search(r"\breport_(loaded|installed|rejected)\(", path.read_text("utf-8"))
    }
    assert users == {
        "app/control_operations.py",
        "app/plugins/check_report.py",
        "app/plugins/doctor.py",
        "app/plugins/home.py",
        "app/plugins/info.py",
        "plugins/plugin_state.py",
        "plugins/status_text.py",
    }
