"""Upstream's module functions over providers. Source: plugin contract §8, §11.2."""

from __future__ import annotations

from typing import Any

from hermes_agent.compat.hosting import host
from hermes_agent.compat.settings import get_env_value

__all__ = ["get_provider_env", "list_providers"]


def get_provider_env(name: str) -> str:
    """Return a variable or secret without blanks around it; empty when there is none."""
    return (get_env_value(name) or "").strip()


def list_providers(kind: str) -> list[Any]:
    """Return the registered providers of a kind, in order of registration."""
    return [provider for _, provider in host().providers[kind].items()]
