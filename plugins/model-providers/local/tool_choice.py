"""Ranking of tools for a question: words of names and descriptions, and what the question is about.

It costs no model request. The intents know the tools that the agent ships; a tool of a plugin is ranked by its own name
and description, with an advantage, because the operator enabled it for a purpose.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

MENU_MAX = 7
"""Tools on the menu of a question; with more this model selects wrong ones."""
CLEAR = 9.0
"""Score of a tool that is made for the question; then no general tools are added."""
NEAR = 0.5
"""Part of the score of such a tool that another needs to be on the menu beside it."""
SMALL_OFFER = 8
"""So few tools are always all on the menu."""

_WORD = re.compile(r"[a-z][a-z0-9]{2,}|\b(?:os|ip|id)\b")
_ENDING = re.compile(r"(?:ies|ing|ed|es|s|e)$")
_CODE = re.compile(r"\b[A-Za-z_][\w.]*\(|\b(?:import|def|lambda) |`[^`]+`")
_URL = re.compile(r"https?://|\bwww\.")
_ARITHMETIC = re.compile(
    r"\d\s*(?:[-+*/^%×÷]|\*\*)\s*\(?\d|\d\s*%|\b(?:power|root|squared|cubed|factorial|percent\w*|times|divided?|minus|plus"
    r"|multipl\w+|subtract\w*|average|mean|product|sum of|take away|logarithm|sine|cosine|tip)\b|\badd \d",
    re.IGNORECASE,
)
_UNITS = re.compile(
    r"\b(?:celsius|fahrenheit|kelvin|kilomet\w+|met(?:er|re)s?|centimet\w+|millimet\w+|miles?|feet|foot|inch(?:es)?|yards?"
    r"|furlongs?|pounds?|ounces?|kilograms?|grams?|kilos?|litres?|liters?|gallons?|(?:kilo|mega|giga|tera)?bytes?|seconds?"
    r"|minutes?|hours?|km|cm|mm|kg|lbs?|oz|[kmgt]b|dollars?|euros?)\b",
    re.IGNORECASE,
)
_CONVERSION = re.compile(r"\b(?:convert\w*|how many|how much|in|to|are|is)\b", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_DATE = re.compile(
    r"\b(?:date|day of the week|weekday|what day|which day|time is it|today|tomorrow|yesterday|days? (?:until|ago)"
    r"|days are there|how many days|in \d+ (?:days|weeks|months)|which year|\d{4}-\d\d-\d\d)\b",
    re.IGNORECASE,
)
_MACHINE = re.compile(
    r"\b(?:host ?name|kernel|cpus?|cores?|disk|uptime|been running|which user|who am i|processes|memory is|ip address"
    r"|operating system|(?:this|the) (?:machine|computer))\b",
    re.IGNORECASE,
)
_NEEDS_NO_TOOL = re.compile(
    r"^\W*(?:hi|hello|hey|good (?:morning|day|evening)|thanks?|thank you|bye|great|ok(?:ay)?|please explain|explain"
    r"|define|describe|tell me (?:a|about)|who|what (?:is|was|are|were|does)|what's|when (?:is|was|did)"
    r"|why|how (?:do you say|(?:far|tall|high|deep|old|long|fast|heavy|big) (?:is|are|was|were|do|does|can))|translate"
    r"|and|what about|in which year)\b",
    re.IGNORECASE,
)
"""The beginning of a greeting, of a question of general knowledge, or of one that continues the one before."""
_PREFACE = re.compile(
    r"^\W*(?:(?:please|briefly|in (?:a|one|two|three|\d+|a few|other) (?:words?|sentences?|lines?))\b\W*)+",
    re.IGNORECASE,
)
"""What a question says of the form of its answer, before it says what it is about."""
_USE = re.compile(r"\b(?:use|using|with) (?:the )?(?:tool )?`?(\w+)`?", re.IGNORECASE)
_READING = re.compile(
    r"\b(?:summari[sz]e|read|open|say|says|show|contents?|first|last|about|mentions?|what is in)\b", re.IGNORECASE
)
_MATH_TOOL = re.compile(r"\b(?:calculat\w*|math\w*|arithmetic|expressions?|evaluates?)\b", re.IGNORECASE)
_UNIT_TOOL = re.compile(r"\bconvert\w*|\bunits?\b", re.IGNORECASE)

_COMMON = frozenset(
    """
    about all and any ar are been can com did do does for from give given has hav have how into it its mak not one our
    out over than that the their them then ther there they thi this tool tools us use user was what when which whats
    who whos will with you your
    """.split()  # noqa: SIM905 - four lines instead of fifty
)
"""Stems that say nothing about a tool."""
_INTENT_WORDS = {
    "read_file": "read open show view print say content inside first last summarise summarize page document mention",
    "search_files": "find search contain where which grep word mention define function occur match list files",
    "write_file": "write create make save new text note script",
    "patch": "replace change edit fix correct insert modify update instead",
    "terminal": "run command execute start list directory folder delete remove rename move copy disk space memory"
    " process cpu core kernel version hostname host user uptime running logged install time machine computer system"
    " size count lines bytes big large git permission network ip load weekday append add end",
    "execute_code": "python code script program compute count len loop sort os listdir",
    "process": "background process kill poll",
    "web_search": "web internet online news latest weather google",
    "web_extract": "url link page website site address http https",
    "memory": "remember forget prefer memorise memorize",
    "session_search": "earlier yesterday conversation talked before previous discussed",
    "cronjob": "remind schedule every daily weekly hourly tomorrow later recurring alarm",
    "todo": "todo task plan steps checklist",
    "skill_view": "skill",
    "skills_list": "skill",
    "skill_manage": "skill",
    "delegate_task": "delegate subagent parallel",
    "clarify": "",
}
"""Words of questions for each shipped tool."""
_GENERAL = ("terminal", "read_file", "search_files", "write_file")
"""Shipped tools that fill a menu on which few are ranked."""
_FILE_TOOLS = frozenset({"read_file", "search_files", "write_file", "terminal"})


def stems(text: str) -> set[str]:
    """Return the words of a text without their endings."""
    return {_ENDING.sub("", word) or word for word in _WORD.findall(text.lower().replace("_", " "))} - _COMMON


_INTENTS = {name: stems(words) for name, words in _INTENT_WORDS.items()}


def rank_tools(
    tools: Sequence[dict[str, Any]],
    question: str,
    *,
    names_file: bool = False,
    recent: Collection[str] = (),
    limit: int = MENU_MAX,
) -> list[dict[str, Any]]:
    """Return the tools for the question, the most needed first: all if they are few, else at most `limit`.

    It is none for a greeting or a question of general knowledge that has no word about any tool.

    Args:
        names_file: the question names a file.
        recent: tools that the turn before called; a short question often continues with them.
    """
    question = _PREFACE.sub("", question)
    scored = {id(tool): _score(tool, question, names_file=names_file, recent=recent) for tool in tools}
    ranked = sorted(tools, key=lambda tool: -scored[id(tool)])
    if len(tools) <= SMALL_OFFER:
        return ranked
    best = scored[id(ranked[0])]
    if best <= 0 and _NEEDS_NO_TOOL.search(question):
        return []
    is_clear = best >= CLEAR
    least = best * NEAR if is_clear else 0.0
    chosen = [tool for tool in ranked if scored[id(tool)] > least][:limit]
    for name in _GENERAL:
        if is_clear or len(chosen) >= min(limit, 4):
            break
        chosen += [tool for tool in tools if tool_name(tool) == name and tool not in chosen]
    return chosen or ranked[:limit]


def tool_name(tool: dict[str, Any]) -> str:
    """Return the name of a tool in the form of chat completions, or of its inner object."""
    return str(inner_tool(tool).get("name") or "")


def inner_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return the object with name, description and parameters."""
    inner = tool.get("function")
    return inner if isinstance(inner, dict) else tool


