"""Upstream's functions for the gateway, its channels and messages, chat questions and scheduled jobs.

They read a channel's settings from a platform's `extra` and its type from `HOME/channel_directory.json`, which adapters
write: `{"updated_at": …, "platforms": {"<platform>": [{"id": …, "name": …, "type": …}, …]}}`.

Two files of the home are caches. `rich_sent_messages.json` has the texts of sent messages, for platforms that do not
quote a message in a reply to it. `sticker_cache.json` has descriptions of stickers, so that each is described once.

Platform adapters pass answers to upstream's `tools/clarify_gateway.py` and `tools/slash_confirm.py`; the caller that
asks registers the question first. Scheduled jobs (`cron.jobs`) are stored in `state.db`; changes are calls of the tool
`cronjob`, with its rules and approvals.

Source: plugin contract §8.10, §11.1, §11.2, §11.3, §12.2.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from hermes_agent.adapters.registry import GatewayConfig, PlatformRegistry, gateway_config
from hermes_agent.commands.runner import PendingConfirmations
from hermes_agent.compat.agent import host, of_host
from hermes_agent.compat.config import load_config
from hermes_agent.config import hermes_home
from hermes_agent.core.errors import UserError
from hermes_agent.cron import JobStore
from hermes_agent.plugins.tool_access import dispatch_tool
from hermes_agent.policy import PendingQuestion
from hermes_agent.system.files import JsonFile

if TYPE_CHECKING:
    import httpx


def resolve_channel_prompt(config_extra: dict[str, Any], channel_id: str, parent_id: str | None = None) -> str | None:
    """Return a channel's addition to the system prompt, else that of its parent, else None.

    `channel_prompts` is a mapping from channel ids to texts.
    """
    prompts = config_extra.get("channel_prompts")
    for value in _channel_entries(prompts, channel_id, parent_id):
        text = str(value).strip() if value is not None else ""
        if text:
            return text
    return None


def resolve_channel_skills(
    config_extra: dict[str, Any], channel_id: str, parent_id: str | None = None
) -> list[str] | None:
    """Return the names of a channel's skills, else those of its parent, else None.

    `channel_skill_bindings` is a list of `{id, skills}`, or a mapping from ids to skills.
    """
    bindings = config_extra.get("channel_skill_bindings")
    if isinstance(bindings, list):
        listed = [b for b in bindings if isinstance(b, Mapping) and "id" in b]
        bindings = {str(b["id"]): b.get("skills") or b.get("skill") for b in listed}
    for value in _channel_entries(bindings, channel_id, parent_id):
        given = [value] if isinstance(value, str) else value if isinstance(value, (list, tuple)) else []
        names = list(dict.fromkeys(str(name).strip() for name in given if str(name).strip()))
        if names:
            return names
    return None


def _channel_entries(table: Any, channel_id: str, parent_id: str | None) -> Iterator[Any]:
    """Yield the table's entries for the channel and its parent; YAML may have parsed an id as a number."""
    if not isinstance(table, Mapping):
        return
    by_text = {str(key): value for key, value in table.items()}
    for key in (channel_id, parent_id):
        if key is not None and str(key) in by_text:
            yield by_text[str(key)]


def lookup_channel_type(platform_name: str, chat_id: str) -> str | None:
    """Return the type of a channel (`channel`, `forum`, `dm`, …), or None if no adapter recorded it."""
    platforms = JsonFile(hermes_home() / "channel_directory.json").read().get("platforms")
    channels = platforms.get(platform_name) if isinstance(platforms, dict) else None
    for channel in channels if isinstance(channels, list) else ():
        if isinstance(channel, dict) and str(channel.get("id")) == str(chat_id):
            kind = channel.get("type")
            return kind if isinstance(kind, str) else None
    return None


logger = logging.getLogger(__name__)

MAX_SENT_TEXTS = 1000
"""Number of stored messages; the oldest are removed first."""
MAX_TEXT = 4000
"""Stored length of a text, in characters."""


