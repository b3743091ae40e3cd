"""The daemon's loop: it asks the kernel less often, and starves nobody."""

from __future__ import annotations

import asyncio
import socket
import threading

from hermes_agent.runtime.loops import ROUNDS, new_core_loop


def test_busy_rounds_hear_of_sockets_threads_and_timers_all_the_same() -> None:
    async def main() -> tuple[int, set[str]]:
        loop, heard, rounds = asyncio.get_running_loop(), set[str](), 0
        here, there = socket.socketpair()
        here.setblocking(False)
        loop.add_reader(here, lambda: (here.recv(1), heard.add("socket")))
        loop.call_later(0.01, heard.add, "timer")
        threading.Thread(target=loop.call_soon_threadsafe, args=(heard.add, "thread")).start()
        there.send(b"!")
        while len(heard) < 3 and rounds < 1_000_000:  # something to do in every round
            rounds += 1
            await asyncio.sleep(0)
        loop.remove_reader(here)
        here.close()
        there.close()
        return rounds, heard

    with asyncio.Runner(loop_factory=new_core_loop) as runner:
        rounds, heard = runner.run(main())
    assert heard == {"socket", "timer", "thread"} and rounds < 1_000_000


def test_a_socket_waits_a_few_rounds_at_most() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        came, rounds = asyncio.Event(), 0
        loop.add_reader(here, came.set)
        there.send(b"!")
        while not came.is_set():
            rounds += 1
            await asyncio.sleep(0)
        loop.remove_reader(here)
        here.close()
        there.close()
        return rounds

    with asyncio.Runner(loop_factory=new_core_loop) as runner:
        assert runner.run(main()) <= ROUNDS + 2
