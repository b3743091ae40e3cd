"""Rules of the tests: units apart from hosts, async tests, no bare sleeps, one builder of approvers and dispatchers."""

from __future__ import annotations

import ast
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from vm.machine import WITHIN

TESTS = Path(__file__).parents[1]
FILES = [
    path
    for path in sorted(TESTS.rglob("*.py"))
    if "data" not in path.parts and path.relative_to(TESTS).parts[0] != "plugins"
]
_ADAPTERS = "the steps of an adapter's test run while it is connected, in a loop that ends with the connection"
_NO_LOOP = "what it tests is called from a thread without a loop"
RUNS = {
    "compat/corpus/turn.py": "a program",
    "compat/repositories/probe.py": "a program",
    "compat/peer_suite/child.py": "runs the async tests of upstream",
    "conftest.py": "runs the async tests",
    "contract23/test_context.py": _NO_LOOP,
    "contracts/platform_suite.py": _ADAPTERS,
    "e2e/compat/test_tool_names.py": _NO_LOOP,
    "e2e/credentials/test_login.py": "between commands in processes that block",
    "fuzz/test_http.py": "schemathesis calls it",
    "model/evaluate.py": "a program",
    "peers/asking.py": "for tests that start and stop servers in a `with`",
    "platforms/conftest.py": _ADAPTERS,
    "platforms/test_irc.py": _ADAPTERS,
    "platforms/test_matrix.py": _ADAPTERS,
    "unit/agent/killed_turns.py": "a program",
    "unit/models/test_other_wires.py": "beside a server of `peers/asking.py`",
    "unit/runtime/test_bridge.py": _NO_LOOP,
    "unit/runtime/test_bridge_steps.py": _NO_LOOP,
    "unit/server/test_malformed.py": "hypothesis calls it",
    "unit/workspace/conftest.py": "tests of tools read and change files between calls, as a model does",
}
"""Files that call `asyncio.run`, with the reason. All other tests are `async def`."""
SLEEPS = {
    "platforms/test_irc.py": "an adapter must not ask again during some ticks of its clock",
    "unit/delivery/test_service.py": "nothing tells that a statement waits for another process's lock",
    "unit/agent/test_interrupt.py": "the awaited work itself",
    "unit/runtime/test_bridge_steps.py": "nothing says that the bridge has seen the end of an abandoned thread",
}
"""Files with a sleep outside of a loop that waits for a condition, with the reason."""
BUILDERS = {
    "House": {"people.py", "e2e/agent/test_subagents.py"},
    "Person": {"people.py", "attack/test_people.py", "peers/irc.py", "peers/xmpp.py"},
}
"""Where classes of these names are: the people of chat services have a connection of their own."""

PATCHES = {
    "e2e/gateway/test_asking.py": "a chat has one time limit, and here its first question ends before its second",
}
"""Files that replace a name of this project in a module or class, with the reason. Others pass an argument."""


def is_sleep(node: ast.AST) -> bool:
    """Say whether a node is `time.sleep(…)` or `asyncio.sleep(…)`; a sleep of 0 only lets others run."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="time" | "asyncio"), attr="sleep"), args=[duration]):
            return not (isinstance(duration, ast.Constant) and duration.value == 0)
    return False


def is_of_the_test(node: ast.FunctionDef | ast.AsyncFunctionDef, *, in_test: bool) -> bool:
    """Say whether a function waits for the test: one that asserts, or only sleeps, and is no stand-in that is slow."""
    if node.name.startswith("test_") and not in_test:
        return True
    body = [part for part in node.body if not isinstance(part, ast.Import | ast.ImportFrom)]
    return (in_test and any(isinstance(part, ast.Assert) for part in ast.walk(node))) or (
        not in_test and all(is_sleep(getattr(getattr(part, "value", part), "value", part)) for part in body)
    )


def sleeps(node: ast.AST, *, is_test: bool = False) -> Iterator[int]:
    """Yield the lines of sleeps of tests, of their parts and of helpers that only sleep, outside of loops."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from sleeps(child, is_test=is_of_the_test(child, in_test=is_test))
            case ast.While() | ast.For() | ast.AsyncFor():
                pass
            case ast.Lambda():
                yield from (part.lineno for part in ast.walk(child) if is_sleep(part))  # type: ignore[attr-defined]
            case _:
                if is_test and is_sleep(child):
                    yield child.lineno  # type: ignore[attr-defined]
                yield from sleeps(child, is_test=is_test)


