"""The settings of one MCP server (`mcp_servers.NAME`), and the pause after its failures.

Source: plugin contract §9.1, §13 row 25.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from hermes_agent.config.schema import variables
from hermes_agent.config.settings import section
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import LazyNamedTuple

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class McpServerSettings(LazyNamedTuple):
    """The settings of one MCP server; times are in seconds, and 0 stands for no limit."""

    name: str
    plugin: str = ""
    """Key of the portable package with the server; empty for a server of the config."""
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = _NOTHING
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = _NOTHING
    sse: bool = False
    oauth: Mapping[str, Any] | None = None
    """None: the server needs no sign-in."""
    enabled: bool = True
    timeout_s: float = 300.0
    connect_timeout_s: float = 60.0
    keepalive_s: float = 180.0
    idle_timeout_s: float = 0.0
    max_lifetime_s: float = 0.0
    parallel: bool = False
    ssl_verify: bool | str = True
    client_cert: str = ""
    client_key: str = ""
    include: frozenset[str] = frozenset()
    """The only tools to use; empty: all."""
    exclude: frozenset[str] = frozenset()
    resources: bool = True
    prompts: bool = True
    sampling: Mapping[str, Any] = _NOTHING
    elicitation: Mapping[str, Any] = _NOTHING

    @classmethod
    def of(cls, name: str, values: Mapping[str, Any]) -> McpServerSettings:
        """Read a valid block of the config that has its defaults."""
        life = {**(values.get("lifecycle") or {}), **{k: v for k, v in values.items() if v is not None}}
        tools = values.get("tools") or {}
        return section(
            cls,
            values,
            timeout_s=values.get("timeout"),
            connect_timeout_s=values.get("connect_timeout"),
            keepalive_s=values.get("keepalive_interval"),
            parallel=values.get("supports_parallel_tool_calls"),
            name=name,
            plugin=str(values.get("plugin") or ""),
            args=tuple(map(str, values.get("args") or ())),
            env={k: _text(v) for k, v in (values.get("env") or {}).items()},
            headers={k: str(v) for k, v in (values.get("headers") or {}).items()},
            sse=_is_sse(values.get("transport"), str(values.get("url") or "")),
            oauth=values.get("oauth") or {} if values.get("auth") else None,
            idle_timeout_s=float(life.get("idle_timeout_seconds") or 0),
            max_lifetime_s=float(life.get("max_lifetime_seconds") or 0),
            include=frozenset(tools.get("include") or ()),
            exclude=frozenset(tools.get("exclude") or ()),
            resources=tools.get("resources", True) is not False,
            prompts=tools.get("prompts", True) is not False,
        )

    @property
    def owner(self) -> str:
        """The owner of its tools in the registry."""
        return f"mcp:{self.name}"

    @property
    def toolset(self) -> str:
        """The toolset of its tools (§4.8)."""
        return f"mcp-{self.name}"

    @property
    def location(self) -> str:
        """The program, or the address without its query, which may have a secret."""
        return self.command or self.url.partition("?")[0]

    @property
    def problem(self) -> str:
        """Why it cannot be connected, or ""."""
        key = f"mcp_servers.{self.name}"
        if bool(self.command) == bool(self.url):
            return f"{key} has {'both' if self.url else 'neither'} `command` and `url`: set one of them"
        if self.plugin:  # its texts are not expanded
            return ""
        texts = (self.command, *self.args, *self.env.values(), self.url, *self.headers.values())
        unset = [name for text in texts for name in variables(text)]
        return f"{key} needs {', '.join(dict.fromkeys(unset))}, which is not set: put it into .env" if unset else ""

    def takes(self, tool: str) -> bool:
        """Return whether a tool of the server is used."""
        return tool not in self.exclude and (not self.include or tool in self.include)


def servers_of(values: Mapping[str, Any] | None) -> dict[str, McpServerSettings]:
    """Return the servers of `mcp_servers`, by name."""
    return {name: McpServerSettings.of(name, block or {}) for name, block in (values or {}).items()}


def _is_sse(transport: object, url: str) -> bool:
    """Return whether a server speaks the older protocol, as addresses that end in `/sse` do."""
    return transport == "sse" or (not transport and urlsplit(url).path.endswith("/sse"))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


MOST_FAILURES = 3
PAUSE_S = 60.0


class FailurePause:
    """Counts the failures of one server in a row, and pauses its calls after several."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._failures = 0
        self._why = ""
        self._until = 0.0

    def check(self) -> None:
        """Check whether a call may run. After a pause one call may try; if it fails, the next pause starts.

        Raises:
            ToolFailed: the calls of the server pause.
        """
        left_s = self._until - time.monotonic()
        if left_s > 0:
            raise ToolFailed(
                f"the MCP server {self._name} failed {self._failures} times in a row (last: it {self._why}) and is "
                f"not asked for {left_s:.0f} s. Do not call its tools until then: go on without it, or tell the user."
            )

    def succeeded(self) -> None:
        """Record that the server answered."""
        self._failures, self._until = 0, 0.0

    def failed(self, why: str) -> bool:
        """Record a failure; return whether a pause starts."""
        self._failures += 1
        self._why = why
        if self._failures < MOST_FAILURES:
            return False
        self._until = time.monotonic() + PAUSE_S
        return True
