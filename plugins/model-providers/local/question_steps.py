"""The steps of a question that asks for several things, read from its words."""

from __future__ import annotations

import re

_VERBS = (
    "add|append|calculate|change|check|compute|convert|copy|count|create|delete|divide|execute|find|get|list|look|make|move"
    "|multiply|open|print|put|read|remove|rename|replace|run|save|search|send|set|show|sort|start|subtract|sum|summari[sz]e"
    "|take|tell|translate|write"
)
_BETWEEN = re.compile(
    r"[,;.]?\s+(?:and\s+)?(?:then|afterwards|after that)\s+(?:please\s+)?"
    rf"|[,;.]?\s+and\s+(?:also\s+)?(?=(?:{_VERBS})\b)|[;.]\s+(?=(?:{_VERBS})\b)",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'(?!\w)|`[^`]*`")


def split_steps(question: str, limit: int) -> list[str]:
    """Return the steps of the question in order, at most `limit`; one for a plain question.

    Nothing inside of quotation marks divides it; what exceeds the limit stays in the last step.
    """
    quoted = [match.span() for match in _QUOTED.finditer(question)]
    steps: list[str] = []
    at = 0
    for match in _BETWEEN.finditer(question):
        if len(steps) == limit - 1:
            break
        if match.start() == 0 or any(a < match.start() < b for a, b in quoted):
            continue
        steps.append(question[at : match.start()].strip())
        at = match.end()
    return [step for step in (*steps, question[at:].strip()) if step]
