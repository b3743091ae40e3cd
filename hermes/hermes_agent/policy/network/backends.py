"""What `terminal.network` does where commands run, by backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["explain_unruled"]

_CONTAINERS = ("docker", "singularity")
"""Backends whose commands have the network of an engine, or none."""


def explain_unruled(backend: str, get: Callable[[str], Any]) -> str:
    """Return why the table of hosts does not decide about the connections of commands; empty when it does.

    Args:
        backend: where commands run.
        get: returns a setting by its key.
    """
    mode = get("terminal.network")
    if backend in _CONTAINERS:
        if mode in ("hosts", "ask"):
            return (
                f"`terminal.network` is `{mode}`, and a {backend} container has all of the network (`on`) or none:"
                " commands reach no host"
            )
        lists = "; `network.deny` does not hold there" if get("network.deny") else ""
        return f"a {backend} container has the network of its engine{lists}" if mode == "on" else ""
    if backend != "local":
        return f"commands have the network of the backend {backend}: `terminal.network` and `network` do not hold there"
    if get("terminal.sandbox") == "off":
        return (
            "commands run outside a sandbox and have the network of this machine: `terminal.network` and `network` do"
            " not hold for them"
        )
    return ""
