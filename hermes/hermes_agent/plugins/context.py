"""`ctx`: the interface to the host that a plugin receives in `register(ctx)`.

A plugin may keep it until the process ends. Source: plugin contract §2, §4.2, §7; contract of 0.23 §6.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from hermes_agent.config.home import profile_name
from hermes_agent.plugins.capabilities import TOOL, granted_names, has_capability
from hermes_agent.plugins.context_registrations import PluginRegistrations
from hermes_agent.plugins.handles import registers
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.memory_context import HiddenFromProbes
from hermes_agent.plugins.plugin_config import get_config, set_config
from hermes_agent.plugins.plugin_data import PluginState
from hermes_agent.plugins.tool_access import dispatch_tool, inject_message

if TYPE_CHECKING:
    import asyncio

    from hermes_agent.cron.current_run import CronExecution
    from hermes_agent.plugins.llm_client import PluginLlm
    from hermes_agent.plugins.platform_actions import PlatformActions
    from hermes_agent.plugins.subagent_lifecycle import SubagentLifecycle


class _MadeByTheHost(type):
    """Type of the context: a call in upstream's form finds a context, as only the host makes them."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], PluginManifest):
            return cls._kept(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def _kept(cls, manifest: PluginManifest, manager: Any) -> Any:
        return manager.context_of(manifest)


class PluginContext(PluginRegistrations, metaclass=_MadeByTheHost):
    """The context of one plugin: its registrations, and the services that the host gives it.

    `PluginContext(manifest, manager)`, upstream's form, returns the context that the host keeps: published memory
    plugins call it for the model, which the context of a memory plugin lacks.
    """

    is_isolated = False
    """Whether the plugin runs in a process of its own: then only granted tools are called."""

    @property
    def profile_name(self) -> str:
        """`default`, or the profile's name if the home is `~/.hermes/profiles/NAME`, else `custom`."""
        return profile_name(self._services.home)

    @property
    def llm(self) -> PluginLlm:
        """The interface to the model; the same object at every access."""
        from hermes_agent.plugins.llm_client import PluginLlm  # few plugins call the model

        key = self.plugin_id
        return self._cached(
            "_llm",
            lambda: PluginLlm(key, self._services, partial(self._services.account.llm, key), self._services.hooks),
        )

    register_memory_provider = HiddenFromProbes(PluginRegistrations.register_memory_provider)

    def has_plugin(self, plugin_id: str) -> bool:
        """Return whether another plugin of that key or name runs."""
        record = self._manager.find(str(plugin_id))
        return record is not None and record.enabled

    def has_capability(self, capability: str) -> bool:
        """Return whether the operator granted a capability; False if that cannot be determined."""
        return has_capability(self._services.config.values, self.manifest, capability)

    def get_config(self, key: str | None = None, default: Any = None) -> Any:
        """Return a value of `plugins.entries.<id>.settings`, or `default`; dots lead into mappings.

        Args:
            key: without one, all settings are returned, or `default` if there are none.

        Raises:
            ValueError: the key is unusable.
        """
        return get_config(self._services.config.values, self.manifest, key, default)

    def set_config(self, key: str, value: Any) -> None:
        """Write a value into `plugins.entries.<id>.settings` of `config.yaml`; comments and other keys stay.

        Raises:
            ValueError: the key is unusable, or the config rejects the value.
            PermissionError: an administrator manages the key or the file.
        """
        set_config(self._services.home, self.manifest, key, value)
        self._services.reread_config()

    @property
    def state(self) -> PluginState:
        """A durable JSON object of this plugin; it survives updates and removal."""
        return self._cached("_state", lambda: PluginState(self.plugin_id, lambda: self._services.home))

    @property
    def platform_actions(self) -> PlatformActions:
        """Actions on chats as the bot; each needs the capability "gateway.platform_actions"."""
        from hermes_agent.plugins.platform_actions import PlatformActions  # few plugins act on chats

        return self._cached("_platform_actions", lambda: PlatformActions(self._services, self.manifest))

    @property
    def subagent_lifecycle(self) -> SubagentLifecycle:
        """Subagents of this plugin: start, watch, steer and cancel them; a start needs a running turn."""
        from hermes_agent.plugins.subagent_lifecycle import SubagentLifecycle  # few plugins start subagents

        return self._cached("_subagents", lambda: SubagentLifecycle(self._services, self.manifest))

    @staticmethod
    def current_cron_execution() -> CronExecution | None:
        """Return the run of a scheduled job that this code works for, or None; None in a subagent."""
        from hermes_agent.cron.current_run import current_cron_execution  # few plugins ask

        return current_cron_execution()

    def emit(self, event: str, payload: dict[str, Any] | None = None) -> int:
        """Publish the event `<id>:EVENT` to other plugins and return the number of subscribers.

        Raises:
            ValueError: the name is empty or has a `:`.
            TypeError: the payload is neither a dict nor None.
        """
        return self._services.extensions.events.emit(self.plugin_id, event, payload)

    @registers
    def subscribe(self, event: str, callback: Callable[..., Any]) -> None:
        """Call `callback` with the payload as keywords for each event `PLUGIN:NAME`.

        Raises:
            ValueError: the event has no such name.
            TypeError: the callback is not callable.
        """
        stop = self._services.extensions.events.subscribe(self.plugin_id, event, callback)
        self.ledger.add("subscription", event, stop, staged=False)

    def spawn_task(self, coro: Coroutine[Any, Any, Any], *, name: str | None = None) -> asyncio.Task[Any]:
        """Start a task on the running event loop; it is cancelled when the plugin is unloaded.

        Raises:
            TypeError: `coro` is no coroutine.
            RuntimeError: no event loop runs in this thread.
        """
        from hermes_agent.core.tasks import spawn_task  # asyncio, which a listing does not need

        task, cancel = spawn_task(self.plugin_id, coro, name)
        self.ledger.add("task", task.get_name(), cancel, staged=False)
        return task

    def call_mcp(
        self, server: str, tool: str, arguments: Mapping[str, Any] | None = None, timeout: float = 30
    ) -> dict[str, Any]:
        """Call a tool of an MCP server of the config; the result has `ok`, and `result` or `error`.

        Raises:
            PermissionError: the operator did not allow this server for the plugin.
        """
        from hermes_agent.plugins.mcp_access import call_mcp  # few plugins call MCP servers

        return call_mcp(self._services, self.manifest, server, tool, arguments, timeout)

    def inject_message(
        self,
        content: str,
        role: str = "user",
        *,
        session_key: str | None = None,
        origin: Mapping[str, Any] | None = None,
        session_id: str = "",
    ) -> bool:
        """Add a message to a conversation, from any thread; return False if there is none.

        In the console the running turn is interrupted and the message starts the next one. In any other session the
        running turn adds it to its next model request; if no turn runs, the next turn does.

        Args:
            role: a role other than `user` is written before the text: `[role] content`.
            session_key: key of a chat that has a session; the operator must set `allow_gateway_injection`.
            origin: `SessionSource.to_dict()` of a chat; a session is continued or started there; as `session_key`.
            session_id: extension: a session of this process; by default the session that the caller works for.
        """
        return inject_message(self._services, self.manifest, content, role, session_id, session_key, origin)

    def dispatch_tool(self, tool_name: str, args: dict[str, Any] | None = None, **kwargs: Any) -> str:
        """Call any tool as the model does: with hooks, approval, redaction and size limit.

        Args:
            kwargs: passed to the handler (`parent_agent`, …).
        """
        refusal = self._tool_refusal if self.is_isolated or self.manifest.capabilities else None
        return dispatch_tool(self._services, self.manifest.key, tool_name, args, kwargs, refusal=refusal)

    def _tool_refusal(self, name: str) -> str:
        """Return why this plugin may not call a tool, or ""; its own tools are always allowed."""
        declares = any(str(each).startswith(f"{TOOL}:") for each in self.manifest.capabilities)
        if not (self.is_isolated or declares) or self._services.tools.owner(name) == self.manifest.key:
            return ""
        granted = granted_names(self._services.config.values, self.manifest, TOOL)
        if name in granted or "*" in granted:
            return ""
        key = self.manifest.key
        return (
            f"plugin `{key}` may not call the tool `{name}`: add `{TOOL}:{name}` to"
            f" plugins.entries.{key}.granted_capabilities in config.yaml to allow it"
        )
