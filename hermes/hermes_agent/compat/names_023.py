"""Names that upstream added in 0.20 or later and that plugins import.

Source: plugin contract of 0.23 §5.4.
"""

from __future__ import annotations

import contextvars
import functools
import json
import logging
import os
import queue
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from hermes_agent import __version__
from hermes_agent.adapters.events import get_session_env
from hermes_agent.compat.agent import SingletonSlot, host
from hermes_agent.compat.config import load_config_readonly
from hermes_agent.config import hermes_home
from hermes_agent.config.home import profile_name
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.redaction import redactor
from hermes_agent.skills import SkillLibrary
from hermes_agent.tools import current_scope

logger = logging.getLogger(__name__)

T = TypeVar("T")

SUBAGENT = "subagent"
EVENT_ID = re.compile(r"[a-z0-9_-]{1,64}")
EVENT_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
MAX_EVENT_NAME = 128


def hermes_home_key(home: str | os.PathLike[str] | None = None) -> str:
    """Return the resolved path of a home as text, in lower case on Windows; None means the current home."""
    path = str(Path(home if home is not None else hermes_home()).expanduser().resolve())
    return path.casefold() if sys.platform == "win32" else path


def profile_name_for_home(home: str | os.PathLike[str] | None = None) -> str:
    """Return the profile of a home: `default`, its name, or `custom`; None means the current home."""
    return profile_name(Path(home) if home is not None else hermes_home())


