"""Check of an answer after a tool call: numbers, names and paths have to come from the conversation or a result.

After a failed call so do claims of absence: that something does not exist, was not found, is empty, or has none. What
an answer says was sent, booked or bought needs a tool that does so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hermes_agent.core.messages import error_object
from hermes_agent.core.text import shorten

_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,\u202f]*(?:\.\d+)?(?:[eE][+-]?\d+)?")
_PATH = re.compile(
    r"(?<![\w/:.@-])(?:~|\.{1,2})?/?(?:[\w.-]+/)+[\w.-]*\w|(?<![\w/:.@-])[\w-]+\.[a-z][a-z0-9]{1,4}\b(?!\()"
)
_NAME = re.compile(r"(?<=[a-z,;:)\d] )(?:[A-Z][a-z]{2,}\w*)(?: [A-Z][a-z]{2,}\w*)*")
"""Words with a capital in the middle of a sentence."""
_ORDINAL = re.compile(r"^\s*\d+[.)]\s", re.MULTILINE)
_WORD = re.compile(r"\w+")
_GENERAL_NAMES = frozenset(
    """
    april august bash celsius debian december english fahrenheit february friday hello hermes january json july june
    kelvin linux march may monday november october python saturday september shell sunday the thursday tuesday ubuntu
    unix wednesday world yes
    """.split()  # noqa: SIM905 - four lines instead of thirty
)
"""Names that are common knowledge; a weekday or month is checked by its number."""


def find_unfounded(text: str, sources: Sequence[str]) -> list[str]:
    """Return the numbers, paths and names of `text` that no source has.

    A number may be rounded, and may count the lines or items of a source.
    """
    joined = "\n".join(sources)
    known = [value for _, value, _ in read_numbers(joined)]
    counts = {float(count) for source in sources for count in _counts(source)}
    out = [
        written
        for written, value, tolerance in read_numbers(_ORDINAL.sub("", text))
        if value not in counts and not any(abs(abs(value) - abs(each)) <= tolerance for each in known)
    ]
    lower = joined.lower()
    for path in _PATH.findall(text):
        if path.lower().removeprefix("./") not in lower and path.rstrip("/").rpartition("/")[2].lower() not in lower:
            out.append(path)
    words = set(_WORD.findall(lower)) | _GENERAL_NAMES
    for name in _NAME.findall(text):
        out += [word for word in name.split() if word.lower() not in words and word.lower().rstrip("s") not in words]
    return out


def read_numbers(text: str) -> Iterator[tuple[str, float, float]]:
    """Yield each number as written, its value, and how far the exact one may be away when this one is rounded."""
    for match in _NUMBER.finditer(text):
        written = re.sub("[,\u202f]", "", match[0])
        try:
            value = float(written)
        except (ValueError, OverflowError):
            continue
        if "e" in written.lower():
            tolerance = abs(value) * 1e-2
        else:
            tolerance = 0.5 * 10.0 ** -len(written.partition(".")[2]) + 1e-9
            tolerance = tolerance if "." in written or abs(value) >= 10 else 1e-9
        yield match[0], value, tolerance


def _counts(source: str) -> Iterator[int]:
    """Yield how many lines and how many items the source has."""
    try:
        value = json.loads(source)
    except (ValueError, RecursionError):
        yield _count_lines(source)
        return
    yield from _count_items(value, 0)


def _count_items(value: Any, depth: int) -> Iterator[int]:
    if depth > 4:
        return
    if isinstance(value, str):
        yield _count_lines(value)
    elif isinstance(value, list | dict):
        yield len(value)
        for each in value if isinstance(value, list) else value.values():
            yield from _count_items(each, depth + 1)


def _count_lines(text: str) -> int:
    return sum(1 for line in text.splitlines() if line.strip())


def plain_result(name: str, result: str, limit: int = 1500) -> str:
    """Return an answer that only states the result of a tool."""
    text = result.strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, dict):
        shown = next((value[key] for key in _MAIN_KEYS if value.get(key) not in (None, "", [], {})), None)
        value = shown if shown is not None else value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text.strip()
    return f"The result of {name}: {shorten(text, limit)}"


_MAIN_KEYS = ("result", "output", "content", "value", "answer", "text", "stdout", "matches", "files")
"""Keys under which tools give what they found."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a call of this turn gave, as the check of claims reads it."""

    text: str
    arguments: str
    looks_at_files: bool
    """The tool takes a path, a file or a command."""
    tool: str = ""
    """Name and description of the tool."""


