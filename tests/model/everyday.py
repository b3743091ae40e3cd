"""Sixty everyday requests with strict checks: what the tools did, and what the answer has to state."""

from __future__ import annotations

import getpass
import os
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Literal

from fresh_home import TurnRecord, numbers_in
from situations import ADMITTED, Situation, has_content

EverydayGroup = Literal["files", "arithmetic", "units", "dates", "system", "refusals", "follow-ups"]

READS = ("read_file", "terminal", "execute_code", "search_files")
RUNS = ("terminal", "execute_code", "process")
WRITES = ("write_file", "patch", "terminal", "execute_code")
MATHS = ("calculate", "execute_code", "terminal")
UNITS = ("unit_convert", "calculate", "execute_code", "terminal")


@dataclass(frozen=True, slots=True)
class EverydayRequest:
    """One request, in a session and a directory of its own.

    Attributes:
        before: questions that are asked first, in the same session.
        tools: one of these must have ended well in the judged turn; () requires none.
        no_tool: a call is wrong.
        value: the number that the answer states, within half a percent.
        states: what the answer matches, without case.
        finds: returns such a pattern from the directory, the date or the machine.
        never: what the answer must not match.
        effect: what holds in the directory afterwards.
        admits: the answer says that the request could not be carried out.
    """

    name: str
    group: EverydayGroup
    question: str
    before: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    no_tool: bool = False
    value: float | None = None
    states: str = ""
    finds: Callable[[Path], str] | None = None
    never: str = ""
    effect: Callable[[Path], bool] | None = None
    admits: bool = False
    files: Mapping[str, str] = field(default_factory=dict)

    def prepare(self, directory: Path) -> None:
        """Write the files."""
        Situation(self.name, "tools", self.question, files=self.files).prepare(directory)

    def find_fault(self, record: TurnRecord, directory: Path) -> str:
        """Return why the turn is wrong, or ""."""
        text = record.text
        succeeded = {name for name, status, _ in record.calls if status == "ok"}
        if self.no_tool and record.calls:
            return f"a call for nothing: {record.calls[0][0]}"
        if self.tools and not succeeded & set(self.tools):
            return f"no successful call of {', '.join(self.tools)}"
        if self.effect is not None and not self.effect(directory):
            return "the files are not as requested"
        if self.value is not None and not any(abs(n - self.value) <= 0.005 * abs(self.value) for n in numbers_in(text)):
            return f"does not state {self.value:g}"
        for pattern in (self.states, self.finds(directory) if self.finds is not None else ""):
            if pattern and not re.search(pattern, text, re.IGNORECASE | re.DOTALL):
                return f"does not state {pattern}"
        if self.never and re.search(self.never, text, re.IGNORECASE | re.DOTALL):
            return f"states {self.never}"
        if self.admits and not ADMITTED.search(text):
            return "does not admit the failure"
        invented = record.invented_numbers() if self.tools and self.value is None else []
        return f"states {', '.join(invented)}, which no result has" if invented else ""


def _value(name: str, group: EverydayGroup, question: str, value: float) -> EverydayRequest:
    return EverydayRequest(name, group, question, tools=MATHS if group == "arithmetic" else UNITS, value=value)


def _file(name: str, question: str, *, tools: tuple[str, ...] = READS, **more: object) -> EverydayRequest:
    return EverydayRequest(name, "files", question, tools=tools, **more)  # type: ignore[arg-type]


def _moved(old: str, new: str, content: str, *, keeps: bool = False) -> Callable[[Path], bool]:
    return lambda desk: has_content(new, content)(desk) and (desk / old).exists() is keeps


def _day(offset: int, form: str = "date") -> Callable[[Path], str]:
    def pattern(_: Path) -> str:
        day = date.today() + timedelta(days=offset)
        if form == "weekday":
            return f"{day:%A}"
        month = f"(?:{day:%B}|{day:%b})"
        return (
            f"{day:%Y-%m-%d}|{month} 0?{day.day}\\b|\\b0?{day.day}(?:st|nd|rd|th)? (?:of )?{month}"
            f"|\\b0?{day.month}/0?{day.day}/|\\b0?{day.day}[./]0?{day.month}[./]"
        )

    return pattern


def _days_until(month: int, day: int) -> Callable[[Path], str]:
    def pattern(_: Path) -> str:
        today = date.today()
        there = date(today.year, month, day)
        there = there if there >= today else date(today.year + 1, month, day)
        return rf"\b{(there - today).days}\b"

    return pattern


_REPORT = (
    "Quarterly report\n\nThe bakery in Lindau sold 4,210 loaves of rye bread in March. The oven called Berta broke on"
    " the 12th and was mended by Mr Achterberg. In April a second shop opens in Bregenz.\n"
)
_EMPTY = r"\b(?:don't have any|contains? no|no files?|(?:is|are) empty|no content|nothing in)\b"
_LINES = "".join(f"{n:02} entry\n" for n in range(7))

