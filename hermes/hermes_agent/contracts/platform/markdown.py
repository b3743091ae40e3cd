"""Markdown for platforms that show none, or not all of it. Source: plugin contract §11.2, §11.3."""

from __future__ import annotations

import re

__all__ = ["TABLE_SEPARATOR_RE", "convert_table_to_bullets", "redact_phone", "strip_markdown"]

TABLE_SEPARATOR_RE = re.compile(r"^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*){1,}\|?\s*$")

_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)
_REPLACED = (
    (re.compile(r"!\[([^\]]*)\]\([^)\s]*\)"), r"\1"),
    (re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)"), r"\1 (\2)"),
    (re.compile(r"^[ \t]*#{1,6}[ \t]+", re.MULTILINE), ""),
    (re.compile(r"^[ \t]*>[ \t]?", re.MULTILINE), ""),
    (re.compile(r"\*\*\*(?=\S)(.+?)(?<=\S)\*\*\*"), r"\1"),
    (re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*"), r"\1"),
    (re.compile(r"(?<!\w)__(?=\S)(.+?)(?<=\S)__(?!\w)"), r"\1"),
    (re.compile(r"(?<![\w*])\*(?=[^\s*])(.+?)(?<=[^\s*])\*(?![\w*])"), r"\1"),
    (re.compile(r"(?<!\w)_(?=[^\s_])(.+?)(?<=[^\s_])_(?!\w)"), r"\1"),
    (re.compile(r"~~(?=\S)(.+?)(?<=\S)~~"), r"\1"),
    (re.compile(r"`([^`\n]+)`"), r"\1"),
)


def strip_markdown(text: str) -> str:
    """Return the text without marks; links keep their address, code keeps its lines."""
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[1].rstrip("\n"))
        return f"\0{len(kept) - 1}\0"

    plain = _FENCE.sub(keep, text)
    for pattern, by in _REPLACED:
        plain = pattern.sub(by, plain)
    return re.sub(r"\0(\d+)\0", lambda match: kept[int(match[1])], plain).strip()


def convert_table_to_bullets(text: str) -> str:
    """Return the text with each Markdown table as a list: a bullet a row, `column: value` in it.

    Tables in code blocks stay.
    """
    lines = text.split("\n")
    out: list[str] = []
    at, in_code = 0, False
    while at < len(lines):
        line = lines[at]
        in_code ^= line.lstrip().startswith("```")
        is_table = not in_code and "|" in line and at + 1 < len(lines) and TABLE_SEPARATOR_RE.match(lines[at + 1])
        if not is_table:
            out.append(line)
            at += 1
            continue
        head, at = _cells(line), at + 2
        while at < len(lines) and "|" in lines[at]:
            out.append(_bullet(head, _cells(lines[at])))
            at += 1
    return "\n".join(out)


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def _bullet(head: list[str], cells: list[str]) -> str:
    named = [*head, *[""] * (len(cells) - len(head))]
    return "• " + "; ".join(f"{n}: {c}" if n else c for n, c in zip(named, cells, strict=False) if c)


def redact_phone(phone: str) -> str:
    """Return a phone number of which a log may show the ends: `+4915****4567`."""
    if not phone:
        return "<none>"
    if len(phone) <= 8:
        return f"{phone[:2]}****{phone[-2:]}" if len(phone) > 4 else "****"
    return f"{phone[:4]}****{phone[-4:]}"
