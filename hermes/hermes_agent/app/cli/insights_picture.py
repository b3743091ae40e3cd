"""The picture of `hermes insights`: bars for days, models, people, causes and plugins, as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from xml.sax.saxutils import escape

from hermes_agent.sessions import UsageTotals

WIDTH, MARGIN, BARS_HEIGHT, ROW = 760, 24, 160, 22
LABEL = 220
"""Width of the names of a table."""
MOST_BARS = 8
"""Rows of a table; the others are one row."""
STYLE = (
    "text{font:12px sans-serif;fill:#222}.h{font-weight:bold;font-size:14px}.s{fill:#666}"
    "@media(prefers-color-scheme:dark){text{fill:#eee}.s{fill:#aaa}}"
)
COLOR = "#3b7dd8"


def draw(tables: Mapping[str, Mapping[str, UsageTotals]], days: int) -> str:
    """Return the picture. Bars show dollars, or tokens where no price of any model is known."""
    total = _sum(tables.get("day", {}).values())
    in_dollars = total.cost_usd > 0
    parts: list[str] = []
    y = MARGIN + 16
    title = f"Models in the last {days} days: {_amount(total, in_dollars)}, {total.requests:,} calls"
    parts.append(f'<text class="h" x="{MARGIN}" y="{y}">{escape(title)}</text>')
    y = _draw_days(parts, tables.get("day", {}), days, y + 16, in_dollars)
    for name, table in tables.items():
        rows = [(key or "-", spent) for key, spent in table.items()]
        if name != "day" and any(key != "-" for key, _ in rows):
            y = _draw_table(parts, name, rows, y + 20, in_dollars)
    height = y + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDTH} {height}"'
        f' width="{WIDTH}" height="{height}"><title>{escape(title)}</title><style>{STYLE}</style>'
    )
    return head + "".join(parts) + "</svg>\n"


def _draw_days(parts: list[str], table: Mapping[str, UsageTotals], days: int, y: int, in_dollars: bool) -> int:
    """Add a bar for each day, also for those without a call; return the lower end."""
    today = date.today()
    names = [(today - timedelta(days=days - 1 - at)).isoformat() for at in range(days)]
    values = [_value(table.get(name, UsageTotals()), in_dollars) for name in names]
    most, step = max(values) or 1.0, (WIDTH - 2 * MARGIN) / days
    for at, (name, value) in enumerate(zip(names, values, strict=True)):
        height = BARS_HEIGHT * value / most
        shown = f"{name}: {_amount(table.get(name, UsageTotals()), in_dollars)}"
        parts.append(
            f'<rect x="{MARGIN + at * step:.1f}" y="{y + BARS_HEIGHT - height:.1f}" width="{max(step - 2, 0.5):.1f}"'
            f' height="{height:.1f}" fill="{COLOR}"><title>{escape(shown)}</title></rect>'
        )
    y += BARS_HEIGHT + 16
    parts.append(f'<text class="s" x="{MARGIN}" y="{y}">{names[0]}</text>')
    parts.append(f'<text class="s" x="{WIDTH - MARGIN}" y="{y}" text-anchor="end">{names[-1]}</text>')
    return y


def _draw_table(parts: list[str], name: str, rows: list[tuple[str, UsageTotals]], y: int, in_dollars: bool) -> int:
    """Add a horizontal bar for each row, the largest first; return the lower end."""
    rows = sorted(rows, key=lambda row: _value(row[1], in_dollars), reverse=True)
    if len(rows) > MOST_BARS:
        rest = rows[MOST_BARS - 1 :]
        rows = [*rows[: MOST_BARS - 1], (f"{len(rest)} others", _sum(spent for _, spent in rest))]
    most = max(_value(spent, in_dollars) for _, spent in rows) or 1.0
    parts.append(f'<text class="h" x="{MARGIN}" y="{y + 10}">{escape(name)}</text>')
    y += 20
    room = WIDTH - 2 * MARGIN - LABEL - 110
    for key, spent in rows:
        width = room * _value(spent, in_dollars) / most
        shown = key if len(key) <= 32 else key[:31] + "…"
        parts.append(f'<text x="{MARGIN}" y="{y + 15}">{escape(shown)}</text>')
        parts.append(
            f'<rect x="{MARGIN + LABEL}" y="{y + 4}" width="{max(width, 1):.1f}" height="{ROW - 8}" fill="{COLOR}"/>'
        )
        parts.append(
            f'<text class="s" x="{MARGIN + LABEL + max(width, 1) + 6:.1f}" y="{y + 15}">'
            f"{escape(_amount(spent, in_dollars))}</text>"
        )
        y += ROW
    return y


def _value(spent: UsageTotals, in_dollars: bool) -> float:
    return spent.cost_usd if in_dollars else float(spent.tokens)


def _amount(spent: UsageTotals, in_dollars: bool) -> str:
    return f"${spent.cost_usd:.2f}" if in_dollars else f"{spent.tokens:,} tokens"


def _sum(rows: object) -> UsageTotals:
    found = UsageTotals()
    for each in rows:  # type: ignore[attr-defined]
        found = UsageTotals(*(a + b for a, b in zip(found, each, strict=True)))
    return found
