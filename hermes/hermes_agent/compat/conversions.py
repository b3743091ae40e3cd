"""Upstream's conversions of values: booleans, addresses, masked secrets, YAML files, schedules.

Source: plugin contract §11.2, §11.3, §12.3.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

import yaml

from hermes_agent.compat.config import fast_safe_load
from hermes_agent.compat.environment import ON
from hermes_agent.config.edit import edited_text
from hermes_agent.core.errors import UserError
from hermes_agent.core.redaction import redactor
from hermes_agent.core.secrecy import looks_like_secret_name
from hermes_agent.cron import schedule as schedules
from hermes_agent.system.files import write_atomic
from hermes_agent.system.safe_http import METADATA_NAMES, is_allowed_address

TRUTHY_STRINGS = frozenset(ON)
"""Texts that mean true in a setting."""
EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max", "ultra")
"""Efforts of reasoning."""
AUDIO_FORMATS = frozenset({"wav", "mp3", "ogg", "flac", "opus"})
"""Formats that a speech provider may return."""
CORE_QUERY_SECRETS = frozenset({"sig", "signature", "x-amz-signature", "x-goog-signature", "jwt"})
"""Parameters of a URL that are secrets, though their names do not look so."""


def is_truthy_value(value: Any, default: bool = False) -> bool:
    """Return whether a setting is on; None is `default`."""
    if value is None:
        return default
    return value.strip().lower() in TRUTHY_STRINGS if isinstance(value, str) else bool(value)


def safe_json_loads(text: str, default: Any = None) -> Any:
    """Return the value of a JSON text, or `default` if it is invalid."""
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return default


def base_url_hostname(base_url: str) -> str:
    """Return the host of a URL in lower case, or "" if it has none; the scheme may be missing."""
    text = (base_url or "").strip()
    try:
        return (urlsplit(text if "://" in text else f"//{text}").hostname or "").lower()
    except ValueError:
        return ""


def base_url_host_matches(base_url: str, domain: str) -> bool:
    """Return whether the host of a URL is `domain` or below it."""
    host, wanted = base_url_hostname(base_url), (domain or "").strip().lower().strip(".")
    return bool(host and wanted) and (host == wanted or host.endswith(f".{wanted}"))


def normalize_proxy_url(proxy_url: str | None) -> str | None:
    """Return the URL of a proxy as HTTP clients expect it, or None; `socks://` is version 5."""
    text = (proxy_url or "").strip()
    scheme, mark, rest = text.partition("://")
    return (f"socks5://{rest}" if mark and scheme.lower() == "socks" else text) or None


def normalize_url_for_request(url: str) -> str:
    """Return a URL in ASCII: the host in IDNA, other characters in percent escapes."""
    parts = urlsplit(url.strip())
    host = parts.hostname or ""
    if not host.isascii():
        place = parts.netloc.rpartition("@")[0]
        port = f":{parts.port}" if parts.port else ""
        name = host.encode("idna").decode("ascii") + port
        parts = parts._replace(netloc=f"{place}@{name}" if place else name)
    kept = "/:@!$&'()*+,;=%-._~?"
    return urlunsplit(parts._replace(**{n: quote(getattr(parts, n), kept) for n in ("path", "query", "fragment")}))


def sensitive_query_param_name(url: str) -> str | None:
    """Return the first parameter of a URL that looks like a secret, or None."""
    try:
        given = parse_qsl(urlsplit(url).query)
    except ValueError:
        return None
    return next((n for n, v in given if v and (n.lower() in CORE_QUERY_SECRETS or looks_like_secret_name(n))), None)


def has_sensitive_query_params(url: str) -> bool:
    """Return whether a parameter of a URL looks like a secret."""
    return sensitive_query_param_name(url) is not None


def is_always_blocked_url(url: str) -> bool:
    """Return whether a URL leads to the credentials of a cloud machine, which no tool may request."""
    host = base_url_hostname(url)
    try:
        ipaddress.ip_address(host)
    except ValueError:  # a name
        return host.rstrip(".") in METADATA_NAMES
    return not is_allowed_address(host, private=True)


def mask_secret(
    value: str, *, head: int = 4, tail: int = 4, floor: int = 12, placeholder: str = "***", empty: str = ""
) -> str:
    """Return a secret for display: its first and last characters.

    Args:
        floor: a shorter secret is shown as `placeholder`.
        empty: the result for an empty secret.
    """
    if not value:
        return empty
    return placeholder if len(value) < max(floor, head + tail) else f"{value[:head]}...{value[len(value) - tail :]}"


def redact_key(key: str) -> str:
    """Return a key for display, `(not set)` for an empty one."""
    return mask_secret(key, empty="(not set)")


def redact_config_value(value: Any, _depth: int = 0) -> Any:
    """Return a copy of a part of the config in which the values of secret keys are masked."""
    if isinstance(value, Mapping):
        return {
            key: mask_secret(item)
            if isinstance(item, str) and looks_like_secret_name(str(key))
            else redact_config_value(item)
            for key, item in value.items()
        }
    return [redact_config_value(item) for item in value] if isinstance(value, list) else value


class RedactingFormatter(logging.Formatter):
    """Formatter of log records that masks secrets."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the formatted record with masked secrets."""
        return redactor(super().format(record))


