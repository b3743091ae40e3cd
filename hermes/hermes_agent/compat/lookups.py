"""Upstream's small lookups: who writes in WhatsApp, which skills are off, what a tool looks like.

Source: plugin contract §8.1, §8.2, §11.2.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import re
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from hermes_agent.adapters.events import MessageType
from hermes_agent.compat import CONTRACT_LEVEL
from hermes_agent.compat.agent import host
from hermes_agent.compat.config import save_config
from hermes_agent.config import hermes_home
from hermes_agent.core.untrusted import find_injection
from hermes_agent.service.daemon_state import lock_holder

_WHATSAPP_ID = re.compile(r"[A-Za-z0-9._+-]+")
_PLACEHOLDERS = frozenset(
    [
        "*",
        "**",
        "***",
        "changeme",
        "dummy",
        "example",
        "none",
        "null",
        "placeholder",
        "your-api-key",
        "your_api_key",
        "your_api_key_here",
    ]
)


# -- people in WhatsApp ------------------------------------------------------------------------------------------------


def normalize_whatsapp_identifier(value: str) -> str:
    """Return the number in an address of WhatsApp.

    `60123@s.whatsapp.net`, `60123:4@lid` and `+60123` are all `60123`.
    """
    return str(value or "").strip().replace("+", "", 1).partition(":")[0].partition("@")[0]


def expand_whatsapp_aliases(identifier: str) -> set[str]:
    """Return all numbers of a person in a bridge's mapping files, with the given one; none for "".

    A bridge writes them as `lid-mapping-NUMBER.json` and `lid-mapping-NUMBER_reverse.json` into its session folder.
    """
    home = hermes_home()
    folders = (home / "platforms" / "whatsapp" / "session", home / "whatsapp" / "session")
    found: set[str] = set()
    waiting = [normalize_whatsapp_identifier(identifier)]
    while waiting:
        number = waiting.pop()
        if number in found or not _WHATSAPP_ID.fullmatch(number):
            continue
        found.add(number)
        for folder in folders:
            for suffix in ("", "_reverse"):
                with contextlib.suppress(OSError, ValueError):
                    read = json.loads((folder / f"lid-mapping-{number}{suffix}.json").read_text(encoding="utf-8"))
                    waiting.append(normalize_whatsapp_identifier(read))
    return found


def canonical_whatsapp_identifier(identifier: str) -> str:
    """Return the one number that stands for a person: the shortest alias; "" for an empty one."""
    aliases = expand_whatsapp_aliases(identifier)
    return (
        min(aliases, key=lambda number: (len(number), number)) if aliases else normalize_whatsapp_identifier(identifier)
    )


# -- skills, tools, keys -----------------------------------------------------------------------------------------------


def get_disabled_skills(config: Mapping[str, Any], platform: str | None = None) -> set[str]:
    """Return the skills that a config disables, everywhere or also on a platform."""
    section = config.get("skills")
    section = section if isinstance(section, Mapping) else {}
    by_platform = section.get("platform_disabled")
    by_platform = by_platform if isinstance(by_platform, Mapping) and platform is not None else {}
    return {*_names(section.get("disabled")), *_names(by_platform.get(platform))}


def save_disabled_skills(config: dict[str, Any], disabled: set[str], platform: str | None = None) -> None:
    """Write the skills that are disabled, everywhere or on one platform, into the config.

    Raises:
        PermissionError: an administrator manages the setting or the file.
    """
    section = config.setdefault("skills", {})
    if platform is None:
        section["disabled"] = sorted(disabled)
    else:
        section.setdefault("platform_disabled", {})[platform] = sorted(disabled)
    save_config(config)


def _names(value: Any) -> list[str]:
    return [str(name).strip() for name in ([value] if isinstance(value, str) else value or ()) if str(name).strip()]


def get_tool_emoji(tool_name: str, default: str = "⚡") -> str:
    """Return the emoji of a tool, or `default`."""
    entry = host().tools.get_entry(tool_name)
    return (entry.emoji if entry is not None else "") or default


def scan_memory(content: str) -> str | None:
    """Return why a text is not kept as a memory, or None: it looks like an instruction to the agent."""
    why = find_injection(content)
    return f"Blocked: {why}" if why else None


def has_usable_secret(value: Any, *, min_length: int = 4) -> bool:
    """Return whether a value may be a secret: long enough, and none of the words that stand for one."""
    text = value.strip() if isinstance(value, str) else ""
    return len(text) >= min_length and text.lower() not in _PLACEHOLDERS


@contextlib.contextmanager
def suppress_interactive_oauth() -> Iterator[None]:
    """Ask for no sign-in meanwhile; only `hermes mcp login` asks, so nothing has to change."""
    yield


def is_gateway_running(pid_path: Any = None, *, cleanup_stale: bool = True) -> bool:
    """Return whether a daemon runs for this home.

    Args:
        pid_path, cleanup_stale: accepted and ignored; a lock of the home tells it.
    """
    return lock_holder(hermes_home()) is not None


def profile_user_agent() -> str:
    """Return the name that a profile's own requests give to the program."""
    return f"hermes-cli/{CONTRACT_LEVEL}"


def thread_metadata(source: Any, reply_to_message_id: str | None = None) -> dict[str, Any] | None:
    """Return the metadata with which a reply reaches the thread of a message; None without one."""
    thread, platform = getattr(source, "thread_id", None), getattr(source, "platform", None)
    platform = getattr(platform, "value", platform)
    found: dict[str, Any] = {} if thread is None else {"thread_id": thread}
    if platform == "slack" and (workspace := getattr(source, "scope_id", None)):
        found["slack_team_id"] = str(workspace)
    if found and platform == "telegram" and getattr(source, "chat_type", None) == "dm":
        found["telegram_dm_topic_reply_fallback"] = True
        if str(thread) not in ("", "1"):
            found["direct_messages_topic_id"] = str(thread)
        answered = reply_to_message_id or getattr(source, "message_id", None)
        if answered is not None:
            found["telegram_reply_to_message_id"] = str(answered)
    return found or None


_RESTART = re.compile(r"(please\s+)?restart\s+((the\s+)?(hermes\s+)?gateway|hermes)[.!?\s]*", re.IGNORECASE)


def coerce_plaintext_gateway_command(event: Any) -> None:
    """Make `/restart` of a direct message that asks in plain words for a restart of the gateway."""
    if getattr(event, "message_type", None) is not MessageType.TEXT:
        return
    is_direct = getattr(getattr(event, "source", None), "chat_type", None) == "dm"
    if is_direct and _RESTART.fullmatch((event.text or "").strip()):
        event.text = "/restart"


# -- where an adapter listens ------------------------------------------------------------------------------------------


def is_network_accessible(host: str) -> bool:
    """Return whether other machines reach a server that listens on a host; they do if its name is unknown."""
    try:
        found = {ipaddress.ip_address(host)}
    except ValueError:
        try:
            answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, ValueError):
            return True
        found = {ipaddress.ip_address(address[0]) for *_, address in answers}
    return not all((getattr(address, "ipv4_mapped", None) or address).is_loopback for address in found)
