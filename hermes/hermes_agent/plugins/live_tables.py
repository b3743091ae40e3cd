"""Upstream's private tables of callbacks and commands as live objects: a change takes effect.

Published plugins change `manager._hooks`, `_middleware` and `_plugin_commands` directly. What they add belongs to the
plugin that runs `register` at that time, and ends with it. What they remove of others is gone until those load again.
Source: plugin contract §1.11.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import replace
from typing import Any

from hermes_agent.commands import CommandTable
from hermes_agent.contracts.command import DEFAULT_DESCRIPTION, SlashCommand
from hermes_agent.core.registry import BUILTIN, ListenerStore, current_owner
from hermes_agent.hooks.listeners import Listener

logger = logging.getLogger(__name__)

GUARD = "pre_tool_call"
"""Hook with callbacks that only their own plugin may remove: no plugin makes the agent less careful."""
Stored = Callable[[], ListenerStore[Listener]]
"""Returns the store of the context: a plugin that loads has one of its own."""


class LiveCallbacks(list[Any]):
    """The callbacks of one hook or kind of middleware, in order."""

    def __init__(self, stored: Stored, name: str, label: str) -> None:
        super().__init__()
        self._stored, self._name, self._label = stored, name, label

    def _now(self) -> list[Any]:
        return [listener.callback for listener in self._stored().listeners_for(self._name)]

    def _put(self, callbacks: Iterable[Any]) -> None:
        """Store these callbacks; one that is stored already keeps its owner.

        Raises:
            TypeError: one cannot be called.
        """
        store, owner = self._stored(), current_owner().key
        left = list(store.listeners_for(self._name))
        listeners = []
        for callback in callbacks:
            known = next((item for item in left if item.callback is callback), None)
            if known is None:
                known = Listener.of(callback, owner, self._label, self._name)
            else:
                left.remove(known)
            listeners.append(known)
        for gone in left:
            if gone.plugin != owner and self._name == GUARD:
                logger.warning("%s stays: plugin `%s` cannot remove guards of others", gone.what, owner or "?")
                listeners.append(gone)
            elif gone.plugin != owner:
                logger.warning("%s was removed by plugin `%s`", gone.what, owner or "?")
        store.put(self._name, tuple(listeners))

    def _edit(self, method: str, *args: Any, **kwargs: Any) -> Any:
        plain = self._now()
        result = getattr(plain, method)(*args, **kwargs)
        self._put(plain)
        return result

    def append(self, callback: Any) -> None:
        self._edit("append", callback)

    def insert(self, index: Any, callback: Any) -> None:
        self._edit("insert", index, callback)

    def extend(self, callbacks: Iterable[Any]) -> None:
        self._edit("extend", callbacks)

    def remove(self, callback: Any) -> None:
        self._edit("remove", callback)

    def pop(self, index: Any = -1) -> Any:
        return self._edit("pop", index)

    def clear(self) -> None:
        self._put(())

    def reverse(self) -> None:
        self._edit("reverse")

    def sort(self, **kwargs: Any) -> None:
        self._edit("sort", **kwargs)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._edit("__setitem__", index, value)

    def __delitem__(self, index: Any) -> None:
        self._edit("__delitem__", index)

    def __iadd__(self, callbacks: Iterable[Any]) -> LiveCallbacks:  # type: ignore[misc]
        self.extend(callbacks)
        return self

    def __getitem__(self, index: Any) -> Any:
        return self._now()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._now())

    def __reversed__(self) -> Iterator[Any]:
        return iter(self._now()[::-1])

    def __len__(self) -> int:
        return len(self._now())

    def __contains__(self, callback: object) -> bool:
        return callback in self._now()

    def __eq__(self, other: object) -> bool:
        return self._now() == other

    __hash__ = None

    def index(self, *args: Any) -> int:
        return self._now().index(*args)

    def count(self, callback: Any) -> int:
        return self._now().count(callback)

    def copy(self) -> list[Any]:
        return self._now()

    def __copy__(self) -> list[Any]:
        return self._now()

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return self._now()

    def __add__(self, other: Any) -> list[Any]:
        return self._now() + list(other)

    def __repr__(self) -> str:
        return repr(self._now())


class LiveTable(dict[str, Any]):
    """A mapping that reads and changes a store; a subclass has the methods that do so."""

    def _read(self, name: str) -> Any:
        raise NotImplementedError

    def _names(self) -> list[str]:
        raise NotImplementedError

    def _write(self, name: str, value: Any) -> None:
        raise NotImplementedError

    def _remove(self, name: str) -> None:
        raise NotImplementedError

    def __getitem__(self, name: str) -> Any:
        if name not in self._names():
            raise KeyError(name)
        return self._read(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self._write(name, value)

    def __delitem__(self, name: str) -> None:
        if name not in self._names():
            raise KeyError(name)
        self._remove(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __bool__(self) -> bool:
        return bool(self._names())

    def __eq__(self, other: object) -> bool:
        return self.copy() == other

    __hash__ = None

    # the mixin methods of the standard library call the methods above
    keys: Any = MutableMapping.keys
    items: Any = MutableMapping.items
    values: Any = MutableMapping.values
    get: Any = MutableMapping.get
    pop: Any = MutableMapping.pop
    popitem: Any = MutableMapping.popitem
    update: Any = MutableMapping.update
    setdefault: Any = MutableMapping.setdefault

    def clear(self) -> None:
        for name in self._names():
            self._remove(name)

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self

    def copy(self) -> dict[str, Any]:
        return {name: _plain(self._read(name)) for name in self._names()}

    def __copy__(self) -> dict[str, Any]:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return self.copy()

    def __repr__(self) -> str:
        return repr(self.copy())


def _plain(value: Any) -> Any:
    return value.copy() if isinstance(value, list | dict) else value


class LiveListeners(LiveTable):
    """The callbacks of all hooks, or of all kinds of middleware.

    Args:
        label: `hook` or `middleware`.
    """

    def __init__(self, stored: Stored, label: str) -> None:
        super().__init__()
        self._stored, self._label = stored, label
        self._asked: dict[str, LiveCallbacks] = {}
        """Lists that were handed out, also empty ones: `setdefault(name, []).append(callback)` adds to them."""

    def _names(self) -> list[str]:
        return list(self._stored().entries)

    def _read(self, name: str) -> LiveCallbacks:
        return self._asked.setdefault(name, LiveCallbacks(self._stored, name, self._label))

    def _write(self, name: str, value: Any) -> None:
        self._read(name)._put(value)

    def _remove(self, name: str) -> None:
        self._read(name)._put(())

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Return the list of a hook; a hook without callbacks has an empty one, which can be added to."""
        if name not in self._names() and default:
            self._write(name, default)
        return self._read(name)

    def __missing__(self, name: str) -> Any:
        return self._read(name)