def read_json_or_empty(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the JSON object in a file, or an empty one if the file has none."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        logger.debug("%s is read as empty: %s", path, exc)
        return {}
    return value if isinstance(value, dict) else {}


def lazy_singleton(factory: Callable[[], T]) -> Callable[[], T]:
    """Return a function that creates its value at the first call; `.reset()` removes the value."""
    slot: SingletonSlot[T] = SingletonSlot(factory)

    @functools.wraps(factory)
    def get() -> T:
        return slot.get()

    get.reset = slot.reset  # type: ignore[attr-defined]
    return get


def is_delegated_child_context() -> bool:
    """Return whether this code runs for a subagent."""
    scope = current_scope.get()
    return scope is not None and scope.platform == SUBAGENT


def is_delegated_child_process_context() -> bool:
    """Return False: subagents run in the process of their parent."""
    return False


def is_dispatcher_owned_worker_context() -> bool:
    """Return False: there is no kanban board with workers."""
    return False


@lazy_dataclass(frozen=True)
class VersionInfo:
    """The version of the running program."""

    base_version: str
    derived_version: str
    distance: int = 0
    commit: str = ""
    branch: str = ""
    source: str = "package"
    dirty: bool = False
    commit_date: str = ""
    distribution: str = "hermes-agent"


def get_version_info() -> VersionInfo:
    """Return the version of the running program."""
    return VersionInfo(__version__, __version__)


@lazy_dataclass(frozen=True)
class TurnIdentity:
    """Ids of a turn."""

    session_id: str
    task_id: str
    turn_id: str


def current_turn() -> TurnIdentity | None:
    """Return the ids of the current turn, or None outside of a turn."""
    scope = current_scope.get()
    if scope is None or not scope.turn_id:
        return None
    return TurnIdentity(scope.session_id, scope.task_id, scope.turn_id)


@lazy_dataclass(frozen=True)
class BoundedOutcome:
    """The end of a call with a time limit."""

    value: Any = None
    timed_out: bool = False


def run_bounded_sync(fn: Callable[[], Any], seconds: float, *, label: str = "bounded call") -> BoundedOutcome:
    """Call `fn` in a thread and wait for it at most `seconds`; a call that takes longer is abandoned.

    Args:
        label: name of the thread.

    Raises:
        BaseException: what `fn` raised.
    """
    context, ended = contextvars.copy_context(), queue.SimpleQueue[tuple[Any, BaseException | None]]()

    def work() -> None:
        try:
            ended.put((context.run(fn), None))
        except BaseException as exc:  # noqa: BLE001 - raised in the caller
            ended.put((None, exc))

    threading.Thread(target=work, name=label, daemon=True).start()
    try:
        value, error = ended.get(timeout=seconds)
    except queue.Empty:
        return BoundedOutcome(timed_out=True)
    if error is not None:
        raise error
    return BoundedOutcome(value)


def request_hard_interrupt(agent: Any, message: str | None = None, *, tool_reason: str = "") -> bool:
    """Interrupt the running turn of an agent and its tools; return False if it cannot be interrupted.

    Args:
        tool_reason: for the log.
    """
    interrupt = getattr(agent, "interrupt", None)
    if not callable(interrupt):
        return False
    logger.info("a plugin interrupts a turn: %s", tool_reason or message or "no reason given")
    interrupt(message)
    return True


def terminal_env(name: str, default: str = "") -> str:
    """Return a setting of commands by the name of upstream's variable.

    `TERMINAL_ENV` is `terminal.backend`. The config goes first, then the environment of the process.
    """
    key = {"TERMINAL_ENV": "backend"}.get(name, name.removeprefix("TERMINAL_").lower())
    value = (load_config_readonly().get("terminal") or {}).get(key) if name.startswith("TERMINAL_") else None
    is_plain = isinstance(value, str | int | float) and value != ""
    return str(value) if is_plain else os.environ.get(name) or default


def chat_origin() -> dict[str, str] | None:
    """Return the chat of the running message, as `origin` of a scheduled job; None outside of chats."""
    names = {"platform": "PLATFORM", "chat_id": "CHAT_ID", "chat_name": "CHAT_NAME", "thread_id": "THREAD_ID"}
    found = {key: get_session_env(f"HERMES_SESSION_{name}") for key, name in names.items()}
    return {key: text for key, text in found.items() if text} if found["platform"] and found["chat_id"] else None


def reset_skill_view_dedup(*args: Any, **kwargs: Any) -> None:
    """Do nothing: `skill_view` returns the whole text at each call."""


def redact_for_egress(text: str) -> str:
    """Return a text with masked secrets, even if `security.redact_secrets` is off."""
    return redactor(text)


def register_redaction_patterns(patterns: Iterable[str]) -> int:
    """Also mask matches of these patterns; return how many patterns were accepted."""
    return len(redactor.add_patterns(patterns, "code outside of plugins"))


def get_source_environment() -> Mapping[str, str]:
    """Return the environment for the current fetch of a secret source: that of the process."""
    return os.environ


def source_child_env() -> dict[str, str]:
    """Return a copy of the environment of a secret source, for a program that it starts."""
    return dict(get_source_environment())


def broadcast_plugin_event(plugin_id: str, event: str, payload: Mapping[str, Any] | None = None) -> None:
    """Check the event `plugin.ID.EVENT` and log it; there are no desktop clients to receive it.

    Raises:
        ValueError: the id or the name of the event is invalid.
        TypeError: the payload is not a mapping, or cannot be written as JSON.
    """
    if not isinstance(plugin_id, str) or EVENT_ID.fullmatch(plugin_id) is None:
        raise ValueError(f"plugin id {plugin_id!r} is not usable: expected [a-z0-9_-], at most 64")
    if not isinstance(event, str) or len(event) > MAX_EVENT_NAME or EVENT_NAME.fullmatch(event) is None:
        raise ValueError(f"event {event!r} is not usable: expected dotted names of [A-Za-z0-9_-], at most 128")
    if payload is not None and not isinstance(payload, Mapping):
        raise TypeError(f"the payload of event {event!r} is {type(payload).__name__}: expected a mapping")
    json.dumps(dict(payload or {}))
    logger.debug("plugin event plugin.%s.%s: no desktop client is connected", plugin_id, event)


def iter_hook_callbacks(hook_name: str) -> tuple[Callable[..., Any], ...]:
    """Return the callbacks of a hook in order."""
    return tuple(callback for _, callback in host().hooks.listeners(hook_name))


def hook_callback_timeout() -> float:
    """Return the time limit of a hook's callback in seconds."""
    return host().hooks.deadlines.default_s


async def ainvoke_hook(hook_name: str, **kwargs: Any) -> list[Any]:
    """Call a hook's listeners from any event loop and return their answers."""
    current = host()
    return await current.bridge.run(functools.partial(current.plugins.invoke_hook, hook_name, **kwargs))


def dispatch_pre_tool_call_hooks(
    tool_name: str, args: dict[str, Any] | None = None, **kwargs: Any
) -> tuple[str | None, dict[str, Any] | None]:
    """Run the guards of a tool call.

    Returns:
        The reason of a block or None, and the changed arguments or None.
    """
    from hermes_agent.hooks.bus import (
        GuardBlock,
        argument_changes,
        decide_verdict,
    )  # few plugins run the guards themselves

    current = host()
    results = current.hooks.fire("pre_tool_call", tool_name=tool_name, args=dict(args or {}), **kwargs)
    verdict = decide_verdict(results, tool_name, fails_open=lambda plugin: False)
    changes = argument_changes(results)
    merged = {**(args or {}), **changes} if changes else None
    return (verdict.message if isinstance(verdict, GuardBlock) else None), merged


def render_system_prompt_sections(info: Mapping[str, Any]) -> str:
    """Return the plugins' sections of the system prompt as one block."""
    from hermes_agent.plugins.prompt_sections import render_sections  # as above

    return render_sections([section for _, section in host().extensions.prompt_sections.items()], info)


def get_skill_search_roots(local: Path | None = None, *, include_project: bool = True) -> list[tuple[int, Path]]:
    """Return the directories of skills, each with its rank; 1 is that of the home, 3 an external one."""
    roots = [(1, Path(local) if local is not None else hermes_home() / "skills")]
    return [*roots, *((3, folder) for folder in host().service(SkillLibrary).settings.external)]


def get_project_skills_dirs() -> list[Path]:
    """Return an empty list: skills of a project are not loaded."""
    return []


def yaml_safe_load(stream: Any) -> Any:
    """Return the value of a YAML document."""
    import yaml  # few plugins need it

    return yaml.safe_load(stream)


def yaml_safe_dump(data: Any, stream: Any = None, **kwargs: Any) -> Any:
    """Write a value as YAML to `stream`, or return the text if `stream` is None."""
    import yaml  # as above

    return yaml.safe_dump(data, stream, **kwargs)


def translate(key: str, lang: str | None = None, **values: Any) -> str:
    """Return the text of a key in a language, by default the config's; the key itself if it has none."""
    return host().extensions.texts().translate(key, lang, **values)


def get_language() -> str:
    """Return the language of the config, such as `de`."""
    return host().extensions.texts().language()


def reset_language_cache() -> None:
    """Do nothing: the language and the files of texts are read at each use."""
