"""The secrets that a config holds, and the variables that it names as secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hermes_agent.config.keypath import KeyPath
from hermes_agent.config.load import Config
from hermes_agent.config.schema import Node, child, load_schema
from hermes_agent.core.secrecy import find_secrets, is_public_value, looks_like_secret_name

__all__ = ["header_secrets", "secret_values", "secret_variables", "file_secrets"]

_NAMED_BY = ("api_key_env", "key_env", "secret_env", "token_env", "password_env")
"""Keys whose value is the name of a variable that holds a secret."""
_ORDINARY_HEADERS = frozenset(
    """
    accept accept-encoding accept-language cache-control connection content-type http-referer origin referer
    user-agent x-title anthropic-version anthropic-beta openai-organization openai-project openai-beta
    """.split()  # noqa: SIM905
)


def secret_values(config: Config, schema: Node | None = None) -> Iterator[str]:
    """Yield each secret in the values in effect: of keys that are declared secret, or whose name says so.

    Args:
        schema: the whole schema with the options of plugins.
    """
    yield from file_secrets(config.values, schema)


def file_secrets(values: Mapping[str, Any], schema: Node | None = None) -> Iterator[str]:
    """Yield each secret in the values of a file, as `secret_values`."""
    yield from _values(values, (), load_schema() if schema is None else schema)


def secret_variables(config: Config) -> Iterator[str]:
    """Yield the name of each variable that the config names as the place of a secret."""
    yield from _variables(config.values)
    providers = config.values.get("providers")
    for entry in providers.values() if isinstance(providers, Mapping) else ():
        profiles = entry.get("profiles") if isinstance(entry, Mapping) else None
        yield from map(str, profiles.values() if isinstance(profiles, Mapping) else ())


def header_secrets(headers: Mapping[str, Any]) -> Iterator[str]:
    """Yield the secrets in headers of the config: their values, unless they are ordinary ones."""
    for name, value in headers.items():
        ordinary = name.lower() in _ORDINARY_HEADERS or is_public_value(str(value))
        yield from find_secrets(name, str(value), declared=None if ordinary else True)


def _values(value: Any, path: KeyPath, node: Node | None, inside: bool = False) -> Iterator[str]:
    """Yield the secrets in `value`; `inside` is whether a mapping above declares all of its keys secret."""
    if isinstance(value, str) and value:
        yield from _of_text(path, value, node, inside)
        return
    inside = bool((node or {}).get("x-secret", inside))
    if isinstance(value, Mapping):
        for key, item in value.items():
            below = None if node is None else child(node, str(key))
            yield from _values(item, (*path, str(key)), below, inside)
    elif isinstance(value, list):
        for item in value:
            yield from _values(item, path, None if node is None else child(node, 0), inside)


def _of_text(path: KeyPath, value: str, node: Node | None, inside: bool) -> Iterator[str]:
    name = str(path[-1])
    declared: bool | None = (node or {}).get("x-secret")
    if declared is None and inside and path[-2:-1] == ("headers",):
        yield from header_secrets({name: value})
        return
    if declared is None and not inside and node and "description" in node and not looks_like_secret_name(name):
        declared = False
    yield from find_secrets(name, value, declared=declared)


def _variables(value: Any) -> Iterator[str]:
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if key in _NAMED_BY and isinstance(item, str) and item:
            yield item
        elif isinstance(item, Mapping | list):
            yield from _variables(item)
