"""Upstream's `model_tools` and `toolsets`, implemented with the host's registries.

Changes of `toolsets.TOOLSETS` and of a toolset's lists apply to the agent. Source: plugin contract §4.1, §4.7, §4.8,
§11.2.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from typing import Any, NoReturn, SupportsIndex

from hermes_agent.compat.agent import host, of_host
from hermes_agent.core.caches import CheckCache
from hermes_agent.core.messages import new_id
from hermes_agent.core.registry import BUILTIN
from hermes_agent.core.tool_schemas import OPENAI, adapt_schema
from hermes_agent.plugins.tool_access import dispatch_tool
from hermes_agent.tools import ToolRegistry
from hermes_agent.tools.toolsets import Toolsets

logger = logging.getLogger(__name__)

invalidate_check_fn_cache = of_host(lambda host: host.tools.checks, CheckCache.forget)
get_toolset_names = of_host(lambda host: host.toolsets, Toolsets.names)
validate_toolset = of_host(lambda host: host.toolsets, Toolsets.exists)


def resolve_toolset(name: str, visited: set[str] | None = None, *, include_registry: bool = True) -> list[str]:
    """Return the names of a toolset's tools, sorted; none for an unknown toolset.

    Args:
        visited: toolsets that led to this one.
        include_registry: False leaves out tools of plugins and MCP servers.
    """
    found = host().toolsets.resolve(name, visited)
    return found if include_registry else [tool for tool in found if host().tools.owner(tool) == BUILTIN]


def get_toolset(name: str, *, include_registry: bool = True) -> dict[str, Any] | None:
    """Return `description`, `tools` and `includes` of a toolset, or None for an unknown one.

    Args:
        include_registry: False leaves out tools of plugins and MCP servers.
    """
    found = host().toolsets.get(name)
    if found is None or include_registry:
        return found
    own = [tool for tool in found["tools"] if host().tools.owner(tool) == BUILTIN]
    return {**found, "tools": own} if own or found["includes"] else None


def tool_registry() -> ToolRegistry:
    """Return the host's own registry, so that a plugin's patches apply to the agent."""
    return host().tools


def create_custom_toolset(
    name: str, description: str, tools: list[str] | None = None, includes: list[str] | None = None
) -> None:
    """Define a toolset of tools and other toolsets for this process."""
    host().toolsets.create(name, description, tools or (), includes or ())


def resolve_multiple_toolsets(toolset_names: Iterable[str]) -> list[str]:
    """Return the tools of several toolsets, sorted by name."""
    return sorted(host().toolsets.resolve_all(toolset_names))


def get_all_toolsets() -> dict[str, dict[str, Any]]:
    """Return every toolset by name."""
    return {name: found for name in get_toolset_names() if (found := get_toolset(name)) is not None}


def get_toolset_info(name: str) -> dict[str, Any] | None:
    """Return a toolset, or None.

    It also has `name`, `direct_tools`, `resolved_tools`, `tool_count` and `is_composite`.
    """
    found = get_toolset(name)
    if found is None:
        return None
    resolved = resolve_toolset(name)
    more = {"name": name, "direct_tools": found["tools"], "resolved_tools": resolved, "tool_count": len(resolved)}
    return found | more | {"is_composite": bool(found["includes"])}


def get_tool_definitions(
    enabled_toolsets: list[str] | None = None,
    disabled_toolsets: list[str] | None = None,
    quiet_mode: bool = False,
    skip_tool_search_assembly: bool = False,
) -> list[dict[str, Any]]:
    """Return the tool definitions for a model: `{"type": "function", "function": {…}}`, sorted by name.

    Args:
        enabled_toolsets: toolsets to include; None means all.
        disabled_toolsets: toolsets to exclude.
        quiet_mode: do not log unknown names.
        skip_tool_search_assembly: return every definition, even if there are many.
    """
    asked = (*(enabled_toolsets or ()), *(disabled_toolsets or ()))
    for name in () if quiet_mode else asked:
        if not validate_toolset(name):
            logger.warning("there is no toolset %r", name)
    names = set(resolve_toolset("all") if enabled_toolsets is None else resolve_multiple_toolsets(enabled_toolsets))
    # the bundle of a platform stands for its own tools alone
    names -= set(resolve_multiple_toolsets(name.removeprefix("hermes-") for name in disabled_toolsets or ()))
    found = host().tools.get_definitions(names, quiet=quiet_mode)
    search = host().agent.search
    if search is not None and not skip_tool_search_assembly:
        found = search.split(found, named=resolve_multiple_toolsets(enabled_toolsets or ()))[0]
    functions = [d.get("function", d) for d in found]
    return [
        {"type": "function", "function": {**f, "parameters": adapt_schema(f.get("parameters"), OPENAI)}}
        for f in functions
    ]


def handle_function_call(
    function_name: str,
    function_args: dict[str, Any],
    task_id: str | None = None,
    tool_call_id: str | None = None,
    session_id: str | None = None,
    turn_id: str | None = None,
    api_request_id: str | None = None,
    user_task: str | None = None,
    skip_tool_execution_middleware: bool = False,
    **kwargs: Any,
) -> str:
    """Call a tool as a model would and return its result; errors are returned as results.

    Outside a conversation, hooks receive the ids that are given here.

    Args:
        skip_tool_execution_middleware: ignored: a middleware may be a guard.
        kwargs: for the handler.
    """
    kwargs["task_id"] = task_id or new_id("task")
    if session_id:
        kwargs["session_id"] = session_id
    if turn_id:
        kwargs["turn_id"] = turn_id
    if api_request_id:
        kwargs["api_request_id"] = api_request_id
    if user_task:
        kwargs["user_task"] = user_task
    return dispatch_tool(host(), "model_tools", function_name, function_args, kwargs, tool_call_id or "")


class _Members(MutableSequence[str], list[str]):  # type: ignore[misc,metaclass]  # a list for `json`
    """`tools` or `includes` of a toolset; a change of the list changes the toolset at once."""

    def __init__(self, toolset: str, kind: str) -> None:
        self._toolset, self._kind = toolset, kind
        self._store()

    def _store(self) -> None:
        """Copy the names into the underlying list, which `json` and other C code read directly."""
        list.__init__(self, self._names())  # type: ignore[call-overload]

    def _names(self) -> list[str]:
        found = _toolsets().get(self._toolset)
        return [] if found is None else list(found[self._kind])

    def __getitem__(self, index: Any) -> Any:
        return self._names()[index]

    def __len__(self) -> int:
        return len(self._names())

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __eq__(self, other: object) -> bool:
        return self._names() == (other._names() if isinstance(other, _Members) else other)

    __hash__ = None  # type: ignore[assignment]  # lists are not hashable

    def __add__(self, other: Iterable[str]) -> list[str]:
        return [*self, *other]

    def __radd__(self, other: Iterable[str]) -> list[str]:
        return [*other, *self]

    def __repr__(self) -> str:
        return repr(self._names())

    def copy(self) -> list[str]:
        """Return the names as an independent list."""
        return self._names()

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> list[str]:
        return self._names()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return list, (self._names(),)

    def sort(self, *, key: Any = None, reverse: bool = False) -> None:
        """Sort the names."""
        self._become(sorted(self._names(), key=key, reverse=reverse))

    def insert(self, index: SupportsIndex, value: str) -> None:
        """Insert a name."""
        names = self._names()
        names.insert(index, value)
        self._become(names)

    def __setitem__(self, index: Any, value: Any) -> None:
        names = self._names()
        names[index] = value
        self._become(names)

    def __delitem__(self, index: Any) -> None:
        names = self._names()
        del names[index]
        self._become(names)

    def _become(self, names: list[str]) -> None:
        found = _toolsets().get(self._toolset) or {}
        _put(self._toolset, {**found, self._kind: names})
        self._store()


class _Entry(dict[str, Any]):
    """A toolset: `description`, `tools` and `includes`."""

    def __init__(self, name: str, description: str) -> None:
        parts: dict[str, Any] = {kind: _Members(name, kind) for kind in ("tools", "includes")}
        super().__init__({"description": description, **parts})
        self._name = name

    def __setitem__(self, key: str, value: Any) -> None:
        _put(self._name, {**self, key: value})
        if key not in ("tools", "includes"):
            super().__setitem__(key, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {key: value.copy() if isinstance(value, _Members) else value for key, value in self.items()}

    def __copy__(self) -> dict[str, Any]:
        return self.copy()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (self.__deepcopy__({}),)

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"toolset {self._name!r} keeps its description, tools and includes: assign to them,"
            f" or `del TOOLSETS[{self._name!r}]`"
        )

    pop = popitem = clear = __delitem__ = _refuse

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the value of a key; set it to `default` first if it is missing."""
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several keys."""
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def __ior__(self, other: Any) -> _Entry:  # type: ignore[override,misc]
        self.update(other)
        return self


class _Table(MutableMapping[str, dict[str, Any]]):
    """Every toolset by name."""

    def __getitem__(self, name: str) -> dict[str, Any]:
        found = _toolsets().get(name)
        if found is None:
            raise KeyError(name)
        return _Entry(name, found["description"])

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in _toolsets().names() if _toolsets().get(name) is not None])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __setitem__(self, name: str, value: Mapping[str, Any]) -> None:
        """Create or replace a toolset.

        Raises:
            TypeError: `value` is not a mapping with `tools` and `includes`, or omits a tool registered in the toolset.
        """
        _put(name, value)

    def __delitem__(self, name: str) -> None:
        """Remove a toolset that was created at run time.

        Raises:
            KeyError: the toolset does not exist.
            TypeError: tools are registered in the toolset.
        """
        if name not in self:
            raise KeyError(name)
        _toolsets().remove(name)

    def __repr__(self) -> str:
        return repr(dict(self))

    def copy(self) -> dict[str, dict[str, Any]]:
        """Return the toolsets as an independent dictionary."""
        return {name: found for name in self if (found := _toolsets().get(name)) is not None}

    def __copy__(self) -> dict[str, dict[str, Any]]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, dict[str, Any]]:
        return self.copy()

    def assign(self, wanted: Mapping[str, Mapping[str, Any]]) -> None:
        """Add these toolsets, as `toolsets.TOOLSETS = {…}` does; other toolsets stay."""
        for name, value in wanted.items():
            self[name] = value


def _toolsets() -> Toolsets:
    return host().toolsets


def _put(name: str, value: Mapping[str, Any]) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"toolset {name!r} is {value!r}: expected a mapping with description, tools and includes")
    parts = {kind: value.get(kind) or [] for kind in ("tools", "includes")}
    for kind, names in parts.items():
        if isinstance(names, str) or not all(isinstance(each, str) for each in names):
            raise TypeError(f"{kind} of toolset {name!r} is {names!r}: expected a list of names")
    _toolsets().replace(name, str(value.get("description") or ""), list(parts["tools"]), list(parts["includes"]))


TOOLSETS = _Table()
"""Upstream's table of toolsets."""
