"""Markdown as the HTML that Matrix clients show. Source: spec.matrix.org, m.room.message."""

import re
from html import escape

from hermes_agent.adapters.text import convert_table_to_bullets

_FENCE = re.compile(r"^[ \t]*```([^\n`]*)\n(.*?)(?:\n[ \t]*```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(
    r"(?P<code>`[^`\n]+`)"
    r"|!?\[(?P<label>[^\]\n]+)\]\((?P<address>(?:[^()\s]|\([^()\s]*\))+)\)"
    r"|(?P<bare>https?://[^\s<>\"]*[^\s<>\".,;:!?)\]'])"
    r"|(?<!\*)\*\*(?P<strong>\S(?:[^\n]*?\S)?)\*\*(?!\*)"
    r"|~~(?P<del>\S(?:[^\n]*?\S)?)~~"
    r"|(?<![\w*])\*(?P<em>[^\s*](?:[^*\n]*[^\s*])?)\*(?![\w*])"
    r"|(?<![\w_])_(?P<i>[^\s_](?:[^_\n]*[^\s_])?)_(?![\w_])"
)
_ITEM = re.compile(r"\s*(?:([-*+•])|(\d+)[.)])\s+(.*)")


def to_html(text):
    """Return a text as HTML; None where that would say no more than the text."""
    out, at = [], 0
    for fence in _FENCE.finditer(text):
        language = escape(fence[1].split()[0]) if fence[1].split() else ""
        named = f' class="language-{language}"' if language else ""
        out += [_blocks(text[at : fence.start()]), f"<pre><code{named}>{escape(fence[2])}\n</code></pre>"]
        at = fence.end()
    made = "".join([*out, _blocks(text[at:])])
    return None if made == escape(text, quote=False) else made


def _blocks(text):
    """Return lines as HTML: lists, quotes, headings, and the others with breaks between them."""
    out, around = [], ""
    for line in convert_table_to_bullets(text.strip("\n")).split("\n") if text.strip() else ():
        tag, said = _block(line)
        if tag != around:
            out += [f"</{around}>" if around else "", _opening(tag, line)]
        elif out and tag in ("", "blockquote"):
            out.append("<br>")
        out.append(f"<li>{said}</li>" if tag in ("ul", "ol") else said)
        around = tag
    return "".join([*out, f"</{around}>" if around else ""])


def _block(line):
    """Return the tag around a line, and the line."""
    heading = re.match(r"\s{0,3}(#{1,6})\s+(.*?)\s*#*$", line)
    if heading:
        return f"h{len(heading[1])}", _inline(heading[2])
    if line.startswith(">"):
        return "blockquote", _inline(line[1:].lstrip())
    item = _ITEM.fullmatch(line)
    if item:
        return ("ul" if item[1] else "ol"), _inline(item[3])
    return "", _inline(line)


def _opening(tag, line):
    first = _ITEM.fullmatch(line) if tag == "ol" else None
    start = f' start="{first[2]}"' if first and first[2] != "1" else ""
    return f"<{tag}{start}>" if tag else ""


def _inline(text):
    out, at = [], 0
    for found in _INLINE.finditer(text):
        out.append(escape(text[at : found.start()], quote=False))
        kind = found.lastgroup
        if kind == "code":
            out.append(f"<code>{escape(found[0][1:-1], quote=False)}</code>")
        elif kind == "bare":
            out.append(f'<a href="{escape(found[0])}">{escape(found[0], quote=False)}</a>')
        elif kind == "address":
            safe = re.match(r"(https?|mailto|matrix):", found["address"])
            label = _inline(found["label"])
            out.append(f'<a href="{escape(found["address"])}">{label}</a>' if safe else label)
        else:
            tag = "em" if kind == "i" else kind
            out.append(f"<{tag}>{_inline(found[kind])}</{tag}>")
        at = found.end()
    return "".join([*out, escape(text[at:], quote=False)])