def _score(tool: dict[str, Any], question: str, *, names_file: bool, recent: Collection[str]) -> float:
    name, about = tool_name(tool), str(inner_tool(tool).get("description") or "")
    asked = stems(question)
    is_shipped = name in _INTENTS
    score = 3.0 * len(asked & stems(name))
    if is_shipped:
        score += 2.0 * len(asked & _INTENTS[name])  # its description is written for large models
    elif score := score + len(asked & stems(about)):
        score += 1.0  # the operator enabled its plugin
    if _USE.search(question) and find_named_tool([tool], question):
        score += 20.0
    if name in recent:
        score += 4.0
    return score + _score_topics(tool, question, names_file=names_file)


def _score_topics(tool: dict[str, Any], question: str, *, names_file: bool) -> float:
    score, name = 0.0, tool_name(tool)
    is_code, is_unit = bool(_CODE.search(question)), _asks_for_units(question)
    is_math_tool, is_unit_tool = _says(tool, _MATH_TOOL), _says(tool, _UNIT_TOOL)
    if is_code:
        score += {"execute_code": 6.0, "terminal": 5.0}.get(name, 0.0)
        score -= 20.0 if is_math_tool or is_unit_tool else 0.0
    elif is_unit:
        score += 10.0 if is_unit_tool else 2.0 if is_math_tool else 0.0
    elif is_arithmetic(question) and not names_file:
        score += 10.0 if is_math_tool else 0.0
    elif is_math_tool and not _DIGIT.search(question):
        score -= 6.0
    if names_file:
        score += 6.0 if name == "read_file" and _READING.search(question) else 0.0
        score += 2.0 if name in _FILE_TOOLS else 0.0 if name in ("execute_code", "patch") else -4.0
    if _URL.search(question):
        score += 8.0 if name == "web_extract" else 0.0
    if _DATE.search(question) or _MACHINE.search(question):
        score += {"terminal": 10.0, "execute_code": 3.0}.get(name, 0.0)
    return score


