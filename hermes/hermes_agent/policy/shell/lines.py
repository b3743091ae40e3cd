"""Languages of lines with a word for a shell: editors, debuggers, file transfer, databases (`languages.txt`)."""

from __future__ import annotations

import functools
import re

from hermes_agent.policy.shell import code, python
from hermes_agent.policy.shell.script import UNDETERMINED, NestedCode

__all__ = ["line_languages", "read_line_language"]

_WRITES = ("e", "edit", "w", "write", "sav", "saveas", "x", "wq", "W", "up", "update")


@functools.cache
def line_languages() -> frozenset[str]:
    """Return the languages of lines."""
    return frozenset(name for name, row in code.table().items() if "shell" in row or name in ("mongo", "redis"))


def read_line_language(language: str, text: str) -> NestedCode:
    """Return what commands of a language run."""
    if language == "mongo":
        runs = re.search(
            r"\b(?:require|import|eval|load|process|Function|constructor|child_process|fs|run\w*Program)\b", text
        )
        return NestedCode(marks=frozenset({UNDETERMINED}) if runs else frozenset())  # what it does to data, rules say
    row = code.table()[language]
    strip = r"[\d" + re.escape("".join(row.get("strip", ()))) + r"\s]*" if "strip" in row else r"\s*"
    found = NestedCode()
    splits = "|".join([r"\n", *(re.escape(mark) for mark in row.get("split", ()))])
    at = 0
    while at <= len(text):  # what is for a shell goes to the end of the line
        end = re.compile(splits).search(text, at)
        line, rest = text[at : end.start() if end else len(text)], text[at:].partition("\n")[0]
        given = re.sub(rf"^:?{strip}:*\s*(?:sil(?:ent)?!?\s+)?", "", line)
        whole = rest[len(line) - len(given) :]
        step, more = _command(language, given, whole, row)
        found += more
        at += len(rest) + 1 if step else len(line) + 1
    return found


def _command(language: str, given: str, whole: str, row: dict[str, tuple[str, ...]]) -> tuple[bool, NestedCode]:
    """Return whether the rest of the line belongs to a command, and what it runs."""
    if not given.strip() or given.startswith(("#", '"')):
        return False, NestedCode()
    for word in sorted(row.get("shell", ()), key=len, reverse=True):
        ends = "" if word.endswith(("!", "|")) else r"\b"
        if match := re.match(rf"{re.escape(word.replace('_', ' '))}{ends}\s*(.*)", whole, re.DOTALL):
            return True, NestedCode(
                (match[1],) if match[1].strip() else (),
                frozenset({UNDETERMINED}) if not match[1].strip() else frozenset(),
            )
    if match := re.match(r"(?:r(?:ead)?\s*|w(?:rite)?\s+)!\s*(.+)|[gv]/.*?/.*?!(.+)", whole):
        return True, NestedCode((match[1] or match[2],))
    match = re.match(r"([^\s!/]*)[!\s]*(.*)$", given, re.DOTALL)
    name, argument = (match[1], match[2]) if match else ("", "")
    for inside in ("python", "lua", "perl", "ruby", "tcl"):
        if name in row.get(f"{inside}:", ()):
            return True, python.read(argument or "") if inside == "python" else code.read(inside, argument or "")
    target = (argument or "").split()[-1:] if language in ("vim", "ed") and name in _WRITES else []
    written = NestedCode((f": >> {target[0]}",)) if target and not target[0].startswith("+") else NestedCode()
    calls = re.search(
        r"\b(?:system|systemlist|execute|exe|termopen|jobstart|luaeval|py3?eval|call|eval|shell|makeprg|grepprg)\b|=\s*`",
        given,
    )
    plain = name in row.get("words", ()) or not re.match(r"[A-Za-z!]", name)
    plain = plain or (re.match(r"[A-Za-z]", name) is not None and language == "redis" and name.lower() in row["words"])
    letter = language in ("vim", "ed") and re.match(r"[sgvydpmtk]\W", given) is not None
    if (plain or letter) and not calls:
        return False, written
    return False, NestedCode(tuple(code.texts(given)), frozenset({UNDETERMINED})) + written
