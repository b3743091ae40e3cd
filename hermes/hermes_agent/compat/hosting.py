"""The host behind upstream's module-level names."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from hermes_agent.contracts.owner import staged_store
from hermes_agent.host import Host, current

__all__ = ["allow_building", "host", "host_or_none", "of_host"]

Part = TypeVar("Part")
R = TypeVar("R")
P = ParamSpec("P")

_may_build = False


def allow_building() -> None:
    """Let the first use of a name build a host: in a script of its own, nobody else does."""
    global _may_build
    _may_build = True


def host() -> Host:
    """Return the process's host.

    Raises:
        RuntimeError: there is none, and a script may not build one.
    """
    try:
        return current()
    except RuntimeError:
        if not _may_build:
            raise
    built = Host.build()
    built.credentials.export(os.environ)
    return built


def host_or_none(part: Callable[[Host], Part]) -> Part | None:
    """Return a part of the host, as it is for who registers now; None in a script that has no host."""
    try:
        return staged_store(part(host()))
    except RuntimeError:
        return None


def of_host(part: Callable[[Host], Part], method: Callable[Concatenate[Part, P], R]) -> Callable[P, R]:
    """Return the function that calls a method of a part of whatever host there is then."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound: Callable[P, R] = getattr(part(host()), method.__name__)  # also one that a plugin has patched
        return bound(*args, **kwargs)

    signature = inspect.signature(method)
    shown: Any = call
    shown.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
    return call