class LiveCommand(dict[str, Any]):
    """One slash command of a plugin; an assigned field replaces the command."""

    def __init__(self, fields: dict[str, Any], put: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(fields)
        self._put = put

    def __setitem__(self, field: str, value: Any) -> None:
        self._put({**self, field: value})
        super().__setitem__(field, value)

    def update(self, *args: Any, **fields: Any) -> None:
        changes = dict(*args, **fields)
        self._put({**self, **changes})
        super().update(changes)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return dict(self)

    def copy(self) -> dict[str, Any]:
        return dict(self)


class LiveCommands(LiveTable):
    """The slash commands of plugins by name."""

    def __init__(self, table: Callable[[], CommandTable]) -> None:
        super().__init__()
        self._table = table

    def _names(self) -> list[str]:
        table = self._table()
        return [name for name in table.names() if table.owner(name) != BUILTIN]

    def _read(self, name: str) -> LiveCommand:
        table = self._table()
        command = table.get(name)
        assert command is not None
        fields = {
            "handler": command.handler,
            "description": command.description,
            "plugin": table.owner(name),
            "args_hint": command.args_hint,
            "argument_mode": command.argument_mode,
        }
        return LiveCommand(fields, lambda changed: self._write(name, changed))

    def _write(self, name: str, value: Any) -> None:
        """Register or replace a command.

        Raises:
            TypeError: it has no handler that can be called.
            PermissionError: the agent has the name.
        """
        handler = value.get("handler") if isinstance(value, dict) else None
        if not callable(handler):
            raise TypeError(f"the command {name!r} is {value!r}: expected a mapping with a callable `handler`")
        table, owner = self._table(), current_owner().key
        present = table.get(name)
        if present is None:
            about = str(value.get("description") or DEFAULT_DESCRIPTION)
            command = SlashCommand(name, handler, about, str(value.get("args_hint") or ""))
            if not table.register(command, owner=owner or str(value.get("plugin") or "")):
                raise PermissionError(f"the slash command /{name} belongs to the agent")
            return
        if table.owner(name) == BUILTIN:
            raise PermissionError(f"the slash command /{name} belongs to the agent")
        table.replace_command(
            replace(
                present,
                handler=handler,
                description=str(value.get("description") or present.description),
                args_hint=str(value.get("args_hint") or ""),
            ),
            owner=owner or table.owner(name) or "",
        )

    def _remove(self, name: str) -> None:
        self._table().remove(name)
