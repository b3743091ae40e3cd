"""The context of a plugin in a process of its own.

Registrations are made in this process, with the rules of every host, and declared to the agent, which registers
functions that call back. What a plugin asks of the agent is a call of a method there, with plain data. Source: plugin
contract of 0.23 §2.7.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from hermes_agent.core.calls import required_arguments
from hermes_agent.plugins.context import PluginContext
from hermes_agent.plugins.handles import PluginRegistration, registers
from hermes_agent.plugins.isolation.peer import CallTarget
from hermes_agent.plugins.isolation.references import Exchange
from hermes_agent.plugins.isolation.values import PluginHostUnsupported, encode
from hermes_agent.plugins.memory_context import HiddenFromProbes

logger = logging.getLogger(__name__)

AGENT = "agent"
"""Key of the services that the agent lends to the process of a plugin."""
SERVICES: Mapping[str, frozenset[str]] = {
    "": frozenset(
        {
            *("get_config", "set_config", "has_plugin", "has_capability", "emit", "dispatch_tool", "call_mcp"),
            *("inject_message", "current_cron_execution"),
        }
    ),
    "llm": frozenset({"complete", "complete_structured"}),
    "state": frozenset({"get", "set"}),
    "platform_actions": frozenset({"add_reaction", "set_thread_title"}),
    "subagent_lifecycle": frozenset({"launch", "status", "wait", "cancel", "steer", "result", "reconnect"}),
}
"""Methods of the agent's context that a plugin may call, by member; empty is the context itself."""
DECLARED = (
    *("register_tool", "register_hook", "register_middleware", "register_command", "register_skill"),
    *("register_web_search_provider", "register_tts_provider", "register_transcription_provider"),
    *("register_image_gen_provider", "register_video_gen_provider", "register_browser_provider"),
    *("register_terminal_environment_provider", "register_secret_source", "register_context_engine"),
    *("register_memory_provider", "register_auxiliary_task"),
    *("register_system_prompt_section", "register_redaction_patterns", "register_context_reference"),
    *("register_locale", "register_locale_dir", "register_automation_blueprint", "subscribe"),
)
"""Methods of the context that are declared to the agent."""
REFUSED = (
    *("register_platform", "register_platform_handler", "register_telegram_handler", "register_slack_action_handler"),
    *("register_dashboard_auth_provider", "register_approval_transport", "register_cron_scheduler"),
)
"""Methods that need the process of the agent (contract §2.7); a scheduler starts jobs with objects of the agent."""


def remedy(key: str) -> str:
    """Return what the operator does so that the agent loads a plugin in its own process.

    Args:
        key: key of the plugin.
    """
    alone = f"hermes config set plugins.entries.{key}.isolation in_process"
    return f"for this plugin alone run `{alone}`, or set plugins.isolation: in_process to load it"


class HostedService:
    """A member of the context of which the agent runs the methods."""

    def __init__(self, name: str, call: Callable[[str, str, Any, Any], Any]) -> None:
        self._name, self._call = name, call

    def __getattr__(self, name: str) -> Any:
        is_async = name.startswith("a") and name[1:] in SERVICES[self._name]
        method = name[1:] if is_async else name
        if method not in SERVICES[self._name]:
            raise AttributeError(f"`ctx.{self._name}` has no {name!r}")
        if not is_async and self._name != "platform_actions":
            return lambda *args, **kwargs: self._call(self._name, method, args, kwargs)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(self._call, self._name, method, args, kwargs)

        return call


