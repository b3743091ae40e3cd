"""The model makes the same call again and again: first it is told, then the turn ends."""

from __future__ import annotations

from typing import Any

from hermes_agent.tools.handlers import frozen

__all__ = ["Repetition"]


class Repetition:
    """Counts identical calls in a row.

    Args:
        notice_after: how many bring a notice; 0 never does.
        end_after: how many end the turn; 0 never does.
    """

    def __init__(self, notice_after: int, end_after: int) -> None:
        self._notice_after, self._end_after = notice_after, end_after
        self._last: tuple[str, str] = ("", "")
        self._count = 0

    def count(self, name: str, arguments: dict[str, Any] | None, raw: str) -> int:
        """Note a call and return how many times in a row it was made.

        Args:
            raw: the arguments as the model wrote them, for those that do not parse.
        """
        call = (name, raw if arguments is None else frozen(arguments))
        self._count = self._count + 1 if call == self._last else 1
        self._last = call
        return self._count

    def ends(self, count: int) -> bool:
        """Say whether the turn ends instead of the call."""
        return 0 < self._end_after <= count

    def notice(self, name: str, count: int) -> str:
        """Return what is added to the result of a call; empty for most."""
        if not 0 < self._notice_after <= count:
            return ""
        last = f" At call {self._end_after} the turn ends." if self._end_after else ""
        return (
            f"\n\n[Notice: this is call {count} of {name} in a row with the same arguments. Another one will bring"
            f" nothing new: try something else, or say what stops you.{last}]"
        )

    def sentence(self, name: str, count: int) -> str:
        """Return what the person is told when the turn ends."""
        return f"I stopped: I was about to call {name} with the same arguments for the {count}th time in a row."
