"""Runs in our interpreter: a tool call as a turn makes it, and an empty hop to a worker. Prints microseconds."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from hermes_agent.app.start import start_host
from hermes_agent.core.messages import ToolCall
from hermes_agent.host import Host
from hermes_agent.policy import NobodyThere


async def least_us(call: Callable[[], Awaitable[Any]], times: int = 1000) -> float:
    series = []
    for _ in range(10):
        began = time.process_time()
        for _ in range(times):
            await call()
        series.append((time.process_time() - began) / times * 1e6)
    return min(series)


async def main(host: Host, tool: str) -> dict[str, float]:
    talk = await host.agent.open(platform="cli", approver=NobodyThere("in a measurement"))
    valid = [definition["function"]["name"] for definition in talk.definitions()]
    scope = talk.scope("turn")

    async def call() -> None:
        name, arguments = host.dispatcher.resolve(ToolCall("c", tool, '{"text": "hi", "count": "3"}'), valid)
        outcome = await host.dispatcher.run("c", name, arguments, scope, valid=valid)
        assert outcome.status == "ok", outcome

    return {"async": await least_us(call), "hop": await least_us(lambda: host.bridge.run(int))}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(start_host(), sys.argv[1]))), flush=True)
    os._exit(0)