_OF_FAILURES = r"(?!(?: \w+){0,2} (?:access|approval|need|permission|reason|support|terminal|tool|user|way)s?\b)"
"""Not before words that tell of a failure, such as "there is no permission"."""
_NOT = r"(?: not|n't)"
_NONE = r"(?:not an?|no|none|nothing|zero|0)\b"
_THINGS = r"(?:files?|folders?|director(?:y|ies)|documents?|match(?:es)?|lines?|entr(?:y|ies)|results?|contents?|text)"
_ABSENT = re.compile(
    rf"\bthere(?: (?:is|are|was|were|exists?)(?:n't)?|'s) (?:currently )?(?:{_NONE}|any\b){_OF_FAILURES}"
    rf"|\b(?:do|does|did){_NOT} (?:seem to )?exist"
    rf"|\b(?:is|are|was|were|could|ca){_NOT} (?:be )?(?:found|there|present)\b"
    rf"|\bcan ?not be found\b|\bnot found\b|\bno (?:such|matching)\b|\bnon-?existent|\b(?:is|are) missing\b"
    rf"|\b(?:no|zero|0) {_THINGS}\b|\bnothing (?:was |is )?found\b|\b(?:find|found|see|locate) (?:any|no)\b"
    rf"|\bnone of\b",
    re.IGNORECASE,
)
_EMPTY = re.compile(
    rf"\b(?:is|are|was|were) (?:currently )?empty\b|\b(?:contain|hold|list|mention)(?:s|ed)? {_NONE}"
    rf"|\b(?:it|that|they|which|\w+) (?:has|have|had) {_NONE}{_OF_FAILURES}"
    rf"|\b(?:do|does|did){_NOT} (?:contain|hold|include|mention|list)\b"
    rf"|(?<!\bI )\b(?:do|does|did){_NOT} have\b{_OF_FAILURES}",
    re.IGNORECASE,
)
_SOUGHT = re.compile(rf"\b(?:find|locate|see) (?:\w+ ){{0,2}}{_THINGS}\b", re.IGNORECASE)
"""After "I could not" it says that files were looked for."""
_ABOUT_FILES = re.compile(r"\b(?:files?|folders?|director(?:y|ies)|documents?|paths?)\b", re.IGNORECASE)
_SAYS_NONE = re.compile(
    r"\b(?:no|none|nothing|zero|0|missing|empty|without|nonexistent|absent|enoent)\b"
    r"|\b(?:not|n't|never) (?:be |been )?(?:exist\w*|found|present|there|contain|have)\b|\[\]|\{\}|\"\"",
    re.IGNORECASE,
)
_SAYS_EMPTY = re.compile(
    r"\bempty\b|\b(?:contain|hold|list|mention|ha[sdv])\w* (?:no|none|nothing|zero|0)\b"
    r"|(?:\bnot|n't) (?:contain|hold|include|mention|list|have)\b|\bno (?:output|content|text|entries)\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+|[:;]\s+|,\s+(?:but|and|so|because|since|as)\s+")
_SMALL_WORDS = frozenset(
    """
    a an and any are be been but by can contain could did do doe empty exist find for found from had ha have i in it
    missing my no none not nothing of on or so such that the there they thi to wa were which with you your zero
    """.split()  # noqa: SIM905 - four lines instead of thirty
)


def find_unfounded_claims(text: str, results: Sequence[CallResult]) -> list[str]:
    """Return the claims of absence in `text` that no result has, if one of the calls failed.

    A claim about files needs the result of a tool that looks at files, or an error that tells of files. The result has
    to say that something is absent, and share a word with the claim; a result without failure may also be a list that
    does not have the thing.
    """
    if not any(error_object(result.text) is not None for result in results):
        return []
    out, before = [], ""
    for part in _SENTENCE.split(text.replace("\u2019", "'")):
        context, before = f"{before} {part}" if _refers_back(part) else part, part
        for pattern in (_ABSENT, _EMPTY):
            out += [
                claim[0].strip()
                for claim in pattern.finditer(_PATH.sub(_as_name, part))
                if not any(_founds(result, context, is_empty=pattern is _EMPTY) for result in results)
            ]
        if (sought := _SOUGHT.search(part)) and not any(_tells_of_files(result) for result in results):
            out.append(sought[0])
    return out


_DEEDS = {
    re.compile(rf"(?<!not )(?<!n't )(?<!be )\b(?:{done})\b", re.IGNORECASE): re.compile(founded, re.IGNORECASE)
    for done, founded in (
        ("sent", r"(?:\b|_)se(?:nd|nt)"),
        ("(?:e-?)?mailed", r"mail"),
        ("booked|reserved", r"\bbook|_book|reserv"),
        ("ordered|bought|purchased|paid", r"order|b(?:uy|ought)|purchas|pa(?:y|id)"),
        ("posted|published|uploaded", r"post|publish|upload|push"),
    )
}
"""What is done for good, by the words that a tool, a call or a result has which does it."""


def find_unfounded_deeds(text: str, results: Sequence[CallResult]) -> list[str]:
    """Return what `text` says was sent, booked, bought or published, though calls were made and none did so."""
    if not results:
        return []
    done = [f"{each.tool} {each.arguments} {each.text}" for each in results if error_object(each.text) is None]
    return [
        claim[0]
        for deed, founded in _DEEDS.items()
        if (claim := deed.search(text)) is not None and not any(founded.search(each) for each in done)
    ]


def _as_name(path: re.Match[str]) -> str:
    """Return a path without the words in it: `missing.md` claims nothing."""
    return "X" * len(path[0])


def _refers_back(part: str) -> bool:
    return re.match(r"\W*(?:it|they|that|this|these|those)\b", part, re.IGNORECASE) is not None


def _founds(result: CallResult, claim: str, *, is_empty: bool) -> bool:
    if _ABOUT_FILES.search(claim) and not _tells_of_files(result):
        return False
    failed = error_object(result.text)
    if failed is None:
        return not is_empty or bool(_SAYS_NONE.search(result.text)) or not result.text.strip()
    error = str(failed["error"])
    if is_empty:  # such an error tells of what it names, not of what the call was about
        return bool(_SAYS_EMPTY.search(error)) and bool(_words(claim) & _words(error))
    return bool(_SAYS_NONE.search(error)) and bool(_words(claim) & _words(f"{error} {result.arguments}"))


def _tells_of_files(result: CallResult) -> bool:
    return result.looks_at_files or bool(_ABOUT_FILES.search(result.text))


def _words(text: str) -> set[str]:
    return {re.sub("ies$", "y", word).rstrip("s") for word in _WORD.findall(text.lower())} - _SMALL_WORDS
