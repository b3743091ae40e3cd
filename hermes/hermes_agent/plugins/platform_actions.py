"""Actions of plugins on chats: `ctx.platform_actions`. Source: plugin contract of 0.23 §6.5."""

from __future__ import annotations

import logging
from typing import Any

from hermes_agent.plugins.capabilities import PLATFORM_ACTIONS, has_capability
from hermes_agent.plugins.host_services import HostServices
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.runtime.bridge import Bridge

logger = logging.getLogger(__name__)

LIMIT_S = 30.0


class PlatformActions:
    """Reactions and titles of threads, as the bot. No method raises.

    The result is `{"ok": True, "action": …}`, or `{"ok": False, "error": code, "detail": text}`.
    """

    def __init__(self, services: HostServices, manifest: PluginManifest) -> None:
        self._services, self._manifest = services, manifest

    async def add_reaction(self, platform: str, chat_id: str, message_id: str, emoji: str) -> dict[str, Any]:
        """React to a message."""
        return await self._act("add_reaction", platform, chat_id=chat_id, message_id=message_id, emoji=emoji)

    async def set_thread_title(self, platform: str, chat_id: str, thread_id: str, title: str) -> dict[str, Any]:
        """Rename a thread or topic."""
        return await self._act("set_thread_title", platform, chat_id=chat_id, thread_id=thread_id, title=title)

    async def _act(self, action: str, platform: str, **arguments: Any) -> dict[str, Any]:
        code, detail = await self._try(action, platform, arguments)
        logger.info(
            "platform action %s of plugin %s on %s: %s",
            *(action, self._manifest.key, platform, f"{code}: {detail}" if code else "done"),
            extra={"plugin": self._manifest.key},
        )
        return {"ok": False, "error": code, "detail": detail} if code else {"ok": True, "action": action}

    async def _try(self, action: str, platform: str, arguments: dict[str, Any]) -> tuple[str, str]:
        """Return the code of the error and its text; an empty code means success."""
        services = self._services
        if not has_capability(services.config.values, self._manifest, PLATFORM_ACTIONS, action):
            key = f"plugins.entries.{self._manifest.key}.granted_capabilities"
            return "capability_not_granted", f"add `{PLATFORM_ACTIONS}` to {key} in config.yaml"
        for name, value in {"platform": platform, **arguments}.items():
            if not isinstance(value, str) or not value.strip():
                return "invalid_argument", f"{name} is {value!r}: expected a text that is not empty"
        gateway = services.running_gateway()
        if gateway is None:
            return "gateway_unavailable", "this process serves no chat platforms"
        name = platform.strip().lower()
        if services.platforms.get(name) is None:
            return "unknown_platform", f"no plugin registers the platform {name!r}"
        try:
            adapter = gateway.connected_adapter(name)
        except LookupError as exc:
            return str(exc.args[0]), f"platform {name!r} is not connected"
        method = getattr(adapter, action, None)
        if not callable(method):
            return "unsupported_platform_action", f"platform {name!r} has no {action}"
        try:
            await _on_plugin_loop(services.bridge, method(**arguments))
        except Exception as exc:  # noqa: BLE001 - an error of the service, or of a plugin's adapter
            return "action_failed", f"{type(exc).__name__}: {exc}"
        return "", ""


async def _on_plugin_loop(bridge: Bridge, work: Any) -> Any:
    """Await a coroutine of an adapter on the loop of adapters, from any loop."""

    async def run() -> Any:
        return await work

    return await bridge.on_core(bridge.on_plugin(run(), deadline_s=LIMIT_S))
