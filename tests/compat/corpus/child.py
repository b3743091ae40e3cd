"""The process of one run: start the agent as a front door does, write what it registered, then call all of it once.

python child.py ANSWER register|smoke
"""

from __future__ import annotations

import importlib.abc
import json
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

TESTS = str(Path(__file__).resolve().parents[2])


class Witness(importlib.abc.MetaPathFinder):
    """Notes which of upstream's names are asked for, and finds nothing itself."""

    def __init__(self, reserved: frozenset[str]) -> None:
        self.reserved = reserved
        self.asked: list[str] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in self.reserved and fullname not in self.asked:
            self.asked.append(fullname)
        return None


class Lines(logging.Handler):
    """Keeps the warnings, and what was raised."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.raised: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        exc = record.exc_info[1] if record.exc_info else None
        if exc is not None:
            frames = [frame.filename for frame in traceback.extract_tb(exc.__traceback__)]
            said = {"text": record.getMessage(), "raised": f"{type(exc).__name__}: {exc}", "frames": frames}
            self.raised.append(said)


def main(answer: str, depth: str, plan: str) -> int:
    """Load, record, call."""
    from hermes_agent.app.start import start_host
    from hermes_agent.compat.import_hook import RESERVED

    own = sys.path.copy()
    sys.path.insert(0, TESTS)
    from compat.corpus import record, services, smoke, turn

    sys.path[:] = own
    lines, witness = Lines(), Witness(RESERVED)
    logging.getLogger().addHandler(lines)
    planned = json.loads(plan) if plan else {}
    services.loopback_up() if plan else None
    service = services.Service(planned["kind"], planned["port"]) if planned.get("kind") else None
    exec(planned.get("prepare", ""), {})
    sys.meta_path.insert(0, witness)
    host = start_host()
    memory = (host.config.values.get("memory") or {}).get("provider") or ""
    result: dict[str, Any] = {"registered": record.registered(host, memory), "called": []}

    def write() -> None:
        result["refused"] = [name for name in witness.asked if name not in sys.modules]
        result["host_modules"] = [name for name in witness.asked if name in sys.modules]
        result["log"], result["raised"] = lines.lines, lines.raised
        text = json.dumps(result, ensure_ascii=False)
        for place, name in ((host.home, "$HERMES_HOME"), (Path.home(), "$HOME"), (sys.executable, "$PYTHON")):
            text = text.replace(str(place), name)
        Path(answer).write_text(text, encoding="utf-8")

    write()
    if depth == "service":
        result["service"] = turn.service_turns(host, planned, service) if memory else turn.model_turn(host, service)
        said = ("TypeError", "AttributeError", "ImportError", "ModuleNotFoundError")
        faults = [line for line in lines.lines if any(name in line for name in said)]
        result["service"] += [*dict.fromkeys(faults)]
        write()
    if depth == "smoke":
        result["called"] = smoke.call_everything(host)
        write()
        if memory:
            result["turns"] = turn.memory_turns(host)
            said = ("TypeError", "AttributeError", "ImportError", "ModuleNotFoundError")
            about = [line for line in lines.lines if line.startswith("memory provider of plugin")]
            faults = [line for line in about if any(name in line for name in said)]
            result["called"] += [*dict.fromkeys(faults), *filter(None, [result["turns"]["failed"]])]
            write()
    return 0


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a plugin's own threads must not keep the process
