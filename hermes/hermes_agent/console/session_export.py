"""A session as a file: Markdown, HTML or JSON."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path

from hermes_agent.console.tool_lines import object_of
from hermes_agent.core.errors import UserError
from hermes_agent.core.messages import Message
from hermes_agent.core.redaction import redactor

FORMATS = ("markdown", "html", "json")
_SUFFIXES = {".md": "markdown", ".markdown": "markdown", ".html": "html", ".htm": "html", ".json": "json"}
_NAMES = {"markdown": "md", "html": "html", "json": "json"}

_STYLE = """\
:root{color-scheme:light dark;--dim:#777}body{font:16px/1.5 system-ui,sans-serif;max-width:48rem;margin:2rem auto;
padding:0 1rem}pre{overflow:auto;padding:.75rem;border-radius:.4rem;background:#8882}code{font-family:ui-monospace,
monospace}table{border-collapse:collapse}td,th{border:1px solid #8886;padding:.2rem .6rem}.user{border-left:.25rem solid
#0a84ff;padding-left:.75rem;white-space:pre-wrap}.tool{color:var(--dim);font-size:.9em}details pre{max-height:20rem}"""


def export_target(arguments: str, session_id: str, directory: Path) -> tuple[str, Path]:
    """Return format and file for the arguments of `/export` and `/save`.

    Raises:
        UserError: the format is unknown, or the file exists.
    """
    words = arguments.split(maxsplit=1)
    form = words[0].lower() if words and words[0].lower() in (*FORMATS, "md") else ""
    name = (words[1] if len(words) > 1 else "") if form else arguments.strip()
    form = "markdown" if form == "md" else form
    if not form:
        suffix = Path(name).suffix.lower()
        if name and suffix not in _SUFFIXES:
            raise UserError(
                f"{name}: its format is unknown", hint=f"Name one: /export {'|'.join(FORMATS)} FILE, or end in .md."
            )
        form = _SUFFIXES.get(suffix, "markdown")
    path = directory / Path(name or f"hermes-{session_id}.{_NAMES[form]}").expanduser()
    if path.exists():
        raise UserError(f"{path} exists and is not replaced", hint="Name another file.")
    return form, path


def export_session(messages: Sequence[Message], form: str, *, title: str, session_id: str) -> str:
    """Return the messages of a session in a format of `FORMATS`, without known secrets."""
    shown = [message for message in messages if message.role != "system"]
    heading = title or f"Session {session_id}"
    if form == "json":
        rows = [
            {**message.to_dict(), **({"tool_name": message.tool_name} if message.tool_name else {})}
            for message in shown
        ]
        text = json.dumps({"session": session_id, "title": title, "messages": rows}, ensure_ascii=False, indent=2)
    elif form == "html":
        text = _html(shown, heading)
    else:
        text = _markdown(shown, heading)
    return redactor.mask_known(text.rstrip() + "\n")


def _markdown(messages: Sequence[Message], title: str) -> str:
    parts = [f"# {title}"]
    for message in messages:
        if message.role == "user":
            parts.append("\n".join(f"> {each}".rstrip() for each in message.text.split("\n")))
        elif message.role == "assistant":
            if message.text:
                parts.append(message.text)
            parts += [f"*{call.name}* `{_call_text(call.name, call.arguments)}`" for call in message.tool_calls]
    return "\n\n".join(parts)


def _html(messages: Sequence[Message], title: str) -> str:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parts = []
    for message in messages:
        if message.role == "user":
            parts.append(f'<div class="user">{html.escape(message.text)}</div>')
        elif message.role == "tool":
            name, text = html.escape(message.tool_name or "result"), html.escape(message.text)
            parts.append(f'<details class="tool"><summary>{name}</summary><pre>{text}</pre></details>')
        else:
            parts.append(str(parser.render(message.text)))
            parts += [
                f'<p class="tool">{html.escape(call.name)} <code>'
                f"{html.escape(_call_text(call.name, call.arguments))}</code></p>"
                for call in message.tool_calls
            ]
    name = html.escape(title)
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{name}</title>'
    body = "\n".join(parts)
    style = f"<style>{_STYLE}</style>"
    return f"<!doctype html>\n<html><head>{head}\n{style}</head>\n<body><h1>{name}</h1>\n{body}\n</body></html>"


def _call_text(name: str, arguments: str) -> str:
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    return object_of(name, value) if isinstance(value, dict) else arguments