def parsed(*words: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield the name of each file of tests in which one of the words stands, and its tree."""
    for path in FILES:
        text = path.read_text()
        if any(word in text for word in words):
            yield str(path.relative_to(TESTS)), ast.parse(text)


def test_a_test_waits_for_a_condition_and_does_not_sleep() -> None:
    found = {name for name, tree in parsed(".sleep(") if list(sleeps(tree))}
    assert found <= set(SLEEPS), "`waiting.until` waits for a condition"


def test_a_bare_sleep_is_found() -> None:
    bare = "def test_x():\n    with a:\n        time.sleep(0.1)"
    assert list(sleeps(ast.parse(bare))) == [3]
    waits = "def test_x():\n    while not a():\n        time.sleep(0.1)\n    def slow():\n        time.sleep(9)"
    assert list(sleeps(ast.parse(waits))) == []
    part = "def test_x():\n    async def main():\n        await asyncio.sleep(0.2)\n        assert a\n    run(main())"
    assert list(sleeps(ast.parse(part))) == [3]
    helper = "async def pause():\n    import asyncio\n    await asyncio.sleep(0.05)"
    assert list(sleeps(ast.parse(helper))) == [3]
    assert list(sleeps(ast.parse("def test_x():\n    add(lambda: time.sleep(0.05) or 1)"))) == [2]


def test_async_tests_are_async_functions() -> None:
    running = {
        name
        for name, tree in parsed("asyncio.run")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "asyncio.run"
    }
    assert running == set(RUNS), "write `async def test_…`; `tests/conftest.py` runs it in a loop of its own"


def test_approvers_and_dispatchers_have_one_builder() -> None:
    places: dict[str, set[str]] = {name: set() for name in BUILDERS}
    for file, tree in parsed(*(f"class {name}" for name in BUILDERS)):
        for node in tree.body:  # a test may have a class of its own for one special answer
            if isinstance(node, ast.ClassDef) and node.name in places:
                places[node.name].add(file)
    assert places == BUILDERS, "`tests/people.py` has `Person` and `House`"


def test_the_host_of_the_process_is_replaced_in_one_way() -> None:
    patched = re.compile(r"setattr\([^)]*\b_current\b")
    patching = {str(path.relative_to(TESTS)) for path in FILES if patched.search(path.read_text())}
    assert patching == set(), "the fixture `without_host`, or `hermes_agent.host.use_host`"


BUILDING = {
    "hermes_agent.host": {"Host"},
    "hermes_agent.host.host": {"Host"},
    "hermes_agent.testing": {"plugin_host"},
    "hermes_agent.testing.chat": {"chat_host", "chatting"},
    "hermes_agent.testing.open_host": {"plugin_host"},
    "hermes_agent.app.main": {"main"},
    "hermes_agent.app.command_line": {"run"},
}
"""What builds a whole host: its class, the test kit, and the program itself."""
SUITES = {"chaos", "e2e", "service", "attack"}
"""Folders of tests that build hosts; `attack/racing.py` does not."""
PROGRAM = re.compile(r"from hermes_agent\.(app\.main|host(\.host)?) import (main|Host)\b|\bhermes_host\b")
"""The same in the text of a program that a test runs."""


def builds_host(tree: ast.AST) -> Iterator[str]:
    """Yield what a file uses to build a host or to start the program."""
    typed = {id(part) for node in ast.walk(tree) if _is_typing(node) for part in ast.walk(node)}
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if id(node) not in typed:
                yield from (f"{module}.{name.name}" for name in names if name.name in BUILDING.get(module, ()))
                if module.partition(".")[0] in SUITES and module != "attack.racing":
                    yield module
            case ast.arg(arg="hermes_host"):
                yield "fixture hermes_host"
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                words = [part.value if isinstance(part, ast.Constant) else None for part in parts]
                if ("-m", "hermes_agent") in itertools.pairwise(words):
                    yield "python -m hermes_agent"
            case ast.Call(func=ast.Attribute(attr="with_name"), args=[ast.Constant(value="hermes")]):
                yield "hermes"
            case ast.Constant(value=str(text)) if PROGRAM.search(text):
                yield "a program that builds a host"


def _is_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def test_a_unit_test_builds_no_host_and_a_test_that_does_is_in_e2e() -> None:
    found = {
        str(p.relative_to(TESTS)): set(builds_host(ast.parse(p.read_text())))
        for p in FILES
        if p.is_relative_to(TESTS / "unit")
    }
    assert {path: names for path, names in found.items() if names} == {}, "its place is `tests/e2e/PACKAGE/`"


def test_what_builds_a_host_is_found() -> None:
    def found(text: str) -> list[str]:
        return list(builds_host(ast.parse(text)))

    assert found("def test_x():\n    from hermes_agent.host import Host") == ["hermes_agent.host.Host"]
    assert found("from hermes_agent.testing import PluginHost, plugin_host") == ["hermes_agent.testing.plugin_host"]
    assert found("run([sys.executable, '-m', 'hermes_agent', 'doctor'])") == ["python -m hermes_agent"]
    assert found("HERMES = Path(sys.executable).with_name('hermes')") == ["hermes"]
    assert found("CODE = 'from hermes_agent.host import Host'") == ["a program that builds a host"]
    assert found("from chaos.world import serving") == ["chaos.world"]
    assert found("if TYPE_CHECKING:\n    from hermes_agent.host import Host") == []
    assert found("from hermes_agent.testing import ScriptedModel\nfrom attack.racing import exchanging") == []


def patches(tree: ast.Module) -> Iterator[int]:
    """Yield the lines that replace a name in a module or class of this project."""
    ours = {
        (name.asname or name.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "hermes_agent"
        for name in node.names
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="setattr" | "object" | "patch"), args=[ast.Name(id=name), *_]):
                if name in ours:
                    yield node.lineno
            case ast.Call(func=ast.Attribute(attr="setattr" | "patch"), args=[ast.Constant(value=str(text)), *_]) if (
                text.startswith("hermes_agent.")
            ):
                yield node.lineno


def test_a_test_passes_an_argument_and_patches_no_module_of_this_project() -> None:
    found = {name for name, tree in parsed(".setattr(", ".object(", ".patch(") if list(patches(tree))}
    assert found == set(PATCHES), "give the code a parameter; CONTRIBUTING.md, Tests"


def test_a_patch_is_found() -> None:
    head = "from hermes_agent.core import redaction\nimport os\n"
    assert list(patches(ast.parse(f"{head}monkeypatch.setattr(redaction, '_forms', f)"))) == [3]
    assert list(patches(ast.parse(f"{head}with mock.patch.object(redaction, '_forms', f): pass"))) == [3]
    assert list(patches(ast.parse("monkeypatch.setattr('hermes_agent.x.Y', 1)"))) == [1]
    assert list(patches(ast.parse(f"{head}monkeypatch.setattr(os, 'geteuid', f)"))) == []


def test_the_virtual_machine_gets_all_that_its_suites_import(tmp_path: Path) -> None:
    for name in WITHIN:
        source, target = TESTS / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    found = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "--collect-only",
                "-p",
                "no:cacheprovider",
                "-p",
                "vm.booted.plugin",
            ),
            *("--noconftest", "--import-mode=importlib", "-c", os.devnull, "--rootdir", tmp_path),
            *("unit/workspace/test_bounds.py", "vm/booted/exec_unit.py"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(TESTS.parent / "hermes")))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout
