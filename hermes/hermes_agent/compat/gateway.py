"""Settings of single channels in a platform's `extra`. Source: plugin contract §11.2, §11.3.

What adapters wrote of the channels that they know: `HOME/channel_directory.json`. Source: plugin contract §12.2.

`{"updated_at": …, "platforms": {"<platform>": [{"id": …, "name": …, "type": …}, …]}}`

The texts of messages that were sent and that their service does not quote in an answer to them.

Kept in `HOME/rich_sent_messages.json`, so that an answer can be read together with what it answers. Source: plugin
contract §11.1.

What stickers show, kept in `HOME/sticker_cache.json`: each is looked at once. Source: plugin contract §11.1.

Upstream's module functions over the gateway: its settings and model, and questions to a chat.

A platform adapter brings the answers to `tools.clarify_gateway` and `tools.slash_confirm`; who asks registers the
question first. Source: plugin contract §11.2, §11.3.

The scheduled jobs of a home: `cron.jobs`. Source: plugin contract §8.10, §11.2.

They lie in `state.db`. Changes are calls of the tool `cronjob`, with its rules and approvals.
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
    """Return what a channel adds to the system prompt: `channel_prompts: {<id>: <text>}`; else its parent's."""
    prompts = config_extra.get("channel_prompts")
    for value in _channel_entries(prompts, channel_id, parent_id):
        text = str(value).strip() if value is not None else ""
        if text:
            return text
    return None


def resolve_channel_skills(
    config_extra: dict[str, Any], channel_id: str, parent_id: str | None = None
) -> list[str] | None:
    """Return the skills that a channel works with, else its parent's; None when there are none.

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
    """Yield what stands in `table` for the channel, then for its parent; YAML may have read an id as a number."""
    if not isinstance(table, Mapping):
        return
    by_text = {str(key): value for key, value in table.items()}
    for key in (channel_id, parent_id):
        if key is not None and str(key) in by_text:
            yield by_text[str(key)]


def lookup_channel_type(platform_name: str, chat_id: str) -> str | None:
    """Return the kind of a channel (`channel`, `forum`, `dm`, …); None when no adapter wrote of it."""
    platforms = JsonFile(hermes_home() / "channel_directory.json").read().get("platforms")
    channels = platforms.get(platform_name) if isinstance(platforms, dict) else None
    for channel in channels if isinstance(channels, list) else ():
        if isinstance(channel, dict) and str(channel.get("id")) == str(chat_id):
            kind = channel.get("type")
            return kind if isinstance(kind, str) else None
    return None


logger = logging.getLogger(__name__)

MAX_SENT_TEXTS = 1000
"""Messages that are kept; the oldest are forgotten first."""
MAX_TEXT = 4000
"""Characters of a text that are kept."""


def record(chat_id: str, message_id: str, text: str) -> None:
    """Keep the text of a message that was sent; a home that cannot be written to is logged, the message is out."""
    if not chat_id or not message_id or not text:
        return
    try:
        with _sent_texts_file().change() as sent:
            key = _message_key(chat_id, message_id)
            sent.pop(key, None)  # a text that is sent again is the newest
            sent[key] = {"text": text[:MAX_TEXT], "at": time.time()}
            for oldest in list(sent)[: max(0, len(sent) - MAX_SENT_TEXTS)]:
                del sent[oldest]
    except OSError as exc:
        logger.warning("the text of message %s is not kept: %s", message_id, exc)


def lookup(chat_id: str, message_id: str) -> str | None:
    """Return the text of a message that was sent; None when it is not known, or forgotten."""
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
"""What a model that can see is asked about a sticker."""


def get_cached_description(file_unique_id: str) -> dict[str, Any] | None:
    """Return what is known of a sticker: `description`, `emoji`, `set_name`, `cached_at`; None when it is new."""
    found = _sticker_file().read().get(file_unique_id)
    return found if isinstance(found, dict) else None


def cache_sticker_description(file_unique_id: str, description: str, emoji: str = "", set_name: str = "") -> None:
    """Keep what a sticker shows; a home that cannot be written to is logged, the message goes on."""
    entry = {"description": description, "emoji": emoji, "set_name": set_name, "cached_at": time.time()}
    try:
        with _sticker_file().change() as known:
            known[file_unique_id] = entry
    except OSError as exc:
        logger.warning("the description of a sticker is not kept: %s", exc)


def build_sticker_injection(description: str, emoji: str = "", set_name: str = "") -> str:
    """Return the line that stands in a conversation for a sticker."""
    return f"[Sticker{_sticker_words(emoji, set_name)}, which shows: {_escape_text(description)}]"


def build_animated_sticker_injection(emoji: str = "") -> str:
    """Return the line for a sticker that moves, and that nobody can look at."""
    return f"[Animated sticker{_sticker_words(emoji, '')}; what it shows is not known]"


def _sticker_words(emoji: str, set_name: str) -> str:
    return (f" {_escape_text(emoji)}" if emoji else "") + (
        f' of the set "{_escape_text(set_name)}"' if set_name else ""
    )


def _escape_text(text: str) -> str:
    """Return a foreign text that cannot end the line, or the brackets, that it stands in."""
    return " ".join(text.split()).replace("[", "(").replace("]", ")")


def _sticker_file() -> JsonFile:
    return JsonFile(hermes_home() / "sticker_cache.json")


KEEPALIVE_S = 2.0
"""Shorter than what servers allow, so that no request goes into a connection that is just being closed."""


def load_gateway_config() -> GatewayConfig:
    """Return the gateway's settings: config, environment and what the registered platforms say of themselves."""
    return gateway_config(load_config(), host().platforms)


