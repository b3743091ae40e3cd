"""`hermes insights`: what models were asked for, and what it cost, from `state.db`."""

from __future__ import annotations

import argparse

from hermes_agent.app.cli.command import JSON, Args, CliSubcommand, argument, print_json
from hermes_agent.config import hermes_home

__all__ = ["add_insights"]

INSIGHT_COLUMNS = ("day", "model", "source", "cause", "plugin", "principal")

insights_command = CliSubcommand("insights", "tokens, cost and time by day, model, front door and cause")
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
        choices=INSIGHT_COLUMNS,
        metavar="|".join(INSIGHT_COLUMNS),
        help="only one table (day, model, source and cause)",
    ),
    argument("--source", default="", metavar="NAME", help="only this front door: cli, api_server, telegram, …"),
    JSON,
)
def _show_insights(args: Args) -> int:
    from hermes_agent.sessions import UsageLedger

    path = hermes_home() / "state.db"
    columns = (args.by,) if args.by else ("day", "model", "source", "cause")
    tables = {}
    if path.exists():
        ledger = UsageLedger(path)
        tables = {column: ledger.totals_by(column, days=args.days, source=args.source) for column in columns}
        ledger.close()
    if args.json:
        out = {c: {name or "": spent._asdict() for name, spent in table.items()} for c, table in tables.items()}
        return print_json(out)
    if not any(tables.values()):
        print(f"No model was asked in the last {args.days} day(s).")
        return 0
    for column, table in tables.items():
        print(f"{column:<28}{'calls':>8}{'input':>12}{'cached':>12}{'output':>12}{'cost':>10}{'time':>9}")
        rows = sorted(table.items()) if column == "day" else list(table.items())
        for name, spent in rows:
            cost = f"${spent.cost_usd:.2f}" if spent.requests > spent.unpriced else "?"
            print(
                f"{name or '-':<28}{spent.requests:>8}{spent.input_tokens:>12,}{spent.cached_tokens:>12,}"
                f"{spent.output_tokens:>12,}{cost:>10}{spent.seconds:>8.0f}s"
            )
        print()
    return 0
