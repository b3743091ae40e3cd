"""Registers what the host has, and goes without the rest."""

import logging

logger = logging.getLogger(__name__)
went_without = []


def register(ctx):
    for name in ("register_teleporter", "register_something_new"):
        if hasattr(ctx, name):
            raise AssertionError(f"the host says that it has {name}")
        if getattr(ctx, name, None) is None:
            went_without.append(name)
    manager = getattr(ctx, "_manager", None)
    if getattr(manager, "_cli_ref", None) is not None:
        raise AssertionError("there is no terminal to reach into")
    ctx.register_command(
        "probe", handler=lambda raw_args: f"probed {raw_args}".strip(), description="Probe", args_hint="[what]"
    )
    if hasattr(ctx, "register_hook"):
        ctx.register_hook("on_session_start", lambda session_id="", **_: logger.info("session %s", session_id))
