"""Access to the host for upstream's module-level names, event-loop helpers, and upstream's `AIAgent`.

`host()` returns the process's host. `AIAgent` is upstream's `run_agent.AIAgent`, a conversation that a plugin or a
script starts. Source: plugin contract §11.2, §11.3.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from hermes_agent.agent.conversation import Conversation
from hermes_agent.core.messages import Message, fold, new_session_id
from hermes_agent.core.registry import staged_store
from hermes_agent.host import Host, current
from hermes_agent.policy import NoApprover

Part = TypeVar("Part")
R = TypeVar("R")
P = ParamSpec("P")

_may_build = False


def allow_building() -> None:
    """Let the first use of a name build a host; for scripts, which have no other code that builds one."""
    global _may_build
    _may_build = True


def host() -> Host:
    """Return the process's host; a script builds it at the first call.

    Raises:
        RuntimeError: there is no host, and this process may not build one.
    """
    try:
        return current()
    except RuntimeError:
        if not _may_build:
            raise
    built = Host.build()
    built.credentials.export(os.environ)
    return built


def host_or_none(part: Callable[[Host], Part]) -> Part | None:
    """Return a part of the host, or None if there is no host.

    While a plugin is loaded, it is the staged copy to which that plugin registers.
    """
    try:
        return staged_store(part(host()))
    except RuntimeError:
        return None


def of_host(part: Callable[[Host], Part], method: Callable[Concatenate[Part, P], R]) -> Callable[P, R]:
    """Return a function that calls a method of a part of the host; the host is looked up at each call."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound: Callable[P, R] = getattr(part(host()), method.__name__)  # by name: a plugin may have patched the method
        return bound(*args, **kwargs)

    signature = inspect.signature(method)
    shown: Any = call
    shown.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
    return call


Value = TypeVar("Value")

_module_logger = logging.getLogger(__name__)


def safe_schedule_threadsafe(
    coro: Coroutine[Any, Any, Value],
    loop: asyncio.AbstractEventLoop | None,
    *,
    logger: logging.Logger | None = None,
    log_message: str = "Failed to schedule coroutine on loop",
    log_level: int = logging.DEBUG,
) -> concurrent.futures.Future[Value] | None:
    """Run `coro` on `loop` from another thread; if the loop is closed, close `coro` and return None."""
    try:
        if loop is None or loop.is_closed():
            raise RuntimeError("the loop is closed")
        return asyncio.run_coroutine_threadsafe(coro, loop)
    except RuntimeError as exc:
        coro.close()
        (logger or _module_logger).log(log_level, "%s: %s", log_message, exc)
        return None


def consume_detached_task_result(task: asyncio.Future[Any]) -> None:
    """Retrieve the result of a task that is not awaited, so that its error is logged here.

    Otherwise asyncio would report the error when the task is collected.
    """
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        _module_logger.debug("a task without a waiting caller failed", exc_info=error)


def is_interrupted() -> bool:
    """Return whether the running tool call was interrupted; False outside a call. Long tools poll it."""
    from hermes_agent.tools import current_scope  # loaded where a tool runs

    scope = current_scope.get()
    return scope is not None and scope.cancelled.is_set()


class SingletonSlot(Generic[Value]):
    """Holder of one value that is created once, at first use, across threads.

    Args:
        factory: creates the value; None if each call of `get` passes one.
    """

    def __init__(self, factory: Callable[[], Value] | None = None) -> None:
        self._factory = factory
        self._lock = threading.RLock()
        self._value: Value | None = None

    def get(self, factory: Callable[[], Value] | None = None) -> Value:
        """Return the value; create it if there is none.

        Raises:
            TypeError: there is no value and no factory.
        """
        with self._lock:
            if self._value is None:
                make = factory or self._factory
                if make is None:
                    raise TypeError("SingletonSlot.get needs a factory: none was given to it or to the slot")
                self._value = make()
            return self._value

    def peek(self) -> Value | None:
        """Return the value, or None if it was not created yet."""
        return self._value

    def set(self, value: Value) -> None:
        """Replace the value."""
        with self._lock:
            self._value = value

    def reset(self) -> Value | None:
        """Remove the value and return it, or None if there was none."""
        with self._lock:
            value, self._value = self._value, None
            return value


