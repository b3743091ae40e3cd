"""Settings as typed values: `Settings`, with an attribute for each key of the config, and `section`."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_agent.config.schema import MISSING, OPEN, KeyPath, Node, default, lookup, render_path, types


class Section:
    """One mapping of the config, with an attribute for each key that `schema.json` declares.

    A mapping with declared keys is a `Section`; any other value is as in the config. A key without a value has its
    default, or None if it has none. `schema_types.pyi`, which `make docs` writes, has the types.
    """

    __slots__ = ("__dict__", "_path", "_value")

    def __init__(self, value: Any, path: KeyPath = ()) -> None:
        self._value = value
        self._path = path

    def _read(self, name: str) -> Any:
        node = None if name.startswith("_") else _declared((*self._path, name))
        if node is None:
            raise AttributeError(f"the config has no key {render_path((*self._path, name))}")
        values: Mapping[str, Any] = self._value if isinstance(self._value, Mapping) else {}
        value = values.get(name)
        if "properties" in node:
            value = Section(value, (*self._path, name))
        elif value is None and not (name in values and "null" in types(node)):
            given = default(node)
            value = None if given is MISSING else given
        self.__dict__[name] = value  # the next read does not come here
        return value

    if not TYPE_CHECKING:  # mypy knows the declared keys, and no other
        __getattr__ = _read


if TYPE_CHECKING:
    from hermes_agent.config.schema_types import Settings as Settings
else:
    Settings = Section


def plain(part: Section) -> Any:
    """Return the value of a section as in the config, for code that reads keys of plugins or every key."""
    return {} if part._value is None else part._value


@functools.cache
def _declared(path: KeyPath) -> Node | None:
    node = lookup(path)
    return None if node is OPEN else node


T = TypeVar("T")
_CONVERTED = (float, tuple, frozenset)


def section(cls: type[T], source: object, leave: Collection[str] = (), /, **values: Any) -> T:
    """Return typed settings: a named tuple or dataclass with a value of the config for each field.

    A field is read from the key of its name. A key without a value (null) leaves the default. A number or list takes
    the type of the field's default: `float`, `tuple`, `frozenset`.

    Args:
        source: a section of `Settings`, or a mapping.
        leave: fields that have their defaults.
        values: values of fields that are not read; None leaves the default.
    """
    for name, initial in _field_defaults(cls).items():
        if name in leave:
            continue
        if name in values:
            value = values[name]
        else:
            value = source.get(name) if isinstance(source, Mapping) else getattr(source, name)
        if value is None:
            values.pop(name, None)
        else:
            kind = type(initial)
            values[name] = kind(value) if kind in _CONVERTED and not isinstance(value, kind) else value
    return cls(**values)


def _field_defaults(cls: type[Any]) -> dict[str, Any]:
    """Return the fields of a named tuple or dataclass with their defaults, None for those without one."""
    if (fields := getattr(cls, "__dataclass_fields__", None)) is not None:
        return {name: field.default for name, field in fields.items()}
    return {name: cls._field_defaults.get(name) for name in cls._fields}
