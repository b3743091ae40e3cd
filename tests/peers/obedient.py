"""A model that does as it is told: `use NAME {ARGUMENTS}` calls that tool, and the tool's result is its answer.

A program: `python obedient.py FILE` serves it on the loopback and writes the base URL into FILE. It needs
`hermes_agent` alone, so that it runs where the agent is installed and nothing else.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from pathlib import Path
from typing import Any

from hermes_agent.testing import ScriptedModel, call, served
from hermes_agent.testing.scripted_model import Plain

REQUESTS = 1000
"""More than a test makes."""
ORDER = re.compile(r"\buse (\w+)(?: (\{.*\}))?", re.DOTALL)


def answer(request: dict[str, Any]) -> Plain:
    """Return what the model answers to a request's body."""
    last = request["messages"][-1]
    text = str(last["content"])
    if last["role"] == "tool":
        return f"The tool said: {text}"
    order = ORDER.search(text)
    return call(order[1], json.loads(order[2] or "{}")) if order else "Nothing to do."


if __name__ == "__main__":
    with served(ScriptedModel(*[answer] * REQUESTS)) as base_url:
        Path(sys.argv[1]).write_text(base_url)
        threading.Event().wait()
