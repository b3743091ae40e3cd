"""Runs in the peer's interpreter: turns of one of its agents. Prints the CPU milliseconds of each turn as JSON.

python peer_turns.py text|tool TURNS BASE_URL
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time

from hermes_state import SessionDB
from run_agent import AIAgent


def main(kind: str, turns: int, base_url: str) -> dict[str, list[float]]:
    agent = AIAgent(
        base_url=base_url,
        api_key="sk-stub",
        provider="custom",
        model="stub",
        quiet_mode=True,
        platform="cli",
        session_db=SessionDB(),
        skip_memory=True,
    )
    history: list[dict[str, object]] = []
    spent = []
    for _ in range(turns):
        began = time.process_time()
        done = agent.run_conversation(f"{kind} message: " + "words " * 20, conversation_history=history)
        spent.append((time.process_time() - began) * 1000)
        assert done["final_response"]
        history = done["messages"]
    return {"turns": spent}


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        from hermes_cli.plugins import discover_plugins

        discover_plugins()
        measured = main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    print(json.dumps(measured), flush=True)
    os._exit(0)  # it has threads that would be waited for
