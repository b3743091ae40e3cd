"""A daemon of the tests' own that uses `hermes_agent.service` alone, as `hermes gateway run` does.

SIGWINCH starts a turn that lasts TURN_S; SIGUSR2 makes the core loop hang.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

from hermes_agent.core.errors import EXIT_CONFIG, RetryLater, UserError
from hermes_agent.core.redact import redactor
from hermes_agent.service.lock import HomeLock
from hermes_agent.service.logs import configure_logging, log_context
from hermes_agent.service.notify import Notifier
from hermes_agent.service.shutdown import Drain, Shutdown
from hermes_agent.service.state import describe_self, write_state
from hermes_agent.service.watchdog import beat, trace_hangs

logger = logging.getLogger("hermes_agent.stand_in")

SETTINGS: dict[str, Any] = {"logging.level": "DEBUG", "logging.max_size_mb": 5, "logging.backup_count": 3}


def main() -> int:
    home = Path(os.environ["HERMES_HOME"])
    notifier = Notifier.open()
    trace_hangs()
    redactor.learn(["a-secret-of-the-tests"])
    setup = configure_logging(SETTINGS_READER, home=home, mode="daemon")
    if os.environ.get("WRONG_CONFIG"):
        logger.error("config.yaml is wrong")
        return EXIT_CONFIG
    try:
        with HomeLock(home):
            write_state(home, describe_self(setup.log))
            return asyncio.run(serve(notifier))
    except UserError as exc:
        logger.error("%s", exc)
        return exc.exit_status


class _Settings:
    def get(self, key: str, /) -> Any:
        return SETTINGS[key]


SETTINGS_READER = _Settings()


async def serve(notifier: Notifier) -> int:
    drain = Drain()
    turns: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, lambda: turns.add(asyncio.create_task(turn(drain, notifier))))
    loop.add_signal_handler(signal.SIGUSR2, hang)
    with Shutdown().signals() as shutdown:
        feeding = asyncio.create_task(beat(notifier, notifier.beat_interval_s))
        await asyncio.sleep(float(os.environ.get("START_S", "0")))
        logger.info("environment: %s", sorted(name for name in os.environ if name.startswith(("NOTIFY", "WATCHDOG"))))
        notifier.ready("serving, 0 turns")
        reason = await shutdown.wait()
        notifier.stopping(f"stopping, {drain.running} turns")
        idle = await drain.wait_idle(8, hurry=shutdown.hurry)
        logger.info("stopped: reason=%s idle=%s", reason, idle)
        feeding.cancel()
        for task in turns:
            task.cancel()
        await asyncio.gather(feeding, *turns, return_exceptions=True)
    return 0


async def turn(drain: Drain, notifier: Notifier) -> None:
    with log_context(session="s1", turn="t1"):
        try:
            with drain.turn():
                notifier.status(f"serving, {drain.running} turns")
                with log_context(plugin="calculator", tool="calculate"):
                    logger.warning("turn begins, key a-secret-of-the-tests\nsecond line")
                await asyncio.sleep(float(os.environ.get("TURN_S", "0")))
                try:
                    raise ValueError("401 for a-secret-of-the-tests")
                except ValueError:
                    logger.exception("the tool failed")
                logger.info("turn ends")
            notifier.status(f"serving, {drain.running} turns, one done")
        except RetryLater as exc:
            logger.warning("refused: %s", exc)


def hang() -> None:
    logger.error("going to hang")
    time.sleep(600)


if __name__ == "__main__":
    raise SystemExit(main())