def is_arithmetic(question: str) -> bool:
    """Return whether the question is a calculation with numbers."""
    has_numbers = bool(_ARITHMETIC.search(question) and _DIGIT.search(question))
    return has_numbers and not _DATE.search(question) and not _CODE.search(question)


def _asks_for_units(question: str) -> bool:
    """Return whether the question asks to convert a number: it names two units, or one to `convert`."""
    units = {stem for word in _UNITS.findall(question) for stem in stems(word) or {word.lower()}}
    return bool(_DIGIT.search(question) and units and _CONVERSION.search(question)) and (
        len(units) > 1 or "convert" in question.lower()
    )


def _says(tool: dict[str, Any], pattern: re.Pattern[str]) -> bool:
    name = tool_name(tool)
    text = f"{name.replace('_', ' ')} {inner_tool(tool).get('description') or ''}"
    return name not in _INTENTS and bool(pattern.search(text))


def find_named_tool(tools: Iterable[dict[str, Any]], question: str) -> str:
    """Return the tool that the question says to use by its name, or ""."""
    found = _USE.search(question)
    return next((name for tool in tools if found and (name := tool_name(tool)) == found[1]), "")


def other_ways(tools: Iterable[dict[str, Any]], failed: str, question: str, *, names_file: bool) -> list[str]:
    """Return the names of up to two tools that are nearest to the question after the one that failed."""
    given = list(tools)
    is_unit = any(_says(tool, _UNIT_TOOL) for tool in given if tool_name(tool) == failed)
    # to calculate what could not be converted takes a factor that the model would have to know
    left = [tool for tool in given if tool_name(tool) != failed and not (is_unit and _says(tool, _MATH_TOOL))]
    ranked = sorted(left, key=lambda t: -_score(t, question, names_file=names_file, recent=()))
    return [tool_name(t) for t in ranked if _score(t, question, names_file=names_file, recent=()) > 0][:2]