def record(chat_id: str, message_id: str, text: str) -> None:
    """Store the text of a sent message; a write error is only logged."""
    if not chat_id or not message_id or not text:
        return
    try:
        with _sent_texts_file().change() as sent:
            key = _message_key(chat_id, message_id)
            sent.pop(key, None)  # moves a repeated message to the end
            sent[key] = {"text": text[:MAX_TEXT], "at": time.time()}
            for oldest in list(sent)[: max(0, len(sent) - MAX_SENT_TEXTS)]:
                del sent[oldest]
    except OSError as exc:
        logger.warning("the text of message %s is not kept: %s", message_id, exc)


def lookup(chat_id: str, message_id: str) -> str | None:
    """Return the text of a sent message, or None if it is not stored."""
    found = _sent_texts_file().read().get(_message_key(chat_id, message_id))
    text = found.get("text") if isinstance(found, dict) else None
    return text if isinstance(text, str) else None


def _message_key(chat_id: str, message_id: str) -> str:
    return f"{chat_id}:{message_id}"


def _sent_texts_file() -> JsonFile:
    return JsonFile(hermes_home() / "rich_sent_messages.json")


STICKER_VISION_PROMPT = (
    "What does this sticker show? Answer with one short sentence: who or what, doing what, in what mood."
)
"""Question about a sticker for a model that supports images."""


def get_cached_description(file_unique_id: str) -> dict[str, Any] | None:
    """Return `description`, `emoji`, `set_name` and `cached_at` of a sticker, or None if it is unknown."""
    found = _sticker_file().read().get(file_unique_id)
    return found if isinstance(found, dict) else None


def cache_sticker_description(file_unique_id: str, description: str, emoji: str = "", set_name: str = "") -> None:
    """Store the description of a sticker; a write error is only logged."""
    entry = {"description": description, "emoji": emoji, "set_name": set_name, "cached_at": time.time()}
    try:
        with _sticker_file().change() as known:
            known[file_unique_id] = entry
    except OSError as exc:
        logger.warning("the description of a sticker is not kept: %s", exc)


def build_sticker_injection(description: str, emoji: str = "", set_name: str = "") -> str:
    """Return the line that represents a sticker in a conversation."""
    return f"[Sticker{_sticker_words(emoji, set_name)}, which shows: {_escape_text(description)}]"


def build_animated_sticker_injection(emoji: str = "") -> str:
    """Return the line for an animated sticker, which cannot be described."""
    return f"[Animated sticker{_sticker_words(emoji, '')}; what it shows is not known]"


def _sticker_words(emoji: str, set_name: str) -> str:
    return (f" {_escape_text(emoji)}" if emoji else "") + (
        f' of the set "{_escape_text(set_name)}"' if set_name else ""
    )


def _escape_text(text: str) -> str:
    """Return untrusted text on one line, without the brackets that would end its place."""
    return " ".join(text.split()).replace("[", "(").replace("]", ")")


def _sticker_file() -> JsonFile:
    return JsonFile(hermes_home() / "sticker_cache.json")


KEEPALIVE_S = 2.0
"""Below the idle limit of common servers, so that no request uses a connection that is being closed."""


def load_gateway_config() -> GatewayConfig:
    """Return the gateway's settings from the config, the environment and the registered platforms."""
    return gateway_config(load_config(), host().platforms)


def gateway_model(config: Mapping[str, Any] | None = None) -> str:
    """Return the name of the model for chats, or "" if none is available.

    Args:
        config: a config with a block `model` that replaces the effective one.
    """
    try:
        return host().select_model(settings=None if config is None else _model_block(config)).model
    except UserError as exc:
        logger.info("no model can be had: %s", exc)
        return ""


def runtime_agent_arguments() -> dict[str, Any]:
    """Return the keywords of `AIAgent`, except `model`, that select the configured model.

    `provider` names the endpoint. `api_key` and `base_url` are None: plugins do not receive them, `AIAgent` reads both
    from the config.

    Raises:
        UserError: no model is available.
    """
    return {
        "provider": host().select_model().provider,
        "api_key": None,
        "base_url": None,
        "api_mode": None,
        "command": None,
        "args": [],
    }


def _model_block(config: Mapping[str, Any]) -> Mapping[str, Any]:
    block = config.get("model")
    return block if isinstance(block, Mapping) else {"default": block or ""}


def platform_registry() -> PlatformRegistry:
    """Return the host's own registry, so that a plugin's patches apply to the agent."""
    return host().platforms


