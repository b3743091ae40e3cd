"""OpenTelemetry spans of turns, model calls and tools. `docs/operator/observability.md` is its manual.

Names are those of OpenTelemetry's conventions for generative AI. What people, models and tools say is in no span.
"""

import os
from urllib.parse import unquote

from .exporter import Exporter
from .spans import Spans

__all__ = ["register"]


def register(ctx):
    """Observe turns; send what each came to when it ends."""
    address = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"].rstrip("/")
    pairs = (one.partition("=") for one in os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",") if "=" in one)
    headers = {name.strip(): unquote(value.strip()) for name, _, value in pairs}
    service = os.environ.get("OTEL_SERVICE_NAME") or "hermes-agent"
    spans = Spans(Exporter(f"{address}/v1/traces", headers, service))
    for name in ("pre_llm_call", "post_api_request", "api_request_error", "post_tool_call", "subagent_start"):
        ctx.register_hook(name, getattr(spans, name))
    for name in ("on_session_end", "on_session_finalize"):
        ctx.register_hook(name, getattr(spans, name))