REQUESTS: tuple[EverydayRequest, ...] = (
    _file("read", "What does plan.txt say?", states="walrus", files={"plan.txt": "Feed the walrus.\n"}),
    _file(
        "summary",
        "Summarise report.txt in one sentence",
        states="bakery|bread|loaves|lindau|berta",
        never=_EMPTY,
        files={"report.txt": _REPORT},
    ),
    _file(
        "find",
        "Which file contains the word marmalade?",
        states=r"breakfast\.txt",
        never=r"lunch\.txt contains",
        files={"breakfast.txt": "toast and marmalade\n", "lunch.txt": "soup\n"},
    ),
    _file(
        "list",
        "Which files are in the current directory?",
        states=r"alpha\.txt.*beta\.txt|beta\.txt.*alpha\.txt",
        files={"alpha.txt": "1\n", "beta.txt": "2\n"},
    ),
    _file("count-lines", "How many lines does log.txt have?", states=r"\b(?:7|seven)\b", files={"log.txt": _LINES}),
    _file(
        "count-files",
        "What does len(os.listdir()) give in the current directory?",
        tools=(*RUNS, "search_files", "read_file"),
        states=r"\b(?:3|three)\b",
        files={"one.txt": "x", "two.txt": "y", "three.txt": "z"},
    ),
    _file(
        "first-line",
        "Show me the first line of story.txt",
        states="once upon a tide",
        never="lighthouse",
        files={"story.txt": "Once upon a tide.\nA lighthouse blinked.\n"},
    ),
    _file(
        "exists",
        "Is there a file called budget.csv here?",
        states=r"\byes\b|there is|exists",
        never=r"\bno\b|not",
        files={"budget.csv": "a,b\n"},
    ),
    _file("size", "How big is data.bin in bytes?", states=r"2,?048", files={"data.bin": "x" * 2048}),
    _file(
        "two-files",
        "Read a.txt and b.txt and tell me which one mentions Lisbon",
        states=r"\bb\.txt",
        never=r"\ba\.txt (?:mentions|is the one)|both",
        files={"a.txt": "We met in Porto.\n", "b.txt": "The train to Lisbon was late.\n"},
    ),
    _file(
        "write",
        "Create a file hello.txt with the text good morning",
        tools=WRITES,
        effect=has_content("hello.txt", "good morning"),
    ),
    _file(
        "write-lines",
        "Create numbers.txt with the words one, two and three, each on its own line",
        tools=WRITES,
        effect=lambda desk: (
            (desk / "numbers.txt").is_file()
            and (desk / "numbers.txt").read_text().lower().split("\n")[:3] == ["one", "two", "three"]
        ),
    ),
    _file(
        "append",
        "Add the line buy milk to the end of todo.txt",
        tools=WRITES,
        effect=lambda desk: (desk / "todo.txt").read_text().split("\n")[:2] == ["call Ann", "buy milk"],
        files={"todo.txt": "call Ann\n"},
    ),
    _file(
        "replace",
        "Replace the word cat with dog in pets.txt",
        tools=WRITES,
        effect=lambda desk: (desk / "pets.txt").read_text() == "My dog is old.\n",
        files={"pets.txt": "My cat is old.\n"},
    ),
    _file(
        "rename",
        "Rename draft.txt to final.txt",
        tools=RUNS,
        effect=_moved("draft.txt", "final.txt", "chapter"),
        files={"draft.txt": "Chapter one\n"},
    ),
    _file(
        "copy",
        "Copy notes.txt to backup.txt",
        tools=WRITES,
        files={"notes.txt": "blue lamp\n"},
        effect=_moved("notes.txt", "backup.txt", "blue lamp", keeps=True),
    ),
    _file("directory", "Make a directory called archive", tools=RUNS, effect=lambda desk: (desk / "archive").is_dir()),
    _file(
        "script",
        "Write a Python script hello.py that prints Hello World, and then run it",
        tools=RUNS,
        effect=has_content("hello.py", "print"),
        states="hello,? world",
    ),
    _value("power", "arithmetic", "What's 2 to the power of 16?", 65536),
    _value("product", "arithmetic", "What is 417 times 23?", 9591),
    _value("percent", "arithmetic", "What's 15% of 240?", 36),
    _value("root", "arithmetic", "What's the square root of 1764?", 42),
    _value("sum", "arithmetic", "Add 1234 and 5678 and take away 90", 6822),
    _value("brackets", "arithmetic", "Calculate (12.5 * 8 - 4) / 6", 16),
    _value("average", "arithmetic", "What is the average of 4, 8, 15, 16, 23 and 42?", 18),
    _value("tip", "arithmetic", "How much is a 20% tip on a bill of 85 dollars?", 17),
    _value("division", "arithmetic", "Divide 7 by 3", 2.3333),
    _value("factorial", "arithmetic", "What is the factorial of 9?", 362880),
    _value("fahrenheit", "units", "Convert 100 fahrenheit to celsius", 37.7778),
    _value("celsius", "units", "What is 20 degrees celsius in fahrenheit?", 68),
    _value("kelvin", "units", "Convert 300 kelvin to celsius", 26.85),
    _value("miles", "units", "How many kilometers are 26 miles?", 41.8428),
    _value("pounds", "units", "Convert 5 pounds to kilograms", 2.26796),
    _value("megabytes", "units", "How many megabytes are in 3 gigabytes?", 3072),
    _value("inches", "units", "How many inches are in 6 feet?", 72),
    _value("ounces", "units", "How many grams are 12 ounces?", 340.194),
    _value("seconds", "units", "How many seconds are in 3 hours?", 10800),
    EverydayRequest("today", "dates", "What is the date today?", finds=_day(0)),
    EverydayRequest("weekday", "dates", "What day of the week is it today?", finds=_day(0, "weekday")),
    EverydayRequest("year", "dates", "Which year is it?", finds=lambda _: f"{date.today():%Y}"),
    EverydayRequest("in-ten-days", "dates", "Which date is it in 10 days?", finds=_day(10)),
    EverydayRequest("until", "dates", "How many days are there until December 31?", finds=_days_until(12, 31)),
    EverydayRequest("millennium", "dates", "What day of the week was 2000-01-01?", states="saturday"),
    EverydayRequest(
        "host",
        "system",
        "What is the hostname of this machine?",
        tools=(*RUNS, "read_file"),
        finds=lambda _: re.escape(platform.node()),
    ),
    EverydayRequest(
        "user",
        "system",
        "Which user am I on this machine?",
        tools=RUNS,
        finds=lambda _: rf"\b{re.escape(getpass.getuser())}\b",
    ),
    EverydayRequest(
        "kernel",
        "system",
        "Which kernel version does this machine run?",
        tools=(*RUNS, "read_file"),
        finds=lambda _: re.escape(platform.release().split("-")[0]),
    ),
    EverydayRequest(
        "cores",
        "system",
        "How many CPU cores does this machine have?",
        tools=(*RUNS, "read_file"),
        finds=lambda _: rf"\b(?:{os.cpu_count()}|{'two' if os.cpu_count() == 2 else os.cpu_count()})\b",
    ),
    EverydayRequest(
        "disk",
        "system",
        "How much disk space is free on this machine?",
        tools=RUNS,
        states=r"\d+(?:\.\d+)? ?(?:[GTM]i?B?\b|%|gigabytes|terabytes|megabytes)|\d{6,}",
    ),
    EverydayRequest(
        "uptime", "system", "How long has this machine been running?", tools=(*RUNS, "read_file"), states=r"\d"
    ),
    EverydayRequest("where", "system", "In which directory are you working?", finds=lambda desk: re.escape(desk.name)),
    EverydayRequest(
        "missing-file",
        "refusals",
        "Summarise minutes.md",
        admits=True,
        never="meeting (?:was|discussed)|attendees|is about",
    ),
    EverydayRequest(
        "division-by-zero",
        "refusals",
        "What is 5 divided by 0?",
        never=r"\bis 0\b",
        states="undefined|not (?:possible|defined|allowed)|can ?not|could not|by zero",
    ),
    EverydayRequest("furlongs", "refusals", "Convert 3 furlongs to kilobytes", admits=True, never=r"\d{3}|= "),
    EverydayRequest(
        "delete-system",
        "refusals",
        "Delete the directory /etc/ssl/private with rm -rf",
        admits=True,
        never=r"(?:has been|was) (?:successfully )?deleted",
    ),
    EverydayRequest("phone", "refusals", "Call my mother on the phone", admits=True, never="calling|ringing"),
    EverydayRequest(
        "next-power", "follow-ups", "And to the power of 13?", before=("What's 3 to the power of 11?",), value=3**13
    ),
    EverydayRequest(
        "next-temperature", "follow-ups", "And 50?", before=("Convert 100 fahrenheit to celsius",), value=10
    ),
    EverydayRequest("name", "follow-ups", "What is my name?", before=("Hello, my name is Ada.",), states="ada"),
    EverydayRequest(
        "capital",
        "follow-ups",
        "And of Italy?",
        before=("What is the capital of France?",),
        no_tool=True,
        states="rome",
    ),
    EverydayRequest(
        "same-file",
        "follow-ups",
        "Which town does it mention?",
        before=("What does trip.txt say?",),
        states="bregenz",
        files={"trip.txt": "On Friday we sail to Bregenz.\n"},
    ),
)
"""Arithmetic 10, units 9, files 18, dates 6, system 7, refusals 5, follow-ups 5."""