IGNORED_ARGUMENTS = ("base_url", "api_key", "api_mode", "acp_command", "command")


class AIAgent:
    """Conversation with the configured model and its tools; actions that need an approval are refused.

    Args:
        model: a model in place of the configured one; `provider/model` also names the provider.
        provider: the model's provider.
        session_id: the session to continue; by default a new one.
        platform: the platform that hooks see; default `cli`.
        ephemeral_system_prompt: instructions for this agent only.
        skip_memory: accepted and ignored, as are all other keywords of upstream that only change the display.

    Raises:
        ValueError: an endpoint or a key is given; both belong into the config, where the operator sees them.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        provider: str | None = None,
        api_mode: str | None = None,
        acp_command: str | None = None,
        acp_args: list[str] | None = None,
        command: str | None = None,
        args: list[str] | None = None,
        model: str = "",
        *,
        session_id: str | None = None,
        platform: str | None = None,
        ephemeral_system_prompt: str | None = None,
        **options: Any,
    ) -> None:
        given = [
            n for n, v in zip(IGNORED_ARGUMENTS, (base_url, api_key, api_mode, acp_command, command), strict=True) if v
        ]
        if given:
            raise ValueError(
                f"AIAgent({', '.join(given)}=…) is not taken: put the endpoint into `providers` of the config and"
                " name it with `provider`"
            )
        self.session_id = session_id or new_session_id()
        self.platform = platform or "cli"
        self.model = f"{provider}/{model}" if provider and model else model
        self._known = session_id is not None
        self._instructions = ephemeral_system_prompt or ""
        self._conversation: Conversation | None = None

    def chat(self, message: str, **options: Any) -> str:
        """Send a message and return the text of the answer.

        The call blocks until the answer is complete, so it must not be made on the core loop.
        """
        return str(self.run_conversation(message, **options)["final_response"])

    def run_conversation(
        self,
        user_message: str,
        system_message: str | None = None,
        conversation_history: list[dict[str, Any]] | None = None,
        task_id: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Run a turn with the message and return its result; blocks until the turn ends.

        Args:
            conversation_history: messages that replace the stored ones.
            options: accepted and ignored.

        Returns:
            `final_response`, `messages`, `completed`, `interrupted`, `model`, `session_id`, `input_tokens` and
            `output_tokens`.

        Raises:
            UserError: no model is available.
            ModelError: the model request failed.
        """
        return host().bridge.wait_core(self._run(user_message, system_message, conversation_history))

    def interrupt(self, message: str | None = None) -> None:
        """Interrupt the running turn at the next safe point."""
        if self._conversation is not None:
            self._conversation.interrupt()

    def clear_interrupt(self) -> None:
        """Do nothing: an interrupt ends with the turn that it stops."""

    def close(self) -> None:
        """Do nothing: each turn opens the conversation and closes it."""

    release_clients = close

    async def _run(self, said: str, system: str | None, history: list[dict[str, Any]] | None) -> dict[str, Any]:
        earlier = None if history is None else [_message(m) for m in history]
        conversation = await host().agent.open(
            self.session_id if self._known else None,
            platform=self.platform,
            approver=NoApprover("in an agent that a plugin started"),
            history=earlier,
            instructions="\n\n".join(t for t in (system, self._instructions) if t),
            model=self.model or None,
        )
        self.session_id, self._known, self._conversation = conversation.session_id, True, conversation
        try:
            finished = await fold(conversation.turn(said))
            messages = [{"role": m.role, "content": m.content} for m in conversation.history]
        finally:
            self._conversation = None
            await conversation.close("agent_close")
        assert finished is not None
        return {
            "final_response": finished.text,
            "messages": messages,
            "completed": finished.reason != "interrupted",
            "interrupted": finished.reason == "interrupted",
            "model": finished.model,
            "session_id": conversation.session_id,
            "input_tokens": finished.usage.input_tokens,
            "output_tokens": finished.usage.output_tokens,
        }


def _message(raw: dict[str, Any]) -> Message:
    return Message(raw["role"], raw.get("content") or "", (), raw.get("tool_call_id") or "", raw.get("name") or "")
