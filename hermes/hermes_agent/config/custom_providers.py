"""Servers of the list `custom_providers`, upstream's older form, as entries of `providers`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

PREFIX = "custom:"
"""May stand before the name in `model.provider`."""
_FIELDS = {
    "base_url": ("base_url", "url", "api"),
    "api_key": ("api_key",),
    "api_key_env": ("api_key_env", "key_env"),
    "default_model": ("default_model", "model"),
    "transport": ("transport", "api_mode"),
    "headers": ("headers", "extra_headers"),
    "models": ("models",),
}
"""Key of `providers.<name>`: keys of the list, best first."""


def with_custom_providers(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with the servers of `custom_providers` under `providers`; an entry there wins."""
    servers = read_servers(values.get("custom_providers"))
    if not servers:
        return values
    own = values.get("providers")
    providers: dict[str, Any] = {**servers, **(own if isinstance(own, Mapping) else {})}
    model = values.get("model")
    if isinstance(model, Mapping) and str(model.get("provider") or "").startswith(PREFIX):
        model = {**model, "provider": provider_name(str(model["provider"]).removeprefix(PREFIX))}
        return {**values, "providers": providers, "model": model}
    return {**values, "providers": providers}


def read_servers(listed: Any) -> dict[str, dict[str, Any]]:
    """Return the entries of the list by name; one without a name or an address is left out."""
    found: dict[str, dict[str, Any]] = {}
    for entry in listed if isinstance(listed, list) else ():
        if not isinstance(entry, Mapping):
            continue
        name = provider_name(str(entry.get("name") or ""))
        fields = {key: next((entry[n] for n in names if entry.get(n)), None) for key, names in _FIELDS.items()}
        if name and fields["base_url"]:
            found.setdefault(name, {key: value for key, value in fields.items() if value})
    return found


def provider_name(text: str) -> str:
    """Return the name of a server for `model.provider`: lower case, `-` for blanks."""
    return re.sub(r"[^\w.-]+", "-", text.strip().lower()).strip("-")
