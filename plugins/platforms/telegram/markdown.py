"""Markdown as models write it, in Telegram's own form. Source: core.telegram.org/bots/api#markdownv2-style."""

import re

from hermes_agent.adapters.text import convert_table_to_bullets

_RESERVED = re.compile(r"([_*\[\]()~`>#+\-=|{}.!\\])")
_FENCE = re.compile(r"^[ \t]*```([^\n`]*)\n(.*?)(?:\n[ \t]*```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(
    r"(?P<code>`[^`\n]+`)"
    r"|!?\[(?P<label>[^\]\n]+)\]\((?P<address>(?:[^()\s]|\([^()\s]*\))+)\)"
    r"|(?<!\*)\*\*(?P<bold>\S(?:[^\n]*?\S)?)\*\*(?!\*)"
    r"|(?<![\w_])__(?P<strong>\S(?:[^\n]*?\S)?)__(?![\w_])"
    r"|~~(?P<struck>\S(?:[^\n]*?\S)?)~~"
    r"|(?<![\w*])\*(?P<italic>[^\s*](?:[^*\n]*[^\s*])?)\*(?![\w*])"
    r"|(?<![\w_])_(?P<leaning>[^\s_](?:[^_\n]*[^\s_])?)_(?![\w_])"
)
_MARKS = {"bold": "*", "strong": "*", "struck": "~", "italic": "_", "leaning": "_"}


def escape(text):
    """Return a text that is shown as it is."""
    return _RESERVED.sub(r"\\\1", text)


def telegram_markdown(text):
    """Return a text in MarkdownV2; what is no mark is escaped, so that any text can be sent."""
    out, at = [], 0
    for fence in _FENCE.finditer(text):
        out += [_lines(text[at : fence.start()]), f"```{escape(fence[1].strip())}\n{_code(fence[2])}\n```"]
        at = fence.end()
    return "".join([*out, _lines(text[at:])])


def _lines(text):
    return "\n".join(_line(line) for line in convert_table_to_bullets(text).split("\n")) if text else ""


def _line(line):
    heading = re.match(r"\s{0,3}#{1,6}\s+(.*?)\s*#*$", line)
    if heading and heading[1]:
        return f"*{escape(_bare(heading[1]))}*"
    quote = re.match(r">\s?(.*)", line)
    if quote:
        return f">{_inline(quote[1])}"
    item = re.match(r"(\s*)[-*+]\s+(.*)", line)
    if item:
        return f"{item[1]}• {_inline(item[2])}"
    return _inline(line)


def _inline(text, within=""):
    """Marks within a mark of the same kind are shown as they are: Telegram knows no such thing."""
    out, at = [], 0
    for found in _INLINE.finditer(text):
        kind = found.lastgroup
        mark = _MARKS.get(kind, "")
        if mark and mark in within:
            continue
        out.append(escape(text[at : found.start()]))
        if kind == "code":
            out.append(f"`{_code(found[0][1:-1])}`")
        elif kind == "address":
            address = re.sub(r"([)\\])", r"\\\1", found["address"])
            out.append(f"[{_inline(found['label'], within + '*_~')}]({address})")
        else:
            out.append(f"{mark}{_inline(found[kind], within + mark)}{mark}")
        at = found.end()
    return "".join([*out, escape(text[at:])])


def _code(text):
    return re.sub(r"([`\\])", r"\\\1", text)


def _bare(text):
    return re.sub(r"\*\*|__|`", "", text)