def platform_httpx_limits() -> httpx.Limits | None:
    """Return limits for an adapter's HTTP client, or None if httpx is not installed."""
    try:
        import httpx  # takes 60 ms, and most processes do not need it
    except ImportError:
        return None
    return httpx.Limits(max_connections=100, max_keepalive_connections=10, keepalive_expiry=KEEPALIVE_S)


def running_gateway() -> Any:
    """Return the gateway of this process, or None; adapters have it as `gateway_runner`."""
    return host().running_gateway()


def id_list(raw: Any) -> frozenset[str]:
    """Return the ids in a setting, which is a list, a number or a text with commas."""
    given = (
        raw.split(",") if isinstance(raw, str) else raw if isinstance(raw, list | tuple | set | frozenset) else [raw]
    )
    return frozenset(text for one in given if one is not None and (text := str(one).strip()))


def not_sent(message: str) -> dict[str, object]:
    """Return the result of a message that could not be sent."""
    return {"success": False, "error": str(message)}


class _OpenClarifications(Mapping[str, PendingQuestion[str]]):
    """The open clarifications by id, as upstream's `_entries`."""

    def __getitem__(self, key: str) -> PendingQuestion[str]:
        found = host().questions.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(host().questions.ids())

    def __len__(self) -> int:
        return len(host().questions.ids())

    def __setitem__(self, key: str, value: object) -> NoReturn:
        raise TypeError(
            "the open questions take no change: the tool `clarify` asks one, and resolve_gateway_clarify(id, text)"
            " answers it"
        )

    def __delitem__(self, key: str) -> NoReturn:
        self[key] = None


open_clarifications = _OpenClarifications()


def mark_awaiting_text(clarify_id: str) -> bool:
    """Treat the next message of the chat as the answer; return False if the question is not open."""
    question = host().questions.get(clarify_id)
    if question is None:
        return False
    question.awaiting_text = True
    return True


def resolve_gateway_clarify(clarify_id: str, response: str) -> bool:
    """Answer a clarification; return False if it is not open."""
    return host().questions.answer(clarify_id, response)


await_confirmation = of_host(lambda host: host.confirms, PendingConfirmations.register)
pending_confirmation = of_host(lambda host: host.confirms, PendingConfirmations.get_pending)
forget_confirmation = of_host(lambda host: host.confirms, PendingConfirmations.clear)


async def confirm(
    session_key: str,
    confirm_id: str,
    choice: str,
    timeout: float = 300.0,  # noqa: ASYNC109 - upstream's parameter
) -> str | None:
    """Run the pending command and return its reply; None if the id differs, or after a silent cancel.

    Args:
        timeout: accepted and ignored: the question itself has a deadline.
    """
    return await host().confirms.resolve(session_key, confirm_id, choice)


CHANGEABLE = frozenset(
    [
        "schedule",
        "prompt",
        "name",
        "repeat",
        "deliver",
        "skills",
        "model",
        "script",
        "no_agent",
        "context_from",
        "enabled_toolsets",
        "workdir",
        "attach_to_session",
    ]
)


class AmbiguousJobReference(LookupError):
    """Several jobs have the requested name; the message lists their ids."""


def load_jobs() -> list[dict[str, Any]]:
    """Return all jobs, each in upstream's format."""
    path = hermes_home() / "state.db"
    if not path.exists():
        return []
    with contextlib.closing(JobStore(path)) as store:
        return [job.to_dict() for job in store.jobs()]


def list_jobs(include_disabled: bool = False) -> list[dict[str, Any]]:
    """Return the enabled jobs, or all jobs."""
    return [job for job in load_jobs() if include_disabled or job["enabled"]]


def get_job(job_id: str) -> dict[str, Any] | None:
    """Return the job with this id, or None."""
    return next((job for job in load_jobs() if job["id"] == job_id), None)


def resolve_job_ref(ref: str) -> dict[str, Any] | None:
    """Return the job with this id, else with this name (ignoring case), else None.

    Raises:
        AmbiguousJobReference: several jobs have the name.
    """
    jobs = load_jobs()
    found = [job for job in jobs if job["id"] == ref] or [job for job in jobs if job["name"].lower() == ref.lower()]
    if len(found) > 1:
        raise AmbiguousJobReference(f"{len(found)} jobs are called {ref!r}: {', '.join(job['id'] for job in found)}")
    return found[0] if ref and found else None


