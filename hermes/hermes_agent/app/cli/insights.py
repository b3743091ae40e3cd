"""`hermes insights`: tokens, cost and time of models, as tables, JSON or a picture."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.app.cli.command import JSON, Args, CliSubcommand, argument, print_json
from hermes_agent.config import hermes_home

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
"""Tables of the picture, beside the days."""
MOST_ROWS = 20
"""Rows of a table of sessions: the most expensive ones."""

insights_command = CliSubcommand(
    "insights", "tokens, cost and time by day, model, session, person, plugin, front door and cause"
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
    argument("--source", default="", metavar="NAME", help="only this front door: cli, api_server, telegram, …"),
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
    from hermes_agent.app.cli.insights_picture import draw

    path = Path(name).expanduser()
    try:
        path.write_text(draw(tables, days), encoding="utf-8")
    except OSError as exc:
        print(f"{path}: {exc.strerror or exc}; name another file", file=sys.stderr)
        return 1
    print(path)
    return 0
