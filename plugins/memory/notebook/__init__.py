"""A memory in a SQLite file: every turn is an entry, and what fits a message is found by its words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes_agent.contracts.memory import MemoryProvider

from .entries import NotebookStore
from .settings import FIELDS, NotebookSettings

__all__ = ["Notebook", "register"]

BLOCK = (
    "Earlier conversations are in a notebook. Passages that fit come with the user's messages; notebook_search looks"
    " further, notebook_write keeps something on purpose, notebook_forget takes an entry out."
)
_TEXT = {"type": "string"}
TOOLS: dict[str, dict[str, Any]] = {
    "notebook_search": {
        "description": "Search what was said and noted in earlier conversations.",
        "parameters": {
            "type": "object",
            "properties": {"query": _TEXT, "limit": {"type": "integer", "minimum": 1, "maximum": 50}},
            "required": ["query"],
        },
    },
    "notebook_write": {
        "description": "Keep a fact for later conversations.",
        "parameters": {"type": "object", "properties": {"text": _TEXT}, "required": ["text"]},
    },
    "notebook_forget": {
        "description": "Take an entry out, by the id that notebook_search shows.",
        "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
    },
}


class Notebook(MemoryProvider):
    """One session's view of the notebook: the entries of one person."""

    separates_people = True

    def __init__(self) -> None:
        self._session = ""
        self._entries: NotebookStore | None = None
        self._settings = NotebookSettings()

    @property
    def name(self) -> str:
        """What the config calls it."""
        return "notebook"

    def is_available(self) -> bool:
        """Say whether SQLite has full-text search."""
        return NotebookStore.can_search()

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Open the notebook of the user of the session."""
        home = Path(kwargs["hermes_home"])
        self._session = session_id
        self._settings = NotebookSettings.read(home)
        self._entries = NotebookStore(
            home / "notebook.db", str(kwargs.get("user_id") or ""), self._settings.max_entries
        )

    def system_prompt_block(self) -> str:
        """Return the paragraph of the system prompt on this memory."""
        return BLOCK

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return its three tools."""
        return [{"name": name, **schema} for name, schema in TOOLS.items()]

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer a call, as JSON text."""
        import json

        entries = self._open()
        if tool_name == "notebook_search":
            found = entries.search(str(args.get("query") or ""), int(args.get("limit") or 10))
            return json.dumps({"entries": [entry._asdict() for entry in found]}, ensure_ascii=False)
        if tool_name == "notebook_write":
            text = str(args.get("text") or "").strip()
            if not text:
                return json.dumps({"error": "text is empty: say what is to be kept"})
            return json.dumps({"id": entries.add("note", text, self._session)})
        if tool_name == "notebook_forget":
            return json.dumps({"forgotten": entries.remove(int(args.get("id") or 0))})
        raise NotImplementedError(f"memory provider '{self.name}' has no tool '{tool_name}'")

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Return the entries that fit a message best; what this session said is in front of the model anyway."""
        if self._settings.recall_count <= 0:
            return ""
        found = self._open().search(query, self._settings.recall_count, without=self._session)
        return "\n".join(f"- {entry.day}: {entry.text[: self._settings.recall_chars]}" for entry in found)

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
        turn_author: dict[str, Any] | None = None,
    ) -> None:
        """Write a turn down."""
        if user_content.strip():
            text = f"User: {user_content.strip()}\nAgent: {assistant_content.strip()}"
            self._open().add("turn", text, self._session)

    def on_memory_write(self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None) -> None:
        """Write down what the agent noted."""
        if action != "remove":
            self._open().add("note", content, self._session)

    def on_session_switch(self, new_session_id: str, **kwargs: Any) -> None:
        """Go on in another session: what the last one said may be recalled now."""
        self._session = new_session_id

    def get_config_schema(self) -> list[dict[str, Any]]:
        """Return its settings."""
        return FIELDS

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Keep the settings in `notebook.json` of the home."""
        NotebookSettings.write(Path(hermes_home), values)

    def shutdown(self) -> None:
        """Close the file."""
        if self._entries is not None:
            self._entries.close()
            self._entries = None

    def _open(self) -> NotebookStore:
        if self._entries is None:
            raise RuntimeError("the notebook is not open: initialize() comes first")
        return self._entries


def register(ctx: Any) -> None:
    """Register the provider."""
    ctx.register_memory_provider(Notebook())
