"""The HTTP front door: OpenAI's chat-completions API, health, one key. `docs/operator/http.md` is its manual.

Importing it does not load uvicorn: `serve` does.
"""

from hermes_agent.server.app import build
from hermes_agent.server.doors import AgentDoor, ConversationDoor, PluginDoor
from hermes_agent.server.key import KEY_NAME, file_key, with_key
from hermes_agent.server.run import serve
from hermes_agent.server.settings import ServerSettings, read_settings

__all__ = [
    "KEY_NAME",
    "AgentDoor",
    "ConversationDoor",
    "PluginDoor",
    "ServerSettings",
    "build",
    "file_key",
    "read_settings",
    "serve",
    "with_key",
]
