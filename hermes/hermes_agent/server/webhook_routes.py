"""What the config says about webhooks, and the text that a request becomes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hermes_agent.core.errors import ConfigError
from hermes_agent.server.settings import ConfigLookup, ServerSecrets
from hermes_agent.server.webhook_checks import CHECKS, Check

__all__ = ["WebhookRoute", "fill_template", "read_routes"]

LONGEST_VALUE, LONGEST_TEXT = 8_000, 60_000
"""Characters of one value of a template, and of the whole text."""
SAME_BODY_S = 7 * 86400.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_FIELD = re.compile(r"\{([A-Za-z0-9_.-]+)\}")
_DEFAULT = "The webhook {webhook} was called{event_in_words}:\n\n{body}"


@dataclass(frozen=True, slots=True)
class WebhookRoute:
    """One address that other services call; `webhooks.<name>` in the config."""

    name: str
    check: Check
    secret: str
    header: str
    id_header: str
    events: frozenset[str]
    prompt: str
    session: str
    deliver: str
    toolsets: tuple[str, ...]
    per_minute: int
    max_body_kb: int
    same_body_seconds: float
    """How long a request with the same content is the same delivery; 0: never."""

    def __repr__(self) -> str:
        return f"WebhookRoute({self.name!r}, check={self.check!r})"


def read_routes(config: ConfigLookup, secrets: ServerSecrets) -> dict[str, WebhookRoute]:
    """Return the routes by name.

    Raises:
        ConfigError: a name cannot stand in an address, or a route has no secret.
    """
    found: dict[str, Mapping[str, Any]] = config.get("webhooks") or {}
    return {name: _route(name, entry, secrets) for name, entry in found.items()}


def fill_template(template: str, values: Mapping[str, Any]) -> str:
    """Return a template with each `{path.to.value}` replaced; what is not there becomes nothing.

    Values are put in as they are and never read as a template again.
    """

    def value(match: re.Match[str]) -> str:
        found: Any = values
        for step in match[1].split("."):
            if isinstance(found, Mapping):
                found = found.get(step)
            elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
                found = found[int(step)]
            else:
                return ""
        if found is None:
            return ""
        return _shorten(
            found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, indent=1), LONGEST_VALUE
        )

    return _shorten(_FIELD.sub(value, template or _DEFAULT), LONGEST_TEXT)


def _route(name: str, entry: Mapping[str, Any], secrets: ServerSecrets) -> WebhookRoute:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"webhooks.{name}: a name of up to 64 letters, digits, `_` and `-` can stand in an address")
    check = str(entry.get("check") or "hmac")
    variable = str(entry.get("secret_env") or f"WEBHOOK_{name.upper().replace('-', '_')}_SECRET")
    secret = str(entry.get("secret") or "") or secrets.get(variable) or ""
    if not secret:
        raise ConfigError(f"webhooks.{name} has no secret: set the variable {variable} (or webhooks.{name}.secret)")
    if check not in CHECKS:
        raise ConfigError(f"webhooks.{name}.check is {check!r}: expected one of {', '.join(CHECKS)}")
    return WebhookRoute(
        name=name,
        check=check,
        secret=secret,
        header=str(entry.get("header") or "X-Signature-256"),
        id_header=str(entry.get("id_header") or ""),
        events=frozenset(str(one) for one in entry.get("events") or ()),
        prompt=str(entry.get("prompt") or ""),
        session=str(entry.get("session") or ""),
        deliver=str(entry.get("deliver") or ""),
        toolsets=tuple(str(one) for one in entry.get("toolsets") or ()),
        per_minute=int(entry.get("per_minute") or 60),
        max_body_kb=int(entry.get("max_body_kb") or 1024),
        same_body_seconds=float(entry.get("same_body_seconds", SAME_BODY_S)),
    )


def _shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text) - longest} more characters)"
