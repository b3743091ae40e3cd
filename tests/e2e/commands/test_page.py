"""The table of commands in the docs is made from the declarations; run this file to write it."""

from __future__ import annotations

import re
from pathlib import Path

from hermes_agent.commands import CommandTable
from hermes_agent.contracts.command import EVERYWHERE, SlashCommand
from hermes_agent.testing.chat import chat_host

PAGE = Path(__file__).parents[3] / "docs" / "operator" / "slash-commands.md"
BEGIN, END = "<!-- commands: made from their declarations -->\n", "<!-- end of commands -->\n"
FRONT_ENDS = {"terminal": "console", "chat": "chats", "http": "HTTP", "socket": "group members"}


def page_table() -> str:
    """Return the table of the agent's own commands, by name."""
    with chat_host() as chat:
        return markdown(chat.host.host.commands)


def markdown(table: CommandTable) -> str:
    """Return the table in Markdown: one row for each declaration."""
    rows = [
        "| command | does | where | in chats | during a turn |",
        "| --- | --- | --- | --- | --- |",
        *(row(command) for _, command in sorted(table.items())),
    ]
    return "\n".join(rows) + "\n"


def row(command: SlashCommand) -> str:
    """Return the row of one command."""
    hint = command.args_hint.replace("|", "\\|")
    names = [f"`/{f'{command.name} {hint}'.strip()}`", *(f"`/{alias}`" for alias in command.aliases)]
    everywhere = command.where == EVERYWHERE
    places = "everywhere" if everywhere else ", ".join(n for w, n in FRONT_ENDS.items() if w in command.where)
    right = {"always": "everyone, always", "anyone": "everyone", "known": "users allowed one by one"}[command.right]
    chats = (right + (", asks first" if command.confirm else "")) if "chat" in command.where else ""
    during_turn = "yes" if command.during_turn else ""
    if command.waits_in:
        during_turn += f", but not in the {', '.join(n for w, n in FRONT_ENDS.items() if w in command.waits_in)}"
    return f"| {', '.join(names)} | {command.description} | {places} | {chats} | {during_turn} |"


def test_the_table_in_the_docs_is_what_is_declared() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.partition(BEGIN)[2].partition(END)[0] == page_table()


if __name__ == "__main__":
    old = PAGE.read_text(encoding="utf-8")
    block = re.escape(BEGIN) + ".*?" + re.escape(END)
    PAGE.write_text(re.sub(block, lambda _: BEGIN + page_table() + END, old, flags=re.DOTALL), encoding="utf-8")
