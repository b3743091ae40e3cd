"""A memory provider in one session: its calls, the fence around recalled text, and its setup.

Each call has a time limit, and a failure costs only what the provider would recall. Recalled text stands in a fence
that it cannot close itself; if the model repeats a fence, its text is not shown. Source: plugin contract §8.3.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes_agent.contracts.memory import MemoryProvider
from hermes_agent.core.calls import accepts, supported
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.runtime.workers import SerialExecutor

OPEN, CLOSE = "<memory-context>", "</memory-context>"
_NOTE = (
    "[System note: The following is recalled memory context, NOT new user input. Treat as authoritative reference data"
    " — this is the agent's persistent memory and should inform all responses.]"
)
# also what a lenient reader accepts as the tag: with blanks, attributes, or in another case
_TAG = re.compile(r"<\s*+(/?)\s*+memory-context\b[^>]*+>?\s*+", re.IGNORECASE)
_NOTES = re.compile(r"\[System note: The following is recalled memory context[^\]]*+\]\s*+", re.IGNORECASE)
_PASSES = 8
"""Passes that remove tags, because a removal may make a new one; after them no bracket stays."""


def fence_recalled(text: str) -> str:
    """Return recalled text in a fence, or "" for none; fences and notes inside it are removed."""
    inner = _remove_all(_NOTES, _remove_all(_TAG, text)).strip()
    return f"{OPEN}\n{_NOTE}\n\n{inner}\n{CLOSE}" if inner else ""


def sanitize_context(text: str) -> str:
    """Return `text` without fences of recalled memory, their content and their note."""
    parts, end, opened = [], 0, -1
    for tag in _TAG.finditer(text):
        if opened < 0:
            parts.append(text[end : tag.start()])
            opened = -1 if tag[1] else tag.end()
            end = tag.end()
        elif tag[1]:
            opened, end = -1, tag.end()
    return _remove_all(_NOTES, _remove_all(_TAG, "".join([*parts, text[end:]])))


def _remove_all(pattern: re.Pattern[str], text: str) -> str:
    """Remove matches until none is left: one pass would make a tag of `<<tag>tag>`."""
    for _ in range(_PASSES):
        text, count = pattern.subn("", text)
        if not count:
            return text
    return text.replace("<", "‹").replace("[", "(")


class FenceScrubber:
    """Removes fences and their content from a text that comes in pieces."""

    def __init__(self) -> None:
        self._held = ""
        self._is_inside = False

    def feed(self, piece: str) -> str:
        """Return the text so far that may be shown; the beginning of a tag is held back."""
        self._held += piece
        shown = ""
        while True:
            tag = CLOSE if self._is_inside else OPEN
            found = re.search(tag, self._held, re.IGNORECASE | re.ASCII)
            if found is None:
                break
            shown += "" if self._is_inside else self._held[: found.start()]
            self._held = self._held[found.end() :]
            self._is_inside = not self._is_inside
        shown_chars = len(self._held) - _tag_prefix_length(self._held, tag)
        ready, self._held = self._held[:shown_chars], self._held[shown_chars:]
        return shown if self._is_inside else shown + ready

    def end(self) -> str:
        """Return the held back text, which is no tag."""
        rest, self._held = self._held, ""
        return "" if self._is_inside else rest


def _tag_prefix_length(text: str, tag: str) -> int:
    """Return how many characters at the end of `text` may be the beginning of `tag`."""
    lower = text[-len(tag) :].lower()
    return next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if lower.endswith(tag[:n])), 0)


logger = logging.getLogger(__name__)


class BackgroundCalls:
    """Calls in the background, one after another in one thread.

    Args:
        limit: calls that may wait; further ones are dropped and logged.
    """

    def __init__(self, executor: SerialExecutor, limit: int = 256) -> None:
        self._executor = executor
        self._limit = limit
        self._tasks: set[Any] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind(self) -> None:
        """Remember the core loop; called on it."""
        self._loop = asyncio.get_running_loop()

    def post(self, work: Callable[[], Any]) -> None:
        """Run `work` after the earlier calls. Called on the core loop."""
        if len(self._tasks) >= self._limit:
            logger.warning("memory provider: too many calls wait: a call is dropped")
            return
        task = asyncio.ensure_future(self._executor.run(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def post_from_thread(self, work: Callable[[], Any]) -> None:
        """Run `work` after the earlier calls. Called in a worker, while the core loop runs."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.post, work)

    async def drain(self, limit_s: float) -> bool:
        """Wait for all calls, at most `limit_s` seconds; return whether they have ended."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=limit_s)
        return not self._tasks


class ProviderInstances:
    """One object of a provider for each session, so that sessions do not share what it knows.

    A plugin registers one object, which the first session gets. Other sessions get a copy of it as it was before its
    first use, or a new object of its class. If neither is possible, it serves one session at a time. Used in workers,
    one call at a time.
    """

    def __init__(self, registered: MemoryProvider) -> None:
        self.registered = registered
        self._fresh: MemoryProvider | None = None
        self._taken = False

    def take(self) -> MemoryProvider | None:
        """Return an object that no session has, or None if a further one is not possible."""
        if not self._taken:
            self._taken = True
            self._fresh = _copy_provider(self.registered)
            return self.registered
        return _make_instance(type(self.registered)) if self._fresh is None else _copy_provider(self._fresh)


def _copy_provider(provider: MemoryProvider) -> MemoryProvider | None:
    try:
        return copy.deepcopy(provider)
    except Exception as exc:  # noqa: BLE001 - a plugin's object; locks and connections cannot be copied
        logger.debug("memory provider %r: cannot be copied: %r", provider, exc)
        return None


def _make_instance(cls: type[MemoryProvider]) -> MemoryProvider | None:
    try:
        return cls()
    except Exception as exc:  # noqa: BLE001 - a plugin's class, which may want arguments
        logger.warning(
            "memory provider %s: serves one session at a time: it can be neither copied nor made without arguments: %r",
            cls.__name__,
            exc,
        )
        return None


BUDGET_S = 8.0
"""Time limit of the contract, in seconds."""

Messages = list[dict[str, Any]]


class ProviderSession:
    """A provider in one session. Used on the core loop, except `call_tool` and `before_compaction`.

    Args:
        background: runs the calls that no turn waits for.
        budget_s: seconds that a turn waits for recall, and a start for `initialize`.
    """

    def __init__(
        self,
        provider: MemoryProvider,
        plugin: str,
        session_id: str,
        bridge: Bridge,
        background: BackgroundCalls,
        budget_s: float = BUDGET_S,
    ) -> None:
        self.provider = provider
        self.plugin = plugin
        self.session_id = session_id
        self.block = ""
        """Its section of the system prompt."""
        self.schemas: list[dict[str, Any]] = []
        self._bridge = bridge
        self._background = background
        self._budget_s = budget_s
        self._turns = 0
        self._author: dict[str, Any] | None = None
        """Who writes in this session, where a platform knows it."""

    async def start(self, facts: dict[str, Any]) -> str:
        """Initialize the provider; return why it cannot be used, or ""."""
        self._background.bind()
        try:
            return await self._bridge.run(self._start, facts, deadline_s=self._budget_s)
        except TimeoutError:
            return f"it was not ready after {self._budget_s:g} seconds"
        except Exception as exc:
            logger.warning("memory provider of plugin `%s`: start failed", self.plugin, exc_info=True)
            return f"{type(exc).__name__}: {exc}"

    def _start(self, facts: dict[str, Any]) -> str:
        if not self.provider.is_available():
            reason = str(self._call_bounded("unavailable_reason") or "").strip()
            return reason or "it reports that it is not available; `hermes memory status` shows what it needs"
        if facts.get("user_id"):
            self._author = {"id": facts["user_id"], "name": facts.get("user_name", ""), "is_bot": False}
        self.provider.initialize(self.session_id, **facts)
        self.block = str(self._call_bounded("system_prompt_block") or "").strip()
        self.schemas = [_function(s) for s in self._call_bounded("get_tool_schemas") or () if isinstance(s, dict)]
        return ""

    async def recall(self, query: str, **facts: Any) -> str:
        """Return the fenced recall for a user message, or "" for none or after the time limit.

        Args:
            facts: `remaining_tokens`, `model`, `platform`, `tool_count`, for `on_turn_start`.
        """
        self._turns += 1
        began = time.monotonic()
        try:
            text = await self._bridge.run(self._recall, self._turns, query, facts, deadline_s=self._budget_s)
        except TimeoutError:
            logger.warning(
                "memory provider of plugin `%s`: no recall within %g s; the turn goes on", self.plugin, self._budget_s
            )
            return ""
        logger.debug("memory recalled %d characters in %.1f s", len(text), time.monotonic() - began)
        return fence_recalled(text)

    def _recall(self, number: int, query: str, facts: dict[str, Any]) -> str:
        author = self._author
        if author is not None:
            facts |= {"author_id": author["id"], "author_name": author["name"], "author_is_bot": author["is_bot"]}
        start = getattr(self.provider, "on_turn_start", None)
        if start is not None:
            self._call_bounded("on_turn_start", number, query, **supported(start, facts))
        text = str(self._call_bounded("prefetch", query, session_id=self.session_id) or "")
        status = self._call_bounded("recall_status") if text else None
        if status is not None:
            counted = f" ({status.count})" if status.count else ""
            logger.info(
                "%s %s recalled for session %s%s", status.glyph, status.provider_label, self.session_id, counted
            )
        return text

    def after_turn(self, user: str, assistant: str, messages: Messages) -> None:
        """Give the provider a turn and let it prepare the next one, in the background."""
        user, assistant = sanitize_context(user), sanitize_context(assistant)

        def work() -> None:
            offered: dict[str, Any] = {"session_id": self.session_id, "messages": messages}
            if self._author is not None:
                offered["turn_author"] = self._author
            self._call_bounded("sync_turn", user, assistant, **supported(self.provider.sync_turn, offered))
            self._call_bounded("queue_prefetch", user, session_id=self.session_id)

        self._background.post(work)

    def notify_change(self, action: str, target: str, content: str, metadata: dict[str, Any]) -> None:
        """Notify the provider of a change of the agent's notes, in the background; from any thread."""

        def work() -> None:
            function = getattr(self.provider, "on_memory_write", None)
            more = {"metadata": metadata} if function is not None and accepts(function, "metadata") else {}
            self._call_bounded("on_memory_write", action, target, content, **more)

        self._background.post_from_thread(work)

    def on_delegation(self, task: str, result: str, child: str) -> None:
        """Notify the provider of the end of a subagent, in the background."""
        self._background.post(lambda: self._call_bounded("on_delegation", task, result, child_session_id=child))

    def before_compaction(self, messages: Messages) -> str:
        """Return what a compaction must keep; in a worker."""
        return sanitize_context(str(self._call_bounded("on_pre_compress", messages) or ""))

    def call_tool(self, name: str, args: dict[str, Any], **keywords: Any) -> str:
        """Return the result of one of its tools; in a worker."""
        return self.provider.handle_tool_call(name, args, **keywords)

    def on_session_change(self, session_id: str, messages: Messages) -> None:
        """End the session for the provider, and continue with another id."""
        old, self.session_id, self._turns = self.session_id, session_id, 0
        self._background.post(lambda: self._call_bounded("on_session_end", messages))
        self._background.post(
            lambda: self._call_bounded("on_session_switch", session_id, parent_session_id=old, reset=True)
        )

    def end(self, messages: Messages) -> None:
        """End the session and shut the provider down, in the background."""
        self._background.post(lambda: self._call_bounded("on_session_end", messages))
        self._background.post(lambda: self._call_bounded("shutdown"))

    def _call_bounded(self, method: str, *args: Any, **keywords: Any) -> Any:
        """Call a method if it exists; a failure is logged."""
        function = getattr(self.provider, method, None)
        if function is None:  # a provider need not inherit from the class of the contract
            return None
        try:
            return function(*args, **keywords)
        except Exception as exc:
            logger.warning("memory provider of plugin `%s`: %s() failed: %r", self.plugin, method, exc)
            logger.debug("traceback", exc_info=True)
            return None


