"""Upstream's steps of a setup wizard: choose, ask, write variables. Source: plugin contract §11.1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes_agent.compat.hosting import host
from hermes_agent.compat.prompts import curses_radiolist, print_info, print_success, prompt
from hermes_agent.compat.settings import save_env_value
from hermes_agent.config import hermes_home
from hermes_agent.config.edit import set_value
from hermes_agent.core.errors import UserError
from hermes_agent.memory.setup import Field, configure

__all__ = ["CANCELLED", "ask", "choose", "print_cancelled_setup", "setup_memory", "write_env_vars"]

CANCELLED = -1
"""What `choose` gives when nobody chose."""


def ask(label: str, default: str | None = None, secret: bool = False) -> str:
    """Ask for a value."""
    return prompt(f"  {label}", default, password=secret)


def choose(title: str, items: Sequence[Any], default: int = 0, **options: Any) -> int:
    """Let somebody choose one of `items` (texts, or pairs of text and description); `CANCELLED` when nobody does."""
    texts = [item if isinstance(item, str) else " - ".join(str(part) for part in item if part) for item in items]
    return curses_radiolist(title, texts, default, cancel_returns=options.get("cancel_returns", CANCELLED))


def print_cancelled_setup() -> None:
    """Say that nothing was changed."""
    print_info("Setup cancelled; nothing was changed.")


def write_env_vars(env_path: Any, env_writes: Mapping[str, str]) -> None:
    """Store variables in the home's `.env`.

    Args:
        env_path: upstream's file; it is always the home's here.
    """
    for name, value in env_writes.items():
        save_env_value(name, value)


def setup_memory(provider_name: str) -> None:
    """Ask for what a memory provider's `get_config_schema` lists, store it, and choose the provider.

    Raises:
        UserError: no plugin brings that provider.
    """
    provider = host().providers["memory"].get(provider_name)
    if provider is None:
        raise UserError(
            f"no memory provider `{provider_name}` is loaded",
            hint=f"Set memory.provider to {provider_name} and start again; `hermes plugins list` says what fails.",
        )
    configure(provider, hermes_home(), _asked, save_env_value, {})
    set_value(hermes_home(), ("memory", "provider"), provider_name)
    print_success(f"memory.provider is {provider_name} from the next start on")


def _asked(field: Field) -> str:
    return ask(field.description, field.default or None, field.secret)
