"""`settings`: an option for each key of the schema, with its type, its description, its default."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes_agent.config.schema import Node, load_schema, resolve, types

pytestmark = pytest.mark.nix

SANDBOX_AND_NETWORK = (
    *("terminal.network", "terminal.sandbox_paths", "terminal.writable_paths", "terminal.unconfined_commands"),
    *("network.hosts", "network.deny", "network.tools"),
)


def keys(node: Node, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Node]:
    """Every key that the schema declares, of lists' items none."""
    found: dict[tuple[str, ...], Node] = {}
    for name, below in node.get("properties", {}).items():
        child = resolve(below)
        # Below a text that may be a mapping the library lists no options.
        below_it = {} if "x-text-is" in child and name != "model" else keys(child, (*path, name))
        found |= {(*path, name): child} | below_it
    other = node.get("additionalProperties")
    if isinstance(other, dict) and not node.get("properties"):
        found |= keys(resolve(other), (*path, "<name>"))
    return found


@pytest.fixture(scope="module")
def options(nix) -> dict[tuple[str, ...], dict[str, Any]]:
    return {tuple(option["key"]): option for option in nix.evaluate("settingsOptions")}


def test_every_key_is_an_option_and_says_the_same(options) -> None:
    # One mapping of names that have a mapping each beside declared ones (`hooks`) is looked into by the check alone.
    declared = {key: node for key, node in keys(load_schema()).items() if key[0] != "hooks" or len(key) == 1}
    assert {key for key in options if key[0] != "hooks" or len(key) == 1} == set(declared)
    assert len(declared) > 300
    for key, node in declared.items():
        assert options[key]["description"].startswith(node.get("description", "")), key


def test_the_agents_own_default_is_shown(options) -> None:
    shown = {".".join(key): option["default"] for key, option in options.items()}
    assert shown["terminal.network"] == 'null, which leaves it to the agent: `"off"`'
    assert shown["terminal.sandbox_tmp_mb"] == "null, which leaves it to the agent: `1024`"
    assert shown["terminal.cwd"] == "config.services.hermes-agent.workingDirectory"
    of_nixos = {"terminal.cwd", "terminal.sandbox", "terminal.exec_socket", "server.enabled"}
    of_nixos |= {"plugins.host.sockets"}
    of_nixos |= {"plugins.allow_tool_override", "plugins.auto_enable"}
    compared = 0
    for key, node in keys(load_schema()).items():
        name = ".".join(key)
        if "default" in node and types(node) != ("object",) and shown.get(name, {}) != {} and name not in of_nixos:
            said = json.dumps(node["default"], separators=(",", ":"), ensure_ascii=False)
            assert shown[name] == f"null, which leaves it to the agent: `{said}`"
            compared += 1
    assert compared > 200


@pytest.mark.parametrize("name", SANDBOX_AND_NETWORK)
def test_what_opens_the_sandbox_has_an_example_that_the_agent_takes(name: str, options, nix) -> None:
    example = options[tuple(name.split("."))]["example"]
    assert example
    assert nix.evaluate("examples.declaredSettings")[name.split(".")[0]][name.split(".")[1]] == example


def test_a_host_with_the_examples_is_built(nix) -> None:
    assert nix.build("examples.check").status == 0


def test_types_are_those_of_the_schema(options) -> None:
    typed = {".".join(key): option["type"] for key, option in options.items()}
    assert typed["terminal.network"] == 'null or one of "off", "ask", "hosts", "on", false, true'
    assert typed["network.hosts"] == "null or list of string"
    assert typed["terminal.sandbox_tmp_mb"] == "null or unsigned integer, meaning >=0"
    assert typed["compression.threshold"] == (
        "null or integer or floating point number between 0 and 1 (both inclusive)"
    )
    # The library has no type for it; the check of the start knows the bound, and the description names it.
    assert typed["model.context_length"] == "null or positive integer, meaning >0"
    assert "At least 1024." in options[("model", "context_length")]["description"]


def test_what_nobody_set_is_left_to_the_agent(nix) -> None:
    assert nix.evaluate("systems.minimal.derived.declaredSettings") == {
        "plugins": {"auto_enable": True},
        "terminal": {"cwd": "/var/lib/hermes/workspace", "sandbox": "systemd"},
    }
