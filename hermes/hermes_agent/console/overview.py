"""Lines about the chat itself: the banner, the status bar, and the picture of the context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hermes_agent.agent.compaction import ContextUsage
from hermes_agent.console.dependencies import BackgroundWork
from hermes_agent.console.styled import Line, Piece, cells, fit, line, printable, wrap
from hermes_agent.console.tool_lines import duration
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.redaction import redactor
from hermes_agent.sessions import UsageTotals


class Banner(LazyNamedTuple):
    """What the start of a chat says."""

    version: str
    plugins: Sequence[str] = ()
    """A line for each plugin: `calculator: calculate, unit_convert`."""
    hints: Sequence[str] = ()
    """What is not configured or does not work, with the command that changes it."""
    skills: Sequence[str] = ()
    toolsets: Mapping[str, Sequence[str]] = {}
    """Names of tools by toolset."""


def shown_path(path: Path) -> str:
    """Return a path with `~` for the home directory."""
    try:
        return f"~/{path.relative_to(Path.home())}".rstrip("/.")
    except ValueError:
        return str(path)


def banner_lines(banner: Banner, model: str, provider: str, address: str, directory: Path, width: int) -> list[Line]:
    """Return the lines of a banner.

    Args:
        address: where the model runs, or "".
    """
    place = f" at {address}" if address else ""
    rows: list[tuple[str, str]] = [
        ("model", f"{model} ({provider}){place}"),
        ("directory", shown_path(directory)),
    ]
    if banner.toolsets:
        rows.append(("tools", ", ".join(_counted(name, tools) for name, tools in sorted(banner.toolsets.items()))))
    rows += [("plugins" if not number else "", text) for number, text in enumerate(banner.plugins)]
    if banner.skills:
        names = ", ".join(banner.skills[:6]) + (f" and {len(banner.skills) - 6} more" if len(banner.skills) > 6 else "")
        rows.append(("skills", names))
    lines: list[Line] = [(Piece("heading", f"hermes-agent {banner.version}"),)]
    indent = 11 if width >= 60 else 2
    for name, text in rows:
        if indent == 2:
            label = f"{name}: " if name else ""
            lines += wrap([Piece("dim", label), Piece("", printable(text))], width, (), line("  "))
        else:
            lines += wrap([Piece("", printable(text))], width, line(f"{name:<{indent}}", "dim"), line(" " * indent))
    for hint in banner.hints:
        lines += wrap([Piece("warning", printable(hint))], width, line("! ", "warning"))
    lines += wrap([Piece("dim", "/help lists the commands, /keys the keys; Ctrl-C stops, Ctrl-D leaves")], width)
    return lines


def _counted(name: str, tools: Sequence[str]) -> str:
    return f"{name} ({len(tools)})" if len(tools) > 1 else name


FULL_PERCENT = 80
"""From here on the context is shown as nearly full."""


class Status(LazyNamedTuple):
    """What the status bar shows."""

    model: str
    tokens: int
    """Tokens of the next request, or 0 in an empty conversation."""
    window: int
    """Context window in tokens; 0 if unknown."""
    totals: UsageTotals
    """Usage of the session."""
    approvals: str
    """`manual`, `smart` or `off`."""


def status_line(status: Status, width: int) -> Line:
    """Return the status bar; on a narrow terminal the last parts are left out."""
    parts = [Piece("status", redactor.mask_known(printable(status.model)))]
    if status.tokens and status.window:
        percent = 100 * status.tokens // status.window
        share = f"{percent} %" if percent else "<1 %"
        parts.append(Piece("alert" if percent >= FULL_PERCENT else "status", f"context {share}"))
    if status.approvals == "off":
        parts.append(Piece("alert", "approvals off"))
    totals = status.totals
    if totals.requests:
        parts.append(Piece("status", cost_text(totals)))
        parts.append(Piece("status", duration(totals.seconds)))
    if status.approvals != "off":
        parts.append(Piece("status", f"approvals {status.approvals}"))
    line: list[Piece] = []
    for part in parts:
        added = [Piece("status", " · " if line else "  "), part]
        if cells([*line, *added]) > width:
            break
        line += added
    return tuple(line)


MAX_BACKGROUND_ROWS = 4


def background_lines(works: Sequence[BackgroundWork], now: float, width: int) -> list[Line]:
    """Return a row for each background process and each delegation."""
    rows: list[Line] = []
    for work in works[:MAX_BACKGROUND_ROWS]:
        age = f"  {duration(max(now - work.since, 0))}" if work.since else ""
        mark = {"command": "runs ", "subagent": "subagent: "}[work.kind]
        text = redactor.mask_known(printable(" ".join(work.text.split())))
        room = max(width - len(age) - len(mark) - 4, 8)
        rows.append((Piece("spinner", "  ⧗ "), Piece("dim", mark), Piece("status", fit(text, room)), Piece("dim", age)))
    if len(works) > MAX_BACKGROUND_ROWS:
        rows.append(line(f"  … {len(works) - MAX_BACKGROUND_ROWS} more in the background", "dim"))
    return rows


def cost_text(totals: UsageTotals) -> str:
    """Return the cost of calls, or their tokens where no price is known."""
    if totals.requests > totals.unpriced:
        return f"${totals.cost_usd:.4f}" + (" + unpriced" if totals.unpriced else "")
    return f"{totals.tokens:,} tokens"


_PARTS = (
    ("system prompt", "█", "hl-keyword"),
    ("tools", "▓", "hl-string"),
    ("messages", "▒", "hl-number"),
    ("free", "░", "dim"),
)
MAX_BAR = 60


def context_lines(usage: ContextUsage, model: str, width: int) -> list[Line]:
    """Return the picture. Each part has a sign of its own, so that it needs no colour."""
    window = usage.window
    tokens = (usage.system_prompt, usage.tools, usage.messages)
    total = sum(tokens)
    free = max(window - total, 0)
    room = f" of {window:,} tokens ({100 * total // window} %)" if window else " tokens; the context window is unknown"
    lines = wrap([Piece("strong", f"{model}: about {total:,}{room}")], width)
    bar = min(width - 2, MAX_BAR)
    scale = max(window, total, 1)
    sizes = [max(round(each * bar / scale), 1 if each else 0) for each in tokens]
    sizes.append(max(bar - sum(sizes), 0) if window else 0)
    lines.append(tuple(Piece(style, sign * size) for (_, sign, style), size in zip(_PARTS, sizes, strict=True) if size))
    for (name, sign, style), each in zip(_PARTS, (*tokens, free), strict=True):
        if name == "free" and not window:
            continue
        share = f"{100 * each / window:5.1f} %" if window else ""
        lines.append((Piece(style, f"{sign} "), Piece("", f"{name:<14}"), Piece("", f"{each:>10,}  {share}")))
    lines.append(line(f"{usage.tool_count} tools, {usage.message_count} messages", "dim"))
    if usage.threshold:
        text = f"The conversation is compacted at {usage.threshold:,} tokens; /compact does it now."
        lines += wrap([Piece("dim", text)], width)
    return lines