def create_job(
    prompt: str | None,
    schedule: str,
    name: str | None = None,
    repeat: int | None = None,
    deliver: str | None = None,
    origin: Mapping[str, Any] | None = None,
    skill: str | None = None,
    skills: list[str] | None = None,
    model: str | None = None,
    provider: str | None = None,
    base_url: str | None = None,
    script: str | None = None,
    context_from: str | list[str] | None = None,
    enabled_toolsets: list[str] | None = None,
    workdir: str | None = None,
    no_agent: bool = False,
    attach_to_session: bool | None = None,
) -> dict[str, Any]:
    """Create a job and return it.

    Args:
        origin: `platform`, `chat_id` and `thread_id` of the chat, used if `deliver` is None.
        skill: a skill in addition to `skills`.
        provider: not accepted, like `base_url`; the config determines the endpoint of a model.
        context_from: the job, or jobs, with results that the prompt gets.
        no_agent: run `script` alone.

    Raises:
        ValueError: the job is invalid.
        PermissionError: it needs an approval, and there is no approver, or the answer was `deny`.
        TypeError: an argument is not supported.
    """
    if provider or base_url:
        raise TypeError("a job takes no provider and no base_url here: `model` is looked up as the config says")
    if deliver is None and origin:
        parts = (origin.get("platform"), origin.get("chat_id"), origin.get("thread_id"))
        deliver = ":".join(str(part) for part in parts if part)
    wanted: dict[str, Any] = {
        "prompt": prompt,
        "schedule": schedule,
        "name": name,
        "repeat": repeat,
        "deliver": deliver,
        "model": model,
        "script": script,
        "context_from": context_from,
        "enabled_toolsets": enabled_toolsets,
        "workdir": workdir,
        "no_agent": no_agent or None,
        "attach_to_session": attach_to_session,
    }
    wanted["skills"] = [*([skill] if skill else []), *(skills or [])] or None
    return _act("create", **_supported_fields(wanted))


def update_job(job_id: str, updates: Mapping[str, Any]) -> dict[str, Any] | None:
    """Change a job and return it, or None if it does not exist; `enabled` pauses or resumes it.

    Raises:
        ValueError, PermissionError, TypeError: as in `create_job`.
    """
    job = get_job(job_id)
    changes = dict(updates)
    enabled = changes.pop("enabled", None)
    given = _supported_fields(changes)
    if job is not None and given:
        job = _act("update", job_id=job_id, **given)
    if job is not None and enabled is not None and bool(enabled) != job["enabled"]:
        job = _act("resume" if enabled else "pause", job_id=job_id)
    return job


def pause_job(job_id: str, reason: str | None = None) -> dict[str, Any] | None:
    """Pause a job, given by id or name, and return it, or None if it does not exist.

    Args:
        reason: accepted and ignored.
    """
    return _on("pause", job_id)


def resume_job(job_id: str) -> dict[str, Any] | None:
    """Resume a paused job, given by id or name, and return it, or None if it does not exist."""
    return _on("resume", job_id)


def trigger_job(job_id: str) -> dict[str, Any] | None:
    """Run a job, given by id or name, now; return it, or None if it does not exist."""
    return _on("run", job_id)


def remove_job(job_id: str) -> bool:
    """Delete a job, given by id or name; return False if it does not exist."""
    return _on("remove", job_id) is not None


def _on(action: str, ref: str) -> dict[str, Any] | None:
    job = resolve_job_ref(ref)
    return None if job is None else _act(action, job_id=job["id"])


def _supported_fields(wanted: Mapping[str, Any]) -> dict[str, Any]:
    strange = sorted(set(wanted) - set(CHANGEABLE))
    if strange:
        raise TypeError(f"a job has no {', '.join(strange)} that could be set: {', '.join(sorted(CHANGEABLE))}")
    return {name: value for name, value in wanted.items() if value is not None}


def _act(action: str, **args: Any) -> dict[str, Any]:
    answer = json.loads(dispatch_tool(host(), "cron.jobs", "cronjob", {"action": action, **args}, {}))
    if "job" in answer:
        return dict(answer["job"])
    text = str(answer.get("error") or answer)
    raise PermissionError(text) if "approval" in text.lower() or text.startswith("BLOCKED") else ValueError(text)
