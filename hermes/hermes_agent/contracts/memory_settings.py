"""How a memory plugin describes its settings, as data that a form is drawn from. Source: plugin contract §11.1.

A plugin's `config_schema.py` holds a `CONFIG_SCHEMA`. Nothing of ours draws such a form yet; plugins and their tests
import the classes.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "KIND_BOOL",
    "KIND_JSON",
    "KIND_NUMBER",
    "KIND_SECRET",
    "KIND_SELECT",
    "KIND_TEXT",
    "STORAGE_FLAT_JSON",
    "STORAGE_HONCHO_HOST_BLOCK",
    "ProviderConfigSchema",
    "ProviderField",
    "ProviderFieldOption",
]

KIND_TEXT, KIND_SELECT, KIND_SECRET = "text", "select", "secret"
KIND_BOOL, KIND_NUMBER, KIND_JSON = "bool", "number", "json"
STORAGE_FLAT_JSON = "flat_json"
"""The settings are one JSON object in `HOME/<name>/config.json`."""
STORAGE_HONCHO_HOST_BLOCK = "honcho_host_block"


@dataclass(frozen=True)
class ProviderFieldOption:
    """One of the values that a field of `KIND_SELECT` can have."""

    value: str
    label: str
    description: str = ""


@dataclass(frozen=True)
class ProviderField:
    """A setting."""

    key: str
    label: str
    kind: str = KIND_TEXT
    default: str = ""
    description: str = ""
    placeholder: str = ""
    options: tuple[ProviderFieldOption, ...] = ()
    env_key: str | None = None
    """Variable that a secret is stored in."""
    aliases: tuple[str, ...] = ()
    """Older keys that are read, too."""
    env_fallbacks: tuple[str, ...] = ()
    inline: bool = False
    """It belongs to the few that are shown first."""
    group: str = ""
    info: str = ""
    scope: str = "host"

    @property
    def is_secret(self) -> bool:
        """It is stored among the credentials and never shown."""
        return self.kind == KIND_SECRET

    def allowed_values(self) -> set[str]:
        """Return the values of its options."""
        return {option.value for option in self.options}


@dataclass(frozen=True)
class ProviderConfigSchema:
    """The settings of one memory plugin."""

    name: str
    label: str
    storage: str = STORAGE_FLAT_JSON
    docs_url: str = ""
    fields: tuple[ProviderField, ...] = ()

    def inline_fields(self) -> tuple[ProviderField, ...]:
        """Return the settings that are shown first."""
        return tuple(field for field in self.fields if field.inline)
