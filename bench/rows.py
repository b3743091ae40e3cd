"""A row of the table: what was measured, and how much of it there may be."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Row", "table"]


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        shown: the measured values, for people.
        value: what the budget is about: mostly a ratio of two measurements of this run.
        budget: `value` may not be more than this; None: there is none.
        floor: `value` may not be less than this; None: there is none.
    """

    name: str
    shown: str
    value: float
    budget: float | None = None
    floor: float | None = None

    @property
    def missed(self) -> bool:
        return (self.budget is not None and self.value > self.budget) or (
            self.floor is not None and self.value < self.floor
        )

    def __str__(self) -> str:
        limit = f"at most {self.budget:g}" if self.budget is not None else ""
        limit = f"at least {self.floor:g}" if self.floor is not None else limit
        return f"{self.name:<62} {self.shown:>34} {self.value:9.3f}  {limit:<14}{'  MISSED' if self.missed else ''}"


def table(title: str, rows: list[Row]) -> None:
    """Print a section's rows."""
    print(f"\n{title}")
    for row in rows:
        print(f"  {row}", flush=True)
