"""`hermes insights`: tokens, cost and time of models, as tables, JSON or a picture."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from hermes_agent.app.cli.command import JSON, Args, CliSubcommand, argument, print_json
from hermes_agent.config import hermes_home
from hermes_agent.core.text import shorten

if TYPE_CHECKING:
    from hermes_agent.sessions import UsageTotals

COLUMNS = {
    "day": "day",
    "model": "model",
    "source": "source",
    "cause": "cause",
    "plugin": "plugin",
    "session": "session_id",
    "person": "principal",
    "principal": "principal",
}
"""What `--by` takes, and the columns of the record."""
USUAL = ("day", "model", "source", "cause")
PICTURED = ("model", "person", "cause", "plugin")
"""Tables of the picture, next to the days."""
MOST_ROWS = 20
"""Rows of a table of sessions: the most expensive ones."""

insights_command = CliSubcommand(
    "insights", "show tokens, cost and time by day, model, session, person, plugin, front end and cause"
)
add_insights = insights_command.add


def _days(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than a day")
    return number


@insights_command.default(
    argument("--days", type=_days, default=30, metavar="N", help="the last N days, today included (30)"),
    argument(
        "--by",
        choices=tuple(COLUMNS),
        metavar="|".join(COLUMNS),
        help="only one table (day, model, source, cause, and person and plugin where there are several)",
    ),
    argument("--source", default="", metavar="NAME", help="only this front end: cli, api_server, telegram, …"),
    argument("--picture", default="", metavar="FILE", help="write a picture (SVG) of days, models, people and causes"),
    JSON,
)
def _show_insights(args: Args) -> int:
    tables = _read_tables(args)
    if args.picture:
        return _write_picture(args.picture, tables, args.days)
    if args.json:
        return print_json(
            {name: {key or "": _as_json(spent) for key, spent in table.items()} for name, table in tables.items()}
        )
    if not any(tables.values()):
        print(f"No model was asked in the last {args.days} day(s).")
        return 0
    for name, table in tables.items():
        _print_table(name, table)
    return 0


def _read_tables(args: Args) -> dict[str, dict[str, UsageTotals]]:
    from hermes_agent.sessions import UsageLedger

    path = hermes_home() / "state.db"
    wanted = ("day", *PICTURED) if args.picture else (args.by,) if args.by else (*USUAL, "person", "plugin")
    if not path.exists():
        return {name: {} for name in (wanted if args.by else USUAL)}
    ledger = UsageLedger(path)
    try:
        tables = {name: ledger.totals_by(COLUMNS[name], days=args.days, source=args.source) for name in wanted}
    finally:
        ledger.close()
    if not args.by and not args.picture:  # one person, and no plugin that asked
        tables = {name: table for name, table in tables.items() if name in USUAL or len(table) > 1}
    return tables


def _as_json(spent: UsageTotals) -> dict[str, Any]:
    return spent._asdict()


def _print_table(name: str, table: dict[str, UsageTotals]) -> None:
    print(f"{name:<28}{'calls':>8}{'input':>12}{'cached':>12}{'output':>12}{'cost':>10}{'time':>9}")
    rows = sorted(table.items()) if name == "day" else list(table.items())
    shown = rows[:MOST_ROWS] if name == "session" else rows
    for key, spent in shown:
        cost = f"${spent.cost_usd:.2f}" if spent.requests > spent.unpriced else "?"
        print(
            f"{key or '-':<28}{spent.requests:>8}{spent.input_tokens:>12,}{spent.cached_tokens:>12,}"
            f"{spent.output_tokens:>12,}{cost:>10}{spent.seconds:>8.0f}s"
        )
    if len(shown) < len(rows):
        print(f"… and {len(rows) - len(shown)} more (`--json` lists all)")
    print()


def _write_picture(name: str, tables: dict[str, dict[str, UsageTotals]], days: int) -> int:
    path = Path(name).expanduser()
    try:
        path.write_text(_draw(tables, days), encoding="utf-8")
    except OSError as exc:
        print(f"{path}: {exc.strerror or exc}; name another file", file=sys.stderr)
        return 1
    print(path)
    return 0


# -- the picture: bars for days, models, people, causes and plugins ----------------------------------------------------

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


def _draw(tables: Mapping[str, Mapping[str, UsageTotals]], days: int) -> str:
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
    values = [_value(table.get(name, _zero()), in_dollars) for name in names]
    most, step = max(values) or 1.0, (WIDTH - 2 * MARGIN) / days
    for at, (name, value) in enumerate(zip(names, values, strict=True)):
        height = BARS_HEIGHT * value / most
        shown = f"{name}: {_amount(table.get(name, _zero()), in_dollars)}"
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
        parts.append(f'<text x="{MARGIN}" y="{y + 15}">{escape(shorten(key, 32))}</text>')
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
    from hermes_agent.sessions import UsageTotals

    found = UsageTotals()
    for each in rows:  # type: ignore[attr-defined]
        found = UsageTotals(*(a + b for a, b in zip(found, each, strict=True)))
    return found


def _zero() -> UsageTotals:
    from hermes_agent.sessions import UsageTotals

    return UsageTotals()