def gateway_model(config: Mapping[str, Any] | None = None) -> str:
    """Return the name of the model that answers in chats; empty when there is none to be had.

    Args:
        config: a config whose block `model` takes the place of the one in effect.
    """
    try:
        return host().select_model(settings=None if config is None else _model_block(config)).model
    except UserError as exc:
        logger.info("no model can be had: %s", exc)
        return ""


def runtime_agent_arguments() -> dict[str, Any]:
    """Return what `AIAgent` is made with, beside `model`, to answer as the configured model does.

    `provider` names the endpoint. `api_key` and `base_url` are there and None: plugins are not given them, and
    `AIAgent` takes both from the config itself.

    Raises:
        UserError: no model can be had.
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
    """Return the host's own registry: what is patched on it is patched for the agent."""
    return host().platforms


def platform_httpx_limits() -> httpx.Limits | None:
    """Return limits for an adapter's HTTP client; None where httpx is not installed."""
    try:
        import httpx  # 60 ms, and most processes need none
    except ImportError:
        return None
    return httpx.Limits(max_connections=100, max_keepalive_connections=10, keepalive_expiry=KEEPALIVE_S)


def running_gateway() -> Any:
    """Return the gateway that runs in this process, None where none does; adapters have it as `gateway_runner`."""
    return host().running_gateway()


def id_list(raw: Any) -> frozenset[str]:
    """Return the ids that a setting names: a list, a number, or a text with commas."""
    given = (
        raw.split(",") if isinstance(raw, str) else raw if isinstance(raw, list | tuple | set | frozenset) else [raw]
    )
    return frozenset(text for one in given if one is not None and (text := str(one).strip()))


def not_sent(message: str) -> dict[str, object]:
    """Return the result of a message that could not be sent."""
    return {"success": False, "error": str(message)}


class _OpenClarifications(Mapping[str, PendingQuestion[str]]):
    """The open questions to people by id, as upstream's `_entries`."""

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
    """Take the conversation's next message for the answer; false when the question is not open."""
    question = host().questions.get(clarify_id)
    if question is None:
        return False
    question.awaiting_text = True
    return True


def resolve_gateway_clarify(clarify_id: str, response: str) -> bool:
    """Answer an open question; false when it is not open."""
    return host().questions.answer(clarify_id, response)


await_confirmation = of_host(lambda host: host.confirms, PendingConfirmations.register)
pending_confirmation = of_host(lambda host: host.confirms, PendingConfirmations.get_pending)
forget_confirmation = of_host(lambda host: host.confirms, PendingConfirmations.clear)


async def confirm(session_key: str, confirm_id: str, choice: str) -> str | None:
    """Do what waits and return the reply; None when it is not that which waits, or it was cancelled silently."""
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
    """Several jobs have the name; the text has their ids."""


def load_jobs() -> list[dict[str, Any]]:
    """Return the jobs, each in upstream's shape."""
    path = hermes_home() / "state.db"
    if not path.exists():
        return []
    with contextlib.closing(JobStore(path)) as store:
        return [job.to_dict() for job in store.jobs()]


def list_jobs(include_disabled: bool = False) -> list[dict[str, Any]]:
    """Return the jobs that are due some time, or all of them."""
    return [job for job in load_jobs() if include_disabled or job["enabled"]]


def get_job(job_id: str) -> dict[str, Any] | None:
    """Return the job with this id, or None."""
    return next((job for job in load_jobs() if job["id"] == job_id), None)


def resolve_job_ref(ref: str) -> dict[str, Any] | None:
    """Return the job with this id, else the one of this name, whatever its case; None when there is none.

    Raises:
        AmbiguousJobReference: several have the name.
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
    **more: Any,
) -> dict[str, Any]:
    """Make a job and return it.

    Args:
        origin: taken for `deliver` where that is not given: `platform`, `chat_id`, `thread_id`.
        skill: one of `skills`.
        provider: not taken, as `base_url`: which endpoint a model has is the config's matter.
        more: `script`, `context_from`, `enabled_toolsets`, `workdir`, `no_agent`, `attach_to_session`.

    Raises:
        ValueError: the job cannot be: the text says why.
        PermissionError: it needs an approval, and there is no approver, or the answer was `deny`.
        TypeError: something of it is not known here.
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
    }
    wanted["skills"] = [*([skill] if skill else []), *(skills or [])] or None
    return _act("create", **_supported_fields({**wanted, **more}))


def update_job(job_id: str, updates: Mapping[str, Any]) -> dict[str, Any] | None:
    """Change a job and return it; None when there is none. `enabled` pauses it, or lets it go on.

    Raises:
        ValueError, PermissionError, TypeError: as `create_job`.
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
    """Let a job, by id or name, not run until it is resumed; None when there is none.

    Args:
        reason: nothing here shows it.
    """
    return _on("pause", job_id)


def resume_job(job_id: str) -> dict[str, Any] | None:
    """Let a paused job, by id or name, run again; None when there is none."""
    return _on("resume", job_id)


def trigger_job(job_id: str) -> dict[str, Any] | None:
    """Have a job, by id or name, run now; None when there is none."""
    return _on("run", job_id)


def remove_job(job_id: str) -> bool:
    """Forget a job, by id or name; false when there is none."""
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
