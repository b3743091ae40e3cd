"""OpenClaw's config as settings and variables of this program: which key becomes which.

Every key of `openclaw.json` is either in the table of this module or named in the report.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hermes_agent.app.imports.content import HomeContent, Setting
from hermes_agent.config.yaml_reader import read_text

PROVIDERS = {"google": "gemini", "moonshot": "kimi", "github-copilot": "copilot", "amazon-bedrock": "bedrock"}
"""Providers that have another name here."""
_TOKENS = {
    ("telegram", "botToken"): "TELEGRAM_BOT_TOKEN",
    ("discord", "token"): "DISCORD_BOT_TOKEN",
    ("slack", "botToken"): "SLACK_BOT_TOKEN",
    ("slack", "appToken"): "SLACK_APP_TOKEN",
}
_TRANSPORTS = {
    "openai-completions": "chat_completions",
    "openai-responses": "codex_responses",
    "anthropic-messages": "anthropic_messages",
}
_MCP_KEYS = ("command", "args", "env", "cwd", "url", "headers", "transport")
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
NO_COUNTERPART = "no setting of this program corresponds to it"
_REFERENCE = "it refers to a secret in another place: set {} in .env"

Path = tuple[str, ...]


def parse_json5(text: str) -> dict[str, Any]:
    """Return the object of a JSON file that may have comments, trailing commas and unquoted keys.

    Raises:
        ValueError: it is none; the text says where.
    """
    plain = "".join(_without_comments(text))
    try:
        value = json.loads(re.sub(r",(\s*[}\]])", r"\1", plain))
    except ValueError:
        document = read_text(plain, "openclaw.json")
        if document.findings:
            raise ValueError(str(document.findings[0])) from None
        value = document.value
    if not isinstance(value, dict):
        raise ValueError("it holds no object")
    return value


def _without_comments(text: str) -> Iterator[str]:
    pattern = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|//[^\n]*|/\*.*?\*/|\t|[^\"'/\t]+|.", re.DOTALL)
    for match in pattern.finditer(text):
        piece = match[0]
        yield " " if piece == "\t" or piece.startswith(("//", "/*")) else piece


class OpenClawConfig:
    """Takes the keys of a config one by one; what is not taken is left with a reason."""

    def __init__(self, values: dict[str, Any], path: str, content: HomeContent) -> None:
        self._values = values
        self._path = path
        self._content = content
        self._config: dict[str, Any] = {}
        self._variables: dict[str, Any] = {}
        self._taken: set[Path] = set()

    def convert(self) -> None:
        """Add the settings and variables to the content."""
        self._take_model()
        self._take_providers()
        self._take_channels()
        self._take_servers()
        self._take_variables()
        for key in _leaf_paths(self._values):
            if not any(key[:end] in self._taken for end in range(1, len(key) + 1)):
                self._content.leave("config", ".".join(key), NO_COUNTERPART, self._path)
        if self._config:
            self._content.config.append(Setting(self._config, self._path))
        if self._variables:
            self._content.env.append(Setting(self._variables, self._path))

    def _find(self, *path: str) -> Any:
        here: Any = self._values
        for part in path:
            here = here.get(part) if isinstance(here, dict) else None
        return here

    def _take_model(self) -> None:
        for path in (("agents", "defaults", "model"), ("agent", "model")):
            value = self._find(*path)
            primary = value.get("primary") if isinstance(value, dict) else value
            if not isinstance(primary, str) or "model" in self._config:
                continue
            self._taken.add((*path, "primary") if isinstance(value, dict) else path)
            provider, name = split_model(primary)
            self._config["model"] = {"provider": provider, "default": name} if provider else {"default": name}
            fallbacks = value.get("fallbacks") if isinstance(value, dict) else None
            if isinstance(fallbacks, list) and fallbacks:
                self._taken.add((*path, "fallbacks"))
                pairs = [split_model(str(one)) for one in fallbacks]
                self._config["fallback_providers"] = [{"provider": one, "model": name} for one, name in pairs]

    def _take_providers(self) -> None:
        providers = self._find("models", "providers")
        for name, value in providers.items() if isinstance(providers, dict) else ():
            if not isinstance(value, dict) or not value.get("baseUrl"):
                continue
            start = ("models", "providers", name)
            block = {"base_url": value["baseUrl"]}
            self._taken.add((*start, "baseUrl"))
            if transport := _TRANSPORTS.get(str(value.get("api"))):
                block["transport"] = transport
                self._taken.add((*start, "api"))
            names = [str(one["id"]) for one in value.get("models") or () if isinstance(one, dict) and one.get("id")]
            if names:
                block["models"] = names
                self._taken.add((*start, "models"))
            self._config.setdefault("providers", {})[name] = block
            self._secret((*start, "apiKey"), f"{re.sub(r'[^A-Z0-9]', '_', name.upper())}_API_KEY")

    def _take_channels(self) -> None:
        channels = self._find("channels")
        for name, value in channels.items() if isinstance(channels, dict) else ():
            if not isinstance(value, dict):
                continue
            start = ("channels", name)
            block: dict[str, Any] = {}
            for key in value:
                if variable := _TOKENS.get((name, key)):
                    self._secret((*start, key), variable)
            if isinstance(value.get("enabled"), bool):
                block["enabled"] = value["enabled"]
                self._taken.add((*start, "enabled"))
            allowed = value.get("allowFrom")
            if isinstance(allowed, list):
                ids = [str(one).removeprefix(f"{name}:") for one in allowed if str(one) != "*"]
                self._taken.add((*start, "allowFrom"))
                if len(ids) < len(allowed):
                    self._content.leave(
                        "config", f"channels.{name}.allowFrom", "`*` lets everyone in: decide it here again", self._path
                    )
                block |= {"allow_from": ids} if ids else {}
            mention = self._find(*start, "groups", "*", "requireMention")
            if isinstance(mention, bool):
                block["require_mention"] = mention
                self._taken.add((*start, "groups", "*", "requireMention"))
            if block:
                self._config.setdefault("platforms", {})[name] = block

    def _take_servers(self) -> None:
        servers = self._find("mcp", "servers")
        for name, value in servers.items() if isinstance(servers, dict) else ():
            block = {key: item for key, item in value.items() if key in _MCP_KEYS} if isinstance(value, dict) else {}
            if "command" in block or "url" in block:
                self._config.setdefault("mcp_servers", {})[name] = block
                self._taken |= {("mcp", "servers", name, key) for key in block}

    def _take_variables(self) -> None:
        for start in (("env", "vars"), ("env",)):
            values = self._find(*start)
            for name, value in values.items() if isinstance(values, dict) else ():
                if _NAME.fullmatch(name) and isinstance(value, str):
                    self._secret((*start, name), name)

    def _secret(self, path: Path, variable: str) -> None:
        """Take a secret as a variable; a reference to one stays there."""
        value = self._find(*path)
        if value in (None, ""):
            return
        self._taken.add(path)
        if not isinstance(value, str) or value.startswith("${"):
            self._content.leave("config", ".".join(path), _REFERENCE.format(variable), self._path)
        else:
            self._variables[variable] = value


def split_model(text: str) -> tuple[str, str]:
    """Return provider and model of `provider/model`; the provider is "" without a slash."""
    provider, slash, name = text.partition("/")
    return (PROVIDERS.get(provider, provider), name) if slash else ("", text)


def _leaf_paths(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaf_paths(item, (*path, str(key)))
    elif path:
        yield path
