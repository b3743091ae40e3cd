"""What a text of a group says to the agent: its name in front, its name within, a command. Source: contract §8.2."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["strip_mention", "as_command"]


def strip_mention(text: str, names: Iterable[str]) -> tuple[str, bool]:
    """Return a text without the agent's name in front, and whether it names the agent.

    Args:
        names: what the agent is called there; with and without `@`.
    """
    either = "|".join(sorted((re.escape(name) for name in names if name), key=len, reverse=True))
    if not either:
        return text.strip(), False
    front = re.match(rf"\s*@?(?:{either})(?:[:,]\s*|\s+)(?=\S)", text, re.IGNORECASE)
    if front:
        return text[front.end() :].strip(), True
    return text.strip(), re.search(rf"(?<![\w-])@?(?:{either})(?![\w-])", text, re.IGNORECASE) is not None


def as_command(text: str) -> str:
    """Return a text that begins with `!name` as the command `/name`: some clients keep slashes for themselves."""
    return f"/{text[1:]}" if re.match(r"![a-zA-Z]", text) else text
