"""HTTP server: OpenAI's API, health and metrics, webhooks. `docs/operator/http.md` is its manual.

Importing this package does not import uvicorn; `http_server.serve` does.
"""

from hermes_agent.server.app import build
from hermes_agent.server.authentication import KEY_NAME, file_key, with_key
from hermes_agent.server.conversations import AgentProtocol, ConversationProtocol, PluginStatusProtocol
from hermes_agent.server.http_server import serve
from hermes_agent.server.settings import HttpSettings, read_settings

__all__ = [
    "KEY_NAME",
    "AgentProtocol",
    "ConversationProtocol",
    "PluginStatusProtocol",
    "HttpSettings",
    "build",
    "file_key",
    "read_settings",
    "serve",
    "with_key",
]