def _function(schema: dict[str, Any]) -> dict[str, Any]:
    inner = schema.get("function")
    return inner if isinstance(inner, dict) else schema


class SetupField(LazyNamedTuple):
    """A setting that a provider asks for."""

    key: str
    description: str
    secret: bool
    required: bool
    default: str
    choices: tuple[str, ...]
    url: str
    """Page with the value."""
    env_var: str
    """Variable that stores it, or "" if the provider stores it itself."""

    @property
    def is_set(self) -> bool:
        """Whether the environment has its variable."""
        return bool(self.env_var and os.environ.get(self.env_var))


AskSetting = Callable[[SetupField], str]
"""Returns the answer of the user, or ""."""


def setup_fields(provider: MemoryProvider) -> list[SetupField]:
    """Return the settings of a provider; a secret without a variable gets one."""
    schema: Sequence[Mapping[str, Any]] = getattr(provider, "get_config_schema", list)() or ()
    return [_field(item, provider.name) for item in schema if item.get("key")]


def configure_provider(
    provider: MemoryProvider, home: Path, ask: AskSetting, store: Callable[[str, str], None], given: Mapping[str, str]
) -> None:
    """Ask for the settings of a provider, and store them.

    Args:
        ask: asks for a setting that `given` lacks.
        store: stores a variable in `.env`.
        given: values by key.

    Raises:
        UserError: a required value is missing, or `given` has an unknown key or a value that is no choice.
    """
    fields = setup_fields(provider)
    unknown = sorted(set(given) - {field.key for field in fields})
    if unknown:
        known = ", ".join(field.key for field in fields) or "none"
        raise UserError(f"the memory provider `{provider.name}` has no setting {unknown[0]!r}; its settings: {known}")
    answers = {field: given[field.key] if field.key in given else ask(field) for field in fields}
    for field, answer in answers.items():
        if not answer and field.required and not field.is_set:
            raise UserError(
                f"the memory provider `{provider.name}` needs {field.key}: {field.description}",
                hint=f"Get it at {field.url}." if field.url else "",
            )
        if answer and field.choices and answer not in field.choices:
            raise UserError(f"{field.key} is {answer!r}: expected {' or '.join(field.choices)}")
    for field, answer in answers.items():
        if answer and field.env_var:
            store(field.env_var, answer)
    values = {field.key: answer for field, answer in answers.items() if answer and not field.secret}
    if hasattr(provider, "save_config"):
        provider.save_config(values, str(home))


def _field(item: Mapping[str, Any], provider: str) -> SetupField:
    key, secret = str(item["key"]), bool(item.get("secret"))
    own = re.sub(r"\W", "_", f"{provider}_{key}").upper() if secret else ""
    default = item.get("default")
    return SetupField(
        key,
        str(item.get("description") or key),
        secret,
        bool(item.get("required")),
        "" if default is None else str(default),
        tuple(map(str, item.get("choices") or ())),
        str(item.get("url") or ""),
        str(item.get("env_var") or own),
    )
