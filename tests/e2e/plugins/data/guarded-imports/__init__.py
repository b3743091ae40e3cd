"""Imports what it can get of the host."""

from __future__ import annotations

import json

try:
    from gateway.config import Platform
except ImportError:
    Platform = None

try:
    from agent.redact import redact_sensitive_text
except ModuleNotFoundError:

    def redact_sensitive_text(text, **_):
        return text


try:
    from hermes_constants import get_hermes_home
except ImportError:
    from pathlib import Path

    def get_hermes_home():
        return Path.home() / ".hermes"


from .handlers import TABLE


def _where(args: dict, **kw) -> str:
    return json.dumps(
        {"home": redact_sensitive_text(str(get_hermes_home())), "table": TABLE, "gateway": bool(Platform)}
    )


def register(ctx) -> None:
    ctx.register_tool("where_am_i", "guarded-imports", {"name": "where_am_i", "parameters": {}}, _where)