class IndentDumper(yaml.SafeDumper):
    """Writer of YAML that indents the items of a list below their key."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent the next level, also for the items of a list."""
        super().increase_indent(flow, False)


def atomic_yaml_write(
    path: str | Path,
    data: Any,
    *,
    default_flow_style: bool = False,
    sort_keys: bool = False,
    extra_content: str | None = None,
) -> None:
    """Write a value as YAML to a file, which is replaced as a whole; missing folders are created.

    Args:
        extra_content: text after the value.
    """
    text = yaml.dump(
        data,
        Dumper=IndentDumper,
        default_flow_style=default_flow_style,
        sort_keys=sort_keys,
        allow_unicode=True,
    )
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, text + (extra_content or ""))


def atomic_roundtrip_yaml_update(path: str | Path, key_path: str, value: Any) -> None:
    """Set the key at a dotted path in a YAML file; comments and the order of keys stay.

    Raises:
        ValueError: the file is no YAML mapping.
    """
    file = Path(path)
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    is_mapping = isinstance(fast_safe_load(text) or {}, dict)
    fresh = next(edited_text(text, tuple(key_path.split(".")), value), None) if is_mapping else None
    if fresh is None:
        raise ValueError(f"{file} is no YAML mapping in which {key_path} can be set")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, fresh)


def parse_reasoning_effort(effort: Any) -> dict[str, Any] | None:
    """Return the settings of a reasoning effort, or None for an empty or unknown one; `none` turns it off."""
    if effort is False:
        return {"enabled": False}
    word = effort.strip().lower() if isinstance(effort, str) else ""
    if word in ("none", "false", "disabled"):
        return {"enabled": False}
    return {"enabled": True, "effort": word} if word in EFFORTS else None


def resolve_output_format(value: str | None) -> str:
    """Return a format of audio, `mp3` if the given one is unknown."""
    word = (value or "").strip().lower()
    return word if word in AUDIO_FORMATS else "mp3"


def mcp_name_component(value: str) -> str:
    """Return a part of the name of an MCP tool: characters other than letters, digits and `_` become `_`."""
    return re.sub(r"[^A-Za-z0-9_]", "_", str(value))


def mcp_prefixed_tool_name(server_name: str, tool_name: str) -> str:
    """Return the name under which the tool of an MCP server is registered."""
    return f"{MCP_TOOL_NAME_PREFIX}{mcp_name_component(server_name)}__{mcp_name_component(tool_name)}"


MCP_TOOL_NAME_PREFIX = "mcp__"
"""Beginning of the names of tools of MCP servers."""


def parse_schedule(schedule: str) -> dict[str, Any]:
    """Return a schedule of a job in upstream's form: `kind`, `display`, and `run_at`, `minutes` or `expr`.

    Raises:
        ValueError: the text cannot be read; the message has examples.
    """
    text = str(schedule).strip()
    single = re.fullmatch(r"\d+\s*(?:s|m|h|d|w)\w*", text.lower()) is not None  # upstream: `30m` runs once
    try:
        return schedules.parse_schedule(f"in {text}" if single else text, time.time()).to_dict()
    except UserError as exc:
        raise ValueError(f"Invalid schedule {schedule!r}: {exc.message}. {exc.hint}") from exc
