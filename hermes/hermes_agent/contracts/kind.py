"""What is the same for every extension kind."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Kind"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of extension.

    Attributes:
        name: the word for it in code, docs and reports (`tool`).
        ctx_method: how a plugin registers one (`register_tool`).
        label: the words for people (`slash command`).
        used: something in this release asks it; false for what is registered, listed and selected alone.
    """

    name: str
    ctx_method: str
    label: str
    is_used: bool = False
