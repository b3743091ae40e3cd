"""Runs in our interpreter. For each line `NAME TIMES` prints the microseconds of CPU of one of so many runs: `async` is
a tool call as a turn makes it, `hop` an empty hop to a worker.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

from hermes_agent.app.start import start_host
from hermes_agent.core.messages import ToolCall
from hermes_agent.host import Host
from hermes_agent.policy import NoApprover


async def main(host: Host, tool: str) -> None:
    talk = await host.agent.open(platform="cli", approver=NoApprover("in a measurement"))
    valid = [definition["function"]["name"] for definition in talk.definitions()]
    scope = talk.scope("turn")

    async def call() -> None:
        name, arguments = host.dispatcher.resolve(ToolCall("c", tool, '{"text": "hi", "count": "3"}'), valid)
        outcome = await host.dispatcher.run("c", name, arguments, scope, valid=valid)
        assert outcome.status == "ok", outcome

    async def hop() -> Any:
        return await host.bridge.run(int)

    measured = {"async": call, "hop": hop}
    for line in sys.stdin:  # it may block the loop: nothing else is on it
        name, times = line.split()
        what = measured[name]
        began = time.process_time()
        for _ in range(int(times)):
            await what()
        print((time.process_time() - began) / int(times) * 1e6, flush=True)


if __name__ == "__main__":
    asyncio.run(main(start_host(), sys.argv[1]))
    os._exit(0)