class HostedState(HostedService):
    """`ctx.state`: values are kept by the agent, files in the private home of this process."""

    quota_bytes = 10 * 2**20

    def __init__(self, call: Callable[[str, str, Any, Any], Any], plugin_id: str, folder: Path) -> None:
        super().__init__("state", call)
        self.plugin_id, self._folder = plugin_id, folder

    @property
    def data_dir(self) -> Path:
        """The folder for files of the plugin."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder

    @property
    def path(self) -> Path:
        """The path at which the state would be; the agent keeps it."""
        return self._folder / "state.json"


class HostedContext(PluginContext):
    """The context of the plugin of this process; `exchange` connects it with the agent."""

    exchange: ClassVar[Exchange]
    is_closing: ClassVar[bool] = False
    """The agent ends this process, and undoes the registrations itself."""
    counts: ClassVar[Counter[str]] = Counter()
    declared: ClassVar[set[tuple[str, str]]] = set()
    """Method and name of each registration that the agent knows."""

    def call_agent(self, member: str, method: str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Call a method of the agent's context."""
        return self.exchange.call(CallTarget(AGENT, f"{member}.{method}"), args, kwargs)

    def declare(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Register the same in the agent; return what its method returns, True for a handle."""
        name = registration_name(method, args, kwargs)
        base = f"{method}:{name}"
        key = f"{base}:{self.counts[base]}"
        self.counts[base] += 1
        with self.exchange.naming(key):
            given = [encode(each, self.exchange) for each in args]
            named = {each: encode(value, self.exchange) for each, value in kwargs.items()}
        answer = self.exchange.call(CallTarget(AGENT, ".register"), (key, method, given, named), {})
        if answer is not None:
            self.declared.add((method, name))
        return (key, answer) if answer is not None else None

    @property
    def llm(self) -> Any:
        """The interface to the model; the agent makes the requests."""
        return self._cached("_llm", lambda: HostedService("llm", self.call_agent))

    @property
    def state(self) -> Any:
        """The durable JSON object of this plugin."""
        folder = super().state.data_dir
        return self._cached("_hosted_state", lambda: HostedState(self.call_agent, self.plugin_id, folder))

    @property
    def platform_actions(self) -> Any:
        """Actions on chats as the bot."""
        return self._cached("_actions", lambda: HostedService("platform_actions", self.call_agent))

    @property
    def subagent_lifecycle(self) -> Any:
        """Subagents of this plugin."""
        return self._cached("_lifecycle", lambda: HostedService("subagent_lifecycle", self.call_agent))

    def register_cli_command(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Skip a terminal command, with a warning."""
        text = (
            f"terminal command `hermes {name}` is skipped: the plugin runs in a process of its own;"
            f" {remedy(self.plugin_id)}"
        )
        logger.warning("Plugin '%s': %s", self.manifest.name, text)
        self.call_agent("", "note", (text,), {})

    def register_model_provider(self, profile: Any) -> NoReturn:
        """Refuse a model profile.

        Raises:
            PluginHostUnsupported: always.
        """
        raise PluginHostUnsupported(
            f"the model provider of plugin `{self.plugin_id}` cannot run in a process of its own;"
            f" {remedy(self.plugin_id)}"
        )

    @registers
    def subscribe(self, event: str, callback: Callable[..., Any]) -> None:
        """Call `callback` for each event `PLUGIN:NAME`; the agent delivers them.

        Raises:
            ValueError: the event has no such name.
            TypeError: the callback is not callable.
        """
        declared = self.declare("subscribe", (event, callback), {})
        if declared is not None:
            self.ledger.add("subscription", event, lambda: self.withdraw(declared[0]), staged=False)

    def withdraw(self, key: str) -> None:
        """Undo a registration in the agent."""
        if not self.is_closing:
            with contextlib.suppress(ConnectionError):
                self.call_agent("", "dispose", (key,), {})


def registration_name(method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return the name of a registration for its key."""
    first = args[0] if args else next(iter(kwargs.values()), "")
    for name in ("name", "hook_name", "kind", "id", "key", "lang", "prefix"):
        if name in kwargs:
            first = kwargs[name]
            break
    if isinstance(first, str | Path):
        return str(first)
    return str(getattr(first, "name", "") or getattr(first, "prefix", "") or type(first).__name__)


def _declaring(name: str) -> Callable[..., Any]:
    """Return the method that registers in this process and in the agent."""
    original = getattr(PluginContext, name)

    @functools.wraps(original)
    def method(self: HostedContext, *args: Any, **kwargs: Any) -> Any:
        handle = original(self, *args, **kwargs)
        if handle is None:
            return None
        handles = [each for each in (handle if isinstance(handle, list) else [handle])
                   if isinstance(each, PluginRegistration)]  # fmt: skip
        if name == "register_command":
            args = (args[0], _with_context(self, args[1]), *args[2:]) if len(args) > 1 else args
            kwargs = {k: _with_context(self, v) if k == "handler" else v for k, v in kwargs.items()}
        try:
            declared = self.declare(name, args, kwargs)
        except BaseException:
            for each in handles:
                each.dispose()
            raise
        if declared is None:
            for each in handles:
                each.dispose()
            return None
        if handles:
            handles[0].also(lambda: self.withdraw(declared[0]))
        return handle

    return method


def _with_context(ctx: HostedContext, handler: Any) -> Any:
    """Return a handler that is given the context, if it requires two arguments."""
    if callable(handler) and required_arguments(handler) == 2:
        return functools.partial(handler, ctx)
    return handler


def _refusing(name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(PluginContext, name))
    def method(self: HostedContext, *args: Any, **kwargs: Any) -> NoReturn:
        raise PluginHostUnsupported(
            f"{name}() is not possible for plugin '{self.plugin_id}', which runs in a process of its own;"
            f" {remedy(self.plugin_id)}"
        )

    return method


def _asking(name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(PluginContext, name))
    def method(self: HostedContext, *args: Any, **kwargs: Any) -> Any:
        return self.call_agent("", name, args, kwargs)

    return method


for _name in DECLARED:
    if _name == "register_memory_provider":
        setattr(HostedContext, _name, HiddenFromProbes(_declaring(_name)))
    elif _name != "subscribe":
        setattr(HostedContext, _name, _declaring(_name))
for _name in REFUSED:
    setattr(HostedContext, _name, _refusing(_name))
for _name in SERVICES[""]:
    setattr(HostedContext, _name, _asking(_name))
