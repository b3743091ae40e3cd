"""A memory service over HTTP. The API is in docs/operator/memory-http.md."""

from __future__ import annotations

import json
from typing import Any

from hermes_agent.contracts.memory import MemoryProvider

from .service import MemoryServiceClient, MemoryServiceUnreachable, settings, write_settings

__all__ = ["HttpMemory", "register"]

_TEXT = {"type": "string"}
TOOLS: dict[str, dict[str, Any]] = {
    "memory_recall": {
        "description": "Search the memory service for what is known from earlier conversations.",
        "parameters": {
            "type": "object",
            "properties": {"query": _TEXT, "limit": {"type": "integer", "minimum": 1, "maximum": 50}},
            "required": ["query"],
        },
    },
    "memory_store": {
        "description": "Keep a fact in the memory service.",
        "parameters": {"type": "object", "properties": {"text": _TEXT}, "required": ["text"]},
    },
    "memory_delete": {
        "description": "Delete a memory, by the id that memory_recall shows.",
        "parameters": {"type": "object", "properties": {"id": _TEXT}, "required": ["id"]},
    },
}
FIELDS: list[dict[str, Any]] = [
    {"key": "url", "description": "Address of the service", "required": True, "env_var": "HTTP_MEMORY_URL"},
    {"key": "api_key", "description": "Its key", "secret": True, "env_var": "HTTP_MEMORY_KEY"},
    {"key": "recall_count", "description": "Memories that come with a message, at most", "default": "5"},
]


class HttpMemory(MemoryProvider):
    """One session at the service."""

    separates_people = True

    def __init__(self) -> None:
        self._session = ""
        self._service: MemoryServiceClient | None = None
        self._count = 5

    @property
    def name(self) -> str:
        """What the config calls it."""
        return "http-memory"

    def is_available(self) -> bool:
        """Return whether an address is set; no request is sent."""
        return bool(settings()["url"])

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Know the session and the person. The service is asked for the first time when it is needed.

        Raises:
            ValueError: the address cannot be used.
        """
        given = settings(str(kwargs.get("hermes_home") or ""))
        self._session = session_id
        self._count = int(given["recall_count"])
        self._service = MemoryServiceClient(given["url"], given["api_key"], user=str(kwargs.get("user_id") or "owner"))

    def system_prompt_block(self) -> str:
        """Return the paragraph of the system prompt on this memory."""
        return "A memory service knows earlier conversations: memory_recall searches it, memory_store keeps a fact."

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return its three tools."""
        return [{"name": name, **schema} for name, schema in TOOLS.items()]

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer a call, as JSON text; a service that does not answer is an error for the model."""
        service = self._open()
        try:
            if tool_name == "memory_recall":
                found = service.recall(str(args.get("query") or ""), int(args.get("limit") or 10), self._session)
                return json.dumps({"memories": found}, ensure_ascii=False)
            if tool_name == "memory_store":
                return json.dumps({"id": service.store(str(args.get("text") or ""))})
            if tool_name == "memory_delete":
                service.delete(str(args.get("id") or ""))
                return json.dumps({"deleted": True})
        except MemoryServiceUnreachable as exc:
            return json.dumps({"error": str(exc)})
        raise NotImplementedError(f"memory provider '{self.name}' has no tool '{tool_name}'")

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Return what the service knows about a message."""
        if self._count <= 0:
            return ""
        return "\n".join(f"- {memory['text']}" for memory in self._open().recall(query, self._count, self._session))

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
        turn_author: dict[str, Any] | None = None,
    ) -> None:
        """Send a turn."""
        turn = [{"role": "user", "content": user_content}, {"role": "assistant", "content": assistant_content}]
        self._open().learn(turn, self._session)

    def on_memory_write(self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None) -> None:
        """Send what the agent noted."""
        if action != "remove":
            self._open().store(content)

    def on_session_switch(self, new_session_id: str, **kwargs: Any) -> None:
        """Go on in another session."""
        self._session = new_session_id

    def get_config_schema(self) -> list[dict[str, Any]]:
        """Return its settings."""
        return FIELDS

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Keep what is not secret in `http-memory.json` of the home."""
        write_settings(values, hermes_home)

    def _open(self) -> MemoryServiceClient:
        if self._service is None:
            raise RuntimeError("the memory service is not known yet: initialize() comes first")
        return self._service


def register(ctx: Any) -> None:
    """Register the provider."""
    ctx.register_memory_provider(HttpMemory())
