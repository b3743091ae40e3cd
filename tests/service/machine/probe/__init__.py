"""Tools that log, fail, wait and hang, for the tests under systemd."""

import logging
import os
import time
from pathlib import Path

logger = logging.getLogger(__name__)

SECRET = "OPENAI_API_KEY"
STATE = Path(os.environ["HERMES_HOME"])


def report(args, **context):
    """Log a warning with a secret in it, then fail with the secret."""
    logger.warning("the tool begins, key %s\nsecond line", os.environ[SECRET])
    raise ValueError(f"401 for {os.environ[SECRET]}")


def slow(args, **context):
    """Say that it runs, and return when the test allows it."""
    (STATE / "slow-runs").touch()
    while not (STATE / "slow-may-end").exists():
        time.sleep(0.05)
    return "slow is done"


def hang(args, **context):
    """Block the event loop that feeds the watchdog; nothing that a plugin is offered can."""
    from hermes_agent.host import current

    current().bridge.wait_core(hang_the_loop())


async def hang_the_loop():
    time.sleep(600)  # noqa: ASYNC251 - this is what the test is about


def announce(**context):
    """Log from a hook."""
    logger.warning("the hook is called")


def register(ctx):
    ctx.register_hook("pre_llm_call", announce)
    for handler in (report, slow, hang):
        schema = {"name": handler.__name__, "description": handler.__doc__, "parameters": {"type": "object"}}
        ctx.register_tool(handler.__name__, "probe", schema, handler)
