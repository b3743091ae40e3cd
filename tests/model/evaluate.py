"""`make eval`: ask the embedded model every suite, keep the answers, and write the table of the docs.

The suites are `everyday` (60 requests to the agent in a fresh home), `guide` (40 runs of the prompts of the guide),
`tools`, `failing` (what tools cannot do), `calls` (which tool is called first) and `bfcl` (tasks of the published
benchmark). The last two are asked without the agent. Answers are kept in a file, so that a run continues where the last
one ended, as long as the adapter is unchanged.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from bfcl import BfclTask, read_tasks
from evaluation_record import AskedItem, EvaluationRecord
from everyday import REQUESTS, EverydayRequest
from first_calls import WITH_OTHER_TOOL, WITH_TOOL, WITHOUT_TOOL, Case, find_wrong
from fresh_home import CALCULATOR, FreshHome, TurnRecord, fresh_home
from guide_prompts import draw_prompts
from situations import SITUATIONS, Situation, judge
from toolbox import OTHERS, SYSTEM, step

from compat.guide_calculator import GUIDES, files_of_guide, write_files
from hermes_agent.core.messages import Message

ANSWERS = Path.home() / ".cache" / "hermes" / "eval" / "answers.jsonl"


@dataclass(frozen=True, slots=True)
class FirstCall:
    """A request of which the first call is judged, without the agent."""

    group: str
    case: Case

    @property
    def name(self) -> str:
        """The request itself."""
        return self.case[0]


Asked = EverydayRequest | Situation | BfclTask | FirstCall


@dataclass(slots=True)
class Evaluator:
    """The homes in which the suites are asked; each is made when it is needed."""

    folder: Path
    stack: AsyncExitStack
    homes: dict[str, FreshHome] = field(default_factory=dict)

    async def home(self, calculator: str = "example") -> FreshHome:
        """Return the home with the calculator of the examples or of the published guide."""
        if calculator not in self.homes:
            place, source = self.folder / calculator, CALCULATOR
            if calculator == "guide":
                source = place / "source"
                write_files(files_of_guide(), source)
            plugins = ("station",) if calculator == "example" else ()
            made = fresh_home(place, calculator=source, plugins=plugins)
            self.homes[calculator] = await self.stack.enter_async_context(made)
        return self.homes[calculator]

    async def ask(self, suite: str, asked: Asked) -> AskedItem:
        """Ask one item and judge it."""
        began = time.monotonic()
        if isinstance(asked, FirstCall):
            call = await self._first_call(asked)
            fault = find_wrong(call, *asked.case[1:])
            seconds = time.monotonic() - began
            verdict, answer = "wrong" if fault else "right", "" if call[0] else str(call[1])
            return AskedItem(suite, asked.group, asked.name, verdict, fault, seconds, answer, [call] if call[0] else [])
        if isinstance(asked, BfclTask):
            client = (await self.home()).host.choose_model(None).client
            fault, calls = await asked.find_fault(client)
            seconds = time.monotonic() - began
            return AskedItem(
                suite, asked.category, asked.id, "wrong" if fault else "right", fault, seconds, "", [*calls]
            )
        desk = self.folder / "desk"  # the same for all: what the model read before stays read
        shutil.rmtree(desk, ignore_errors=True)
        desk.mkdir()
        asked.prepare(desk)
        record = await self._ask_agent(suite, asked, desk)
        if isinstance(asked, EverydayRequest):
            reason = asked.find_fault(record, desk)
            verdict = "wrong" if reason else "right"
        else:
            verdict, reason = judge(asked, record, desk)
        seconds = time.monotonic() - began
        calls = [[tool, status, result[:300]] for tool, status, result in record.calls]
        return AskedItem(suite, asked.group, asked.name, verdict, reason, seconds, record.text, calls)

    async def _first_call(self, asked: FirstCall) -> tuple[str, Any]:
        home = await self.home()
        tools = OTHERS if asked.group == "other tools" else await home.tools()
        answer, _ = await step(home.host.choose_model(None).client, [SYSTEM, Message("user", asked.name)], tools)
        calls = answer.message.tool_calls
        return (calls[0].name, json.loads(calls[0].arguments)) if calls else ("", answer.message.text)

    async def _ask_agent(self, suite: str, asked: EverydayRequest | Situation, desk: Path) -> TurnRecord:
        if isinstance(asked, EverydayRequest):
            return (await (await self.home()).ask_in_turn([*asked.before, asked.question], desk))[-1]
        home = await self.home(
            "guide" if suite == "guide" and asked.name.endswith(_ODD) and _has_guide() else "example"
        )
        return await home.ask(asked.question, desk, station=asked.station)


_ODD = ("1", "3", "5", "7", "9")


def _has_guide() -> bool:
    return (GUIDES / "build-a-plugin.en.md").is_file()


def list_items(wheel: Path | None) -> list[tuple[str, Asked]]:
    """Return what is asked, in order."""
    items: list[tuple[str, Asked]] = [("everyday", request) for request in REQUESTS]
    items += [("guide", prompt) for prompt in draw_prompts()]
    items += [(s.group, s) for s in SITUATIONS if s.group in ("tools", "failing")]
    groups = {"shipped tools": WITH_TOOL, "other tools": WITH_OTHER_TOOL}
    items += [("calls", FirstCall(group, case)) for group, cases in groups.items() for case in cases]
    items += [("calls", FirstCall("no tool", (question, "", bool))) for question in WITHOUT_TOOL]
    return items + [("bfcl", task) for task in (read_tasks(wheel) if wheel is not None else ())]


async def evaluate(
    items: list[tuple[str, Asked]], record: EvaluationRecord, deadline: float
) -> AsyncIterator[AskedItem]:
    """Ask what is left of `items` until `deadline`, and yield each when it is judged."""
    with tempfile.TemporaryDirectory(prefix="eval-") as folder:
        async with AsyncExitStack() as stack:
            evaluator = Evaluator(Path(folder), stack)
            for suite, asked in items:
                if time.monotonic() > deadline:
                    return
                item = await evaluator.ask(suite, asked)
                record.add(item)
                yield item


def _key(suite: str, asked: Asked) -> tuple[str, str, str]:
    return (suite, asked.category, asked.id) if isinstance(asked, BfclTask) else (suite, str(asked.group), asked.name)


async def _print_items(options: argparse.Namespace, record: EvaluationRecord) -> None:
    wheel = next(iter(sorted(options.bfcl.glob("bfcl_eval-*.whl"))), None)
    if wheel is None:
        print("without BFCL: its data could not be fetched (`make eval` needs a package index for it)", file=sys.stderr)
    wanted = [
        (suite, asked) for suite, asked in list_items(wheel) if re.search(options.only, " ".join(_key(suite, asked)))
    ]
    left = [each for each in wanted if options.again or _key(*each) not in record.items]
    print(f"{len(wanted) - len(left)} of {len(wanted)} are answered in {record.path}; {len(left)} are left")
    deadline = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
    async for item in evaluate(left, record, deadline):
        print(f"{' '.join(item.key):44} {item.verdict:7} {item.seconds:6.1f} s  {item.reason}", flush=True)
        if options.show or item.verdict != "right":
            for call in item.calls:
                print(f"      {str(call)[:300]}")
            print(f"      = {item.answer[:300]!r}", flush=True)


def main() -> int:
    """Ask what is left, print the table; 1 when a suite is below what it has to reach."""
    parser = argparse.ArgumentParser(prog="make eval")
    parser.add_argument("--only", default="", help="items whose suite, group and name match this pattern")
    parser.add_argument("--again", action="store_true", help="ask answered items again, too")
    parser.add_argument("--older", action="store_true", help="keep answers of another state of the adapter")
    parser.add_argument("--minutes", type=float, default=0, help="ask nothing new after so many minutes")
    parser.add_argument("--answers", type=Path, default=ANSWERS, help=f"the file of answers (default: {ANSWERS})")
    parser.add_argument("--bfcl", type=Path, default=Path(".cache/bfcl"), help="folder of the wheel with BFCL's data")
    parser.add_argument("--show", action="store_true", help="show calls and answers of the right ones, too")
    parser.add_argument("--write", action="store_true", help="write the table into the page of the docs")
    options = parser.parse_args()
    record = EvaluationRecord(options.answers, keep_older=options.older)
    asyncio.run(_print_items(options, record))
    print(f"\n{record.table()}")
    if options.write:
        record.write_page()
    shortfalls = list(record.find_shortfalls())
    print("\n".join(["", *shortfalls]), file=sys.stderr) if shortfalls else None
    return int(bool(shortfalls))


if __name__ == "__main__":
    raise SystemExit(main())
