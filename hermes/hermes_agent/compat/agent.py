"""The host behind upstream's module-level names.

Upstream's helpers for event loops and for values that are made once. Source: plugin contract §11.2, §11.3.

Upstream's `run_agent.AIAgent`: an agent that a plugin or a script talks to. Source: plugin contract §11.2.
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
    """Let the first use of a name build a host: in a script of its own, nobody else does."""
    global _may_build
    _may_build = True


def host() -> Host:
    """Return the process's host.

    Raises:
        RuntimeError: there is none, and a script may not build one.
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
    """Return a part of the host, as it is for who registers now; None in a script that has no host."""
    try:
        return staged_store(part(host()))
    except RuntimeError:
        return None


def of_host(part: Callable[[Host], Part], method: Callable[Concatenate[Part, P], R]) -> Callable[P, R]:
    """Return the function that calls a method of a part of whatever host there is then."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound: Callable[P, R] = getattr(part(host()), method.__name__)  # also one that a plugin has patched
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
    """Run `coro` on `loop` from another thread; when the loop is gone, close it and return None."""
    try:
        if loop is None or loop.is_closed():
            raise RuntimeError("the loop is closed")
        return asyncio.run_coroutine_threadsafe(coro, loop)
    except RuntimeError as exc:
        coro.close()
        (logger or _module_logger).log(log_level, "%s: %s", log_message, exc)
        return None


def consume_detached_task_result(task: asyncio.Future[Any]) -> None:
    """Take the result of a task that nobody waits for, so that its error is logged here and not at the exit."""
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        _module_logger.debug("a task that nobody waited for failed", exc_info=error)


def is_interrupted() -> bool:
    """Say whether the tool call that runs here was told to stop; long tools poll it. Outside a call: no."""
    from hermes_agent.tools import current_scope  # loaded where a tool runs

    scope = current_scope.get()
    return scope is not None and scope.cancelled.is_set()


class SingletonSlot(Generic[Value]):
    """Holds one value that is made at first use, by one thread.

    Args:
        factory: makes it; None when `get` is given one.
    """

    def __init__(self, factory: Callable[[], Value] | None = None) -> None:
        self._factory = factory
        self._lock = threading.RLock()
        self._value: Value | None = None

    def get(self, factory: Callable[[], Value] | None = None) -> Value:
        """Return the value, made now when there is none.

        Raises:
            TypeError: there is nothing to make it with.
        """
        with self._lock:
            if self._value is None:
                make = factory or self._factory
                if make is None:
                    raise TypeError("SingletonSlot.get needs a factory: none was given to it or to the slot")
                self._value = make()
            return self._value

    def peek(self) -> Value | None:
        """Return the value, None when none was made."""
        return self._value

    def set(self, value: Value) -> None:
        """Put `value` in the slot."""
        with self._lock:
            self._value = value

    def reset(self) -> Value | None:
        """Empty the slot and return what was in it."""
        with self._lock:
            value, self._value = self._value, None
            return value


IGNORED_ARGUMENTS = ("base_url", "api_key", "api_mode", "acp_command", "command")


class AIAgent:
    """A conversation with the configured model and its tools; nobody can be asked for approval.

    Args:
        model: another model; `provider/model` names the provider, too.
        provider: the model's provider.
        session_id: a session to go on with.
        platform: what hooks see.
        ephemeral_system_prompt: instructions for this agent alone.
        skip_memory: taken and not needed, like every further keyword of upstream's that changes how things are shown.

    Raises:
        ValueError: an endpoint or key is given: those stand in the config, where the operator sees them.
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
        """Say something and return the answer; waits for it, and must not be called on the core loop."""
        return str(self.run_conversation(message, **options)["final_response"])

    def run_conversation(
        self,
        user_message: str,
        system_message: str | None = None,
        conversation_history: list[dict[str, Any]] | None = None,
        task_id: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Say something and return what came of it.

        Args:
            conversation_history: messages in place of the stored ones.
            options: taken and not needed.

        Returns:
            `final_response`, `messages`, `completed`, `interrupted`, `model`, `session_id`, `input_tokens` and
            `output_tokens`.

        Raises:
            UserError: no model can be had.
            ModelError: it does not answer.
        """
        return host().bridge.wait_core(self._run(user_message, system_message, conversation_history))

    def interrupt(self, message: str | None = None) -> None:
        """Stop what runs at the next safe point."""
        if self._conversation is not None:
            self._conversation.interrupt()

    async def _run(self, said: str, system: str | None, history: list[dict[str, Any]] | None) -> dict[str, Any]:
        told = None if history is None else [_message(m) for m in history]
        talk = await host().agent.open(
            self.session_id if self._known else None,
            platform=self.platform,
            approver=NoApprover("in an agent that a plugin started"),
            history=told,
            instructions="\n\n".join(t for t in (system, self._instructions) if t),
            model=self.model or None,
        )
        self.session_id, self._known, self._conversation = talk.session_id, True, talk
        try:
            finished = await fold(talk.turn(said))
            messages = [{"role": m.role, "content": m.content} for m in talk.history]
        finally:
            self._conversation = None
            await talk.close("agent_close")
        assert finished is not None
        return {
            "final_response": finished.text,
            "messages": messages,
            "completed": finished.reason != "interrupted",
            "interrupted": finished.reason == "interrupted",
            "model": finished.model,
            "session_id": talk.session_id,
            "input_tokens": finished.usage.input_tokens,
            "output_tokens": finished.usage.output_tokens,
        }


def _message(raw: dict[str, Any]) -> Message:
    return Message(raw["role"], raw.get("content") or "", (), raw.get("tool_call_id") or "", raw.get("name") or "")
