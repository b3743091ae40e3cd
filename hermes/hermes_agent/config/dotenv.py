"""The `.env` file: `KEY=VALUE` lines, as shells and systemd read them; values are never shown.

docs/decisions/0012-own-reader-of-env-files.md compares it with python-dotenv.
"""

from __future__ import annotations

import re
from pathlib import Path

from hermes_agent.config.yaml_document import ENV_HINT, ConfigFinding, config_error
from hermes_agent.config.yaml_reader import decode_file
from hermes_agent.core.errors import UserError
from hermes_agent.system.files import PRIVATE, write_atomic
from hermes_agent.system.locks import hold_lock

_LINE = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED = {'"': re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL), "'": re.compile(r"'([^']*)'")}
_TAIL = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\n": ""}


class EnvFile:
    """The content of a `.env` file."""

    __slots__ = ("findings", "spans", "values")

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.findings: list[ConfigFinding] = []
        """Errors for lines that are no assignment, notes for names that are set twice (the last value counts)."""
        self.spans: dict[str, tuple[int, int]] = {}
        """Start and end of the assignment of each name in the text."""


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of the file at `path`; none if it does not exist.

    Raises:
        ConfigError: a line is no assignment, or the file cannot be read; each line is named, no value is shown.
    """
    text = decode_file(path, str(path))
    if text is None:
        return {}
    if isinstance(text, ConfigFinding):
        raise config_error([text], ENV_HINT)
    parsed = parse_env(text, str(path))
    errors = [finding for finding in parsed.findings if finding.level == "error"]
    if errors:
        raise config_error(errors, ENV_HINT)
    return parsed.values


def parse_env(text: str, name: str) -> EnvFile:
    r"""Parse the text of a `.env` file.

    `export` is allowed. A value in single quotes is literal. In double quotes `\\n`, `\\t`, `\\"`, `\\\\` and `\\$` are
    escapes. Quoted values may span lines; in unquoted ones ` #` begins a comment.

    Args:
        name: name of the file in the findings.
    """
    text = text.replace("\r\n", "\n")
    parsed = EnvFile()
    lines_seen: dict[str, int] = {}
    at, line = 0, 1
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        start = at
        if (stripped := text[at:end].strip()) and not stripped.startswith("#"):
            key, value, after, problem = _assignment(text, at, end)
            if problem:
                parsed.findings.append(ConfigFinding(name, line, 1, key, problem))
            else:
                if key in lines_seen:
                    again = f"{key} is set a second time, first in line {lines_seen[key]}; this one counts"
                    parsed.findings.append(ConfigFinding(name, line, 1, key, again, "note"))
                lines_seen[key] = line
                parsed.values[key] = value
                parsed.spans[key] = (start, after)
                end = after
        line += text.count("\n", at, end) + 1
        at = end + 1
    return parsed


def _assignment(text: str, at: int, end: int) -> tuple[str, str, int, str]:
    """Return name, value, end of the assignment and an error message ("" without an error)."""
    match = _LINE.match(text, at, end)
    if match is None:
        return "", "", end, "expected NAME=VALUE; the line is not shown, it may hold a secret"
    key, start = match[1], match.end()
    quote = text[start : start + 1] if start < end else ""
    if quote not in _QUOTED or not quote:
        value = re.split(r"(?:^|[ \t])#", text[start:end], maxsplit=1)[0].strip()
        if "\0" in value:
            return key, "", end, f"{key}: a NUL character cannot be part of a variable"
        return key, value, end, ""
    quoted = _QUOTED[quote].match(text, start)
    if quoted is None:
        return key, "", end, f"{key}: the quote that begins here is never closed"
    if _TAIL.match(text, quoted.end()) is None:
        return key, "", end, f"{key}: something follows the closing quote"
    after = text.find("\n", quoted.end())
    value = quoted[1] if quote == "'" else _ESCAPE.sub(lambda m: _ESCAPES.get(m[1], m[1]), quoted[1])
    return key, value, len(text) if after < 0 else after, ""


def write_env_value(path: Path, key: str, value: str | None) -> None:
    """Set `key` in the `.env` file at `path` (mode 0600), or remove it if `value` is None.

    Other lines stay.

    Raises:
        UserError: the name or the value cannot be written, or the file is not a valid `.env` file.
    """
    if _NAME.fullmatch(key) is None:
        raise UserError(f"{key!r} is not the name of an environment variable")
    if value is not None and "\0" in value:
        raise UserError(f"{key}: a NUL character cannot be part of a variable")
    path.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(path):
        text = decode_file(path, str(path))
        if isinstance(text, ConfigFinding):
            raise config_error([text], ENV_HINT)
        write_atomic(path, _with_value(text or "", key, value), mode=PRIVATE)


def _with_value(text: str, key: str, value: str | None) -> str:
    text = text.replace("\r\n", "\n")
    span = parse_env(text, "").spans.get(key)
    line = "" if value is None else f"{key}={_quote(value)}\n"
    if span is None:
        separator = "" if not text or text.endswith("\n") or not line else "\n"
        return text + separator + line
    return text[: span[0]] + line + text[span[1] + 1 :]


def _quote(value: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_./:@%+,=-]*", value):
        return value
    if "'" not in value and "\n" not in value and "\r" not in value:
        return f"'{value}'"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r") + '"'
