"""Markdown as the marks that XMPP clients show. Source: XEP-0393."""

import re

from hermes_agent.adapters.text import convert_table_to_bullets

_FENCED = re.compile(r"(^[ \t]*```.*?^[ \t]*```[ \t]*$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_MARKS = (
    (re.compile(r"!?\[([^\]\n]*)\]\(([^)\s]+)\)"), lambda m: m[2] if m[1] in ("", m[2]) else f"{m[1]} ({m[2]})"),
    (re.compile(r"(?<![\w*])\*(?=[^\s*])([^*\n]*?)(?<=[^\s*])\*(?![\w*])"), r"_\1_"),
    (re.compile(r"\*\*\*(?=\S)(.+?)(?<=\S)\*\*\*"), r"*_\1_*"),
    (re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*"), r"*\1*"),
    (re.compile(r"(?<!\w)__(?=\S)(.+?)(?<=\S)__(?!\w)"), r"*\1*"),
    (re.compile(r"~~(?=\S)(.+?)(?<=\S)~~"), r"~\1~"),
    (re.compile(r"^[ \t]*#{1,6}[ \t]+(.+?)[ \t#]*$", re.MULTILINE), r"*\1*"),
)


def format_text(text):
    """Return the text with marks of XMPP; what stands in code stays."""
    pieces = _FENCED.split(convert_table_to_bullets(text))
    return "".join(piece if number % 2 else _marked(piece) for number, piece in enumerate(pieces)).strip("\n")


def _marked(text):
    for pattern, by in _MARKS:
        text = pattern.sub(by, text)
    return text
