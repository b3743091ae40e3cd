"""Personalities: texts of the config that change how the agent speaks, and `/personality`.

The text is a section at the end of a session's system prompt. The choice belongs to the session and is stored with its
prompt; `display.personality` names that of new sessions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from hermes_agent.agent.agent import Agent
from hermes_agent.config.settings import Settings
from hermes_agent.core.caches import LruDict
from hermes_agent.core.errors import CommandFailed
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.text import nearest_name
from hermes_agent.tools import current_scope

NONE = ("", "none", "default", "off")
MAX_CHOICES = 1_000
"""Sessions for which a choice is kept until their first message."""
_END = "(End of the personality.)"
_SECTION = re.compile(rf"(?:\n\n)?## Personality: [^\n]*\n.*?\n{re.escape(_END)}", re.DOTALL)


class Personality(LazyNamedTuple):
    """One personality."""

    name: str
    prompt: str
    description: str = ""


_BUILTIN = (
    Personality("concise", "Answer in as few words as the question allows. No preamble, no summary.", "few words"),
    Personality(
        "technical",
        "The user is an experienced engineer. Use exact terms, name versions, files and commands, and state limits.",
        "exact terms, for engineers",
    ),
    Personality(
        "teacher",
        "Explain each step and why it is taken. Define a term when it first occurs, and end with what to try next.",
        "explains each step",
    ),
    Personality("creative", "Offer several different ideas, unusual ones too, before you judge them.", "several ideas"),
)


def known_personalities(configured: Any) -> dict[str, Personality]:
    """Return the built-in personalities and those of the config's `personalities`, which win."""
    found = {each.name: each for each in _BUILTIN}
    for name, value in configured.items() if isinstance(configured, Mapping) else ():
        if isinstance(value, Mapping):
            text = str(value.get("prompt") or value.get("system_prompt") or "")
            about = str(value.get("description") or "")
        else:
            text, about = str(value or ""), ""
        if text.strip():
            found[str(name)] = Personality(str(name), text.strip(), about or " ".join(text.split())[:60])
    return found


class Personalities:
    """The personalities of a host, and which session has which.

    Args:
        settings: returns the settings in effect.
    """

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._chosen: LruDict[str, str] = LruDict(MAX_CHOICES)

    def known(self) -> dict[str, Personality]:
        """Return the personalities by name."""
        return known_personalities(self._settings().personalities)

    def find(self, name: str) -> Personality | None:
        """Return the personality of a name, in any case."""
        known = self.known()
        return known.get(name) or next((each for key, each in known.items() if key.lower() == name.lower()), None)

    def choose(self, session_id: str, name: str) -> None:
        """Store the choice of a session that has no message yet."""
        self._chosen[session_id] = name

    def section(self, session_id: str) -> str:
        """Return the section of the prompt of a new session, or "" without one."""
        name = self._chosen.get(session_id)
        return self.text((self._settings().display.personality or "") if name is None else name)

    def text(self, name: str) -> str:
        """Return the section for a personality, or "" for none and for an unknown one."""
        found = None if name.lower() in NONE else self.find(name)
        return "" if found is None else f"## Personality: {found.name}\n{found.prompt}\n{_END}"

    def replace(self, prompt: str, name: str) -> str:
        """Return a system prompt with another personality."""
        section = self.text(name)
        rest = _SECTION.sub("", prompt).rstrip()
        return f"{rest}\n\n{section}" if section else rest

    def list_text(self, prompt: str) -> str:
        """Return the answer to `/personality`.

        Args:
            prompt: the system prompt of the session.
        """
        found = _SECTION.search(prompt)
        now = found[0].strip().partition("\n")[0].removeprefix("## Personality: ") if found else "none"
        known = self.known()
        width = max(map(len, known))
        rows = [f"  {name:<{width}}  {each.description}" for name, each in sorted(known.items())]
        return "\n".join([f"Personality: {now}. /personality NAME chooses one, /personality none has none.", *rows])


def answer(agent: Agent, personalities: Personalities, raw_args: str) -> str:
    """Run `/personality` in the session where it was typed, in a worker."""
    scope = current_scope.get()
    session_id = "" if scope is None else scope.session_id
    return agent.bridge.wait_core(_change(agent, personalities, session_id, raw_args.strip()))


async def _change(agent: Agent, personalities: Personalities, session_id: str, name: str) -> str:
    conversation = agent.find_open(session_id)
    stored = await agent.call_transcript("system_prompt", session_id) if session_id else None
    prompt = conversation.system_prompt if conversation is not None else stored or personalities.section(session_id)
    if not name:
        return personalities.list_text(prompt)
    if name.lower() not in NONE and personalities.find(name) is None:
        near = nearest_name(name, personalities.known())
        hint = f" Did you mean {near}?" if near else ""
        raise CommandFailed(f"There is no personality {name!r}.{hint} /personality lists them.")
    personalities.choose(session_id, name)
    if conversation is not None:
        conversation.system_prompt = personalities.replace(conversation.system_prompt, name)
    if stored is not None:
        await agent.call_transcript("set_system_prompt", session_id, personalities.replace(stored, name))
    return "No personality from the next message on." if name.lower() in NONE else f"Personality: {name}."
