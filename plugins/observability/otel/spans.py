"""Spans from hooks. Ids of spans derive from the id of the turn, so that hooks may come in any order."""

import hashlib
import threading
import time
from collections import OrderedDict
from urllib.parse import urlsplit

__all__ = ["Spans"]

INTERNAL, CLIENT = 1, 3
FAREWELL_S = 2.0
REMEMBERED = 1024
"""Turns and sub-agents that are known at a time."""


class Spans:
    """Args: `exporter`: takes spans (`add`), and sends them (`send`)."""

    def __init__(self, exporter):
        self._exporter = exporter
        self._lock = threading.Lock()  # hooks come from several workers
        self._begun = OrderedDict()
        self._parents = OrderedDict()

    def pre_llm_call(self, *, turn_id="", session_id="", **kwargs):
        """A turn begins."""
        _remember(self._lock, self._begun, turn_id, time.time())

    def subagent_start(self, *, parent_turn_id="", child_session_id="", **kwargs):
        """A turn has a sub-agent work: its turns belong to the same trace."""
        _remember(self._lock, self._parents, child_session_id, parent_turn_id)

    def post_api_request(self, *, usage=None, response_model="", finish_reason="", **call):
        """The model has answered."""
        usage = usage or {}
        self._model_call(
            call,
            {
                "gen_ai.response.model": response_model,
                "gen_ai.response.finish_reasons": [finish_reason] if finish_reason else [],
                "gen_ai.usage.input_tokens": usage.get("input_tokens", usage.get("prompt_tokens")),
                "gen_ai.usage.output_tokens": usage.get("output_tokens", usage.get("completion_tokens")),
            },
        )

    def api_request_error(self, *, error=None, reason="", status_code=None, **call):
        """An attempt has failed; the text may quote anything and stays here."""
        kind = str((error or {}).get("type") or reason or "error")
        self._model_call(call, {"error.type": kind, "http.response.status_code": status_code}, failed=kind)

    def post_tool_call(
        self, *, tool_name="", tool_call_id="", turn_id="", session_id="", duration_ms=0, status="ok", **kwargs
    ):
        """A tool has run."""
        failed = "" if status == "ok" else str(kwargs.get("error_type") or status)
        end = time.time()
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool_name,
            "gen_ai.tool.call.id": tool_call_id,
            "gen_ai.tool.type": "function",
            "gen_ai.conversation.id": session_id,
            "error.type": failed,
        }
        begin = end - (duration_ms or 0) / 1000
        self._add(turn_id, session_id, f"execute_tool {tool_name}", INTERNAL, begin, end, attributes, failed)

    async def on_session_end(
        self, *, turn_id="", session_id="", model="", platform="", completed=True, interrupted=False, **kwargs
    ):
        """A turn has ended: its own span, and everything is sent."""
        with self._lock:
            begin = self._begun.pop(turn_id, None)
        if begin is not None:
            failed = "interrupted" if interrupted else "" if completed else "not_completed"
            attributes = {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": "hermes-agent",
                "gen_ai.conversation.id": session_id,
                "gen_ai.request.model": model,
                "hermes.platform": platform,
                "error.type": failed,
            }
            above = self._above(session_id)
            self._exporter.add(
                _span(
                    self._trace(turn_id, session_id),
                    _id(turn_id, 8),
                    _id(above, 8) if above else "",
                    "invoke_agent hermes-agent",
                    INTERNAL,
                    begin,
                    time.time(),
                    attributes,
                    failed,
                )
            )
        self._exporter.send()

    async def on_session_finalize(self, **kwargs):
        """The process may end: what was sent may arrive."""
        await self._exporter.sent(FAREWELL_S)

    def _model_call(self, call, more, failed=""):
        end = call.get("ended_at") or time.time()
        begin = call.get("started_at") or end - (call.get("api_duration") or 0)
        session_id, model = call.get("session_id", ""), call.get("model", "")
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": call.get("provider"),
            "gen_ai.request.model": model,
            "gen_ai.conversation.id": session_id,
            "server.address": urlsplit(call.get("base_url") or "").hostname,
            **more,
        }
        self._add(call.get("turn_id", ""), session_id, f"chat {model}", CLIENT, begin, end, attributes, failed)

    def _add(self, turn_id, session_id, name, kind, begin, end, attributes, failed):
        own = hashlib.sha256(f"{name} {begin} {end} {attributes}".encode()).hexdigest()[:16]
        trace = self._trace(turn_id, session_id)
        self._exporter.add(_span(trace, own, _id(turn_id, 8), name, kind, begin, end, attributes, failed))

    def _above(self, session_id):
        with self._lock:
            return self._parents.get(session_id, "")

    def _trace(self, turn_id, session_id):
        return _id(self._above(session_id) or turn_id, 16)


def _remember(lock, known, key, value):
    with lock:
        known[key] = value
        while len(known) > REMEMBERED:
            known.popitem(last=False)


def _id(text, size):
    return hashlib.sha256(f"hermes {text}".encode()).hexdigest()[: 2 * size]


def _span(trace, own, parent, name, kind, begin, end, attributes, failed):
    """Return a span as OTLP's JSON has it."""
    span = {
        "traceId": trace,
        "spanId": own,
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(int(begin * 1e9)),
        "endTimeUnixNano": str(int(max(begin, end) * 1e9)),
        "attributes": [{"key": key, "value": _value(value)} for key, value in attributes.items() if value],
        "status": {"code": 2, "message": failed} if failed else {"code": 0},
    }
    return {**span, "parentSpanId": parent} if parent else span


def _value(value):
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": str(value)[:500]}
