"""Asks the user of the console: approvals and clarifications as menus."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hermes_agent.console.dependencies import StartQuestion
from hermes_agent.console.menus import Menu, MenuOption
from hermes_agent.console.screen import Screen
from hermes_agent.console.styled import Line, Piece, fit, line, printable, wrap
from hermes_agent.console.transcript_view import TranscriptView
from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.policy import Choice, Refusal
from hermes_agent.runtime.bridge import Bridge

MAX_DETAIL_LINES = 30
MAX_HOSTS = 5
_HOST = re.compile(
    r"[a-z][a-z0-9+.-]*://(?:[^\s/@'\"]*@)?(\[[0-9a-f:.]+\]|[\w.-]+)|(?<!\S)[\w.-]+@([\w.-]+\w):", re.IGNORECASE
)
_OTHER = "\0other"

_OPTIONS = {
    "once": MenuOption("Allow once", "once", "o"),
    "session": MenuOption("Allow for this session", "session", "s"),
    "always": MenuOption("Always allow", "always", "a", "stored in the config"),
    "deny": MenuOption("Deny", "deny", "d"),
}
_REASON = MenuOption("Deny, and say why", "reason", "r", asks="Reason: ")
_DIFF_TOOLS = ("patch", "write_file")


class MenuApprover:
    """Shows approval requests and questions of the agent as menus of a screen."""

    def __init__(self, screen: Screen, view: TranscriptView) -> None:
        self._screen = screen
        self._view = view

    async def ask(self, request: ApprovalRequest) -> Choice | Refusal:
        """Return the user's decision; a cancelled menu denies."""
        options = [*(_OPTIONS[answer] for answer in request.answers), _REASON]
        if request.covers:
            options = [o._replace(details=f"covers {request.covers}") if o.value == "session" else o for o in options]
        self._view.waits_for = "Waiting for your approval"
        try:
            chosen = await self._screen.choose(Menu(self._title(request), options))
        finally:
            self._view.waits_for = ""
        value = "deny" if chosen is None else chosen.value
        subject = fit(printable(request.detail).partition("\n")[0], 60)
        if value == "reason":
            reason = chosen.text.strip() if chosen is not None else ""
            self._view.note(f"denied: {subject}" + (f" ({reason})" if reason else ""), "dim")
            if reason:
                return Refusal(f"The user denied {request.tool} ({request.summary}) and says: {reason}")
            return "deny"
        words = {"once": "allowed once", "session": "allowed for this session", "always": "always allowed"}
        self._view.note(f"{words.get(value, 'denied')}: {subject}", "dim")
        return next((answer for answer in ("once", "session", "always") if answer == value), "deny")

    async def clarify(self, question: str, choices: Sequence[str] = ()) -> str | Refusal:
        """Return the user's answer to a question of the agent: a choice, or other words."""
        width = self._screen.width
        title: list[Line] = [(), *wrap([Piece("strong", printable(question))], width - 1)]
        self._view.waits_for = "Waiting for your answer"
        try:
            if choices:
                options = [MenuOption(printable(choice), choice) for choice in choices]
                options.append(MenuOption("Another answer", _OTHER, asks="Answer: "))
                chosen = await self._screen.choose(Menu(title, options))
                text = "" if chosen is None else chosen.text if chosen.value == _OTHER else chosen.value
            else:
                self._screen.print(title)
                text = await self._screen.ask("Answer: ") or ""
        finally:
            self._view.waits_for = ""
        if not text.strip():
            return Refusal("the user gave no answer")
        self._view.note(f"{' '.join(printable(question).split())} {printable(text.strip())}", "dim")
        return text.strip()

    def _title(self, request: ApprovalRequest) -> list[Line]:
        width = self._screen.width - 1
        who = f"plugin `{request.plugin}`: {request.tool}" if request.plugin else request.tool
        lines: list[Line] = [(), *wrap([Piece("alert", f"{who} wants to {printable(request.summary)}:")], width)]
        details = printable(request.detail).expandtabs(4).splitlines() or [""]
        for number, each in enumerate(details[:MAX_DETAIL_LINES]):
            lines += wrap([Piece(_detail_style(request.tool, number, each), each)], width, line("    "))
        if len(details) > MAX_DETAIL_LINES:
            lines.append(line(f"    … {len(details) - MAX_DETAIL_LINES} more lines", "dim"))
        if hosts := [host for host in hosts_in(request.detail) if host not in request.summary]:
            shown = ", ".join(hosts[:MAX_HOSTS]) + (
                f" and {len(hosts) - MAX_HOSTS} more" if len(hosts) > MAX_HOSTS else ""
            )
            lines += wrap([Piece("alert", f"    reaches {shown}")], width, (), line("    "))
        lines.append(line("Allow?", "strong"))
        return lines


def hosts_in(detail: str) -> list[str]:
    """Return the hosts of addresses in a request (`https://HOST/…`, `user@HOST:`), each once."""
    found = [printable(match[1] or match[2]).lower() for match in _HOST.finditer(detail)]
    return list(dict.fromkeys(found))


def _detail_style(tool: str, number: int, text: str) -> str:
    if tool in _DIFF_TOOLS:
        return {"+": "added", "-": "removed", "@": "hunk"}.get(text[:1], "")
    return "dim" if number and text.startswith("in ") else "command"


async def ask_at_start(
    screen: Screen, view: TranscriptView, bridge: Bridge, questions: Sequence[StartQuestion]
) -> None:
    """Ask what the user decides before the first message; without an answer nothing is accepted."""
    for question in questions:
        title = [line(printable(question.title), "strong")]
        title += [line(f"  {printable(each)}") for each in question.details.splitlines()[:MAX_DETAIL_LINES]]
        options = [MenuOption("Yes, allow it", "yes", "y"), MenuOption("Not now", "no", "n")]
        chosen = await screen.choose(Menu(title, options, cursor=1))
        if chosen is not None and chosen.value == "yes":
            view.note(await bridge.run(question.accept))
