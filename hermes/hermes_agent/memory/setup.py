"""Setting up a memory provider: what its `get_config_schema` lists is asked for and kept. Source: contract §8.3."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hermes_agent.contracts.memory import MemoryProvider
from hermes_agent.core.errors import UserError

__all__ = ["SetupField", "configure_provider", "setup_fields"]


class SetupField(NamedTuple):
    """A setting of a provider."""

    key: str
    description: str
    secret: bool
    required: bool
    default: str
    choices: tuple[str, ...]
    url: str
    """Where one gets the value."""
    env_var: str
    """Variable that it is kept in; empty: with the provider's own settings."""

    @property
    def is_set(self) -> bool:
        """Whether the environment has it."""
        return bool(self.env_var and os.environ.get(self.env_var))


AskSetting = Callable[[SetupField], str]
"""Returns what the person answers; empty for nothing."""


def setup_fields(provider: MemoryProvider) -> list[SetupField]:
    """Return the settings of a provider; a secret without a variable gets one of its own."""
    schema: Sequence[Mapping[str, Any]] = getattr(provider, "get_config_schema", list)() or ()
    return [_field(item, provider.name) for item in schema if item.get("key")]


def configure_provider(
    provider: MemoryProvider, home: Path, ask: AskSetting, keep: Callable[[str, str], None], given: Mapping[str, str]
) -> None:
    """Ask for the settings, and keep them.

    Args:
        ask: for what `given` lacks.
        keep: stores a variable in `.env`.

    Raises:
        UserError: a required one is missing, or `given` has one that there is not, or that cannot be chosen.
    """
    fields = setup_fields(provider)
    unknown = sorted(set(given) - {field.key for field in fields})
    if unknown:
        known = ", ".join(field.key for field in fields) or "none"
        raise UserError(f"the memory provider `{provider.name}` has no setting {unknown[0]!r}; its settings: {known}")
    answers = {field: given[field.key] if field.key in given else ask(field) for field in fields}
    for field, answer in answers.items():
        if not answer and field.required and not field.is_set:
            raise UserError(
                f"the memory provider `{provider.name}` needs {field.key}: {field.description}",
                hint=f"Get it at {field.url}." if field.url else "",
            )
        if answer and field.choices and answer not in field.choices:
            raise UserError(f"{field.key} is {answer!r}: expected {' or '.join(field.choices)}")
    for field, answer in answers.items():
        if answer and field.env_var:
            keep(field.env_var, answer)
    values = {field.key: answer for field, answer in answers.items() if answer and not field.secret}
    if hasattr(provider, "save_config"):
        provider.save_config(values, str(home))


def _field(item: Mapping[str, Any], provider: str) -> SetupField:
    key, secret = str(item["key"]), bool(item.get("secret"))
    own = re.sub(r"\W", "_", f"{provider}_{key}").upper() if secret else ""
    default = item.get("default")
    return SetupField(
        key,
        str(item.get("description") or key),
        secret,
        bool(item.get("required")),
        "" if default is None else str(default),
        tuple(map(str, item.get("choices") or ())),
        str(item.get("url") or ""),
        str(item.get("env_var") or own),
    )
