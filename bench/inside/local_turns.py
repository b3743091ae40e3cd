"""Runs in our interpreter: turns of a session with the embedded model. Prints seconds to the first word as JSON.

`first`: of the first turn, with the start of the model. `second`: of turns after it. `restored`: of a turn after the
model has been unloaded.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from hermes_agent.agent.conversation import Conversation
from hermes_agent.app.start import start_host
from hermes_agent.core.messages import TextDelta
from hermes_agent.host import Host
from hermes_agent.policy import NoApprover

FIRST = "In two sentences: what is a lighthouse?"
LATER = ("And in one sentence: who looks after one?", "In one sentence: how far is its light seen?", "Thank you. Bye!")
CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children")
LAST = "Say goodbye in five words."


async def first_word(conversation: Conversation, text: str) -> float:
    """Take a turn to its end; return the seconds until the first word of its answer."""
    begun, taken = time.perf_counter(), None
    async for event in conversation.turn(text):
        if taken is None and isinstance(event, TextDelta):
            taken = time.perf_counter() - begun
    assert taken is not None, text
    return taken


def wait_for_end(idle_s: float) -> None:
    """Wait until the model's process has ended: a child of this process is the model."""
    while CHILDREN.read_text().split():
        time.sleep(idle_s / 10)


async def main(host: Host, idle_s: float) -> dict[str, list[float]]:
    conversation = await host.agent.open(platform="cli", approver=NoApprover("in a measurement"))
    spent = {"first": [await first_word(conversation, FIRST)]}
    spent["second"] = [await first_word(conversation, text) for text in LATER]
    await asyncio.to_thread(wait_for_end, idle_s)
    spent["restored"] = [await first_word(conversation, LAST)]
    return spent


if __name__ == "__main__":
    started = start_host()
    print(json.dumps(asyncio.run(main(started, float(sys.argv[1])))), flush=True)
    os._exit(0)
