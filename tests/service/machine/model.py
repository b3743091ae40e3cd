"""A model for the tests' daemon: `use NAME` calls the tool of that name, and its result is the answer."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

from hermes_agent.testing import ScriptedModel, call, served
from hermes_agent.testing.model import Plain

REQUESTS = 100
"""More than a test makes."""


def answer(request: dict[str, Any]) -> Plain:
    """Return what the model answers to a request's body."""
    last = request["messages"][-1]
    text = str(last["content"])
    if last["role"] == "tool":
        return f"The tool said: {text}"
    return call(text.rpartition(" ")[2]) if "use " in text else "Nothing to do."


with served(ScriptedModel(*[answer] * REQUESTS)) as base_url:
    Path(sys.argv[1]).write_text(base_url)
    threading.Event().wait()
