"""What operators do in a chat: restart the daemon, choose a platform's home, commands of their own (`quick_commands`).

Source: plugin contract §7.1. Who may give them: `access.ADMIN_COMMANDS`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hermes_agent.config.edit import set_value
from hermes_agent.contracts.platform.settings import HomeChannel
from hermes_agent.core.errors import UserError
from hermes_agent.core.redact import redactor
from hermes_agent.delivery import OutboundReply, ReplyTarget
from hermes_agent.io import processes

if TYPE_CHECKING:
    from hermes_agent.gateway.chat_commands import CommandInvocation
    from hermes_agent.gateway.works import GatewayDeps

__all__ = ["restart_notice", "quick_command", "restart", "run_quick", "set_home"]

QUICK_TIMEOUT_S = 30.0
QUICK_OUTPUT_BYTES = 16_000
RESTARTED = "I am back. What was begun goes on."


async def restart(works: GatewayDeps, asked: CommandInvocation) -> str:
    """Restart the daemon; who asked is told when it is back."""
    if works.restart is None:
        return "Nothing restarts this process: it is no daemon."
    source = asked.source
    works.restart(json.dumps([asked.link.name, source.chat_id, source.thread_id or ""]))
    return "Restarting: what runs may finish first."


def restart_notice(told: str) -> OutboundReply:
    """Return what is said after a restart, to the chat that asked for it."""
    platform, chat, thread = (str(one) for one in json.loads(told))
    return OutboundReply(ReplyTarget(platform, chat, thread), ({"text": RESTARTED},))


async def set_home(works: GatewayDeps, asked: CommandInvocation) -> str:
    """Let this chat be where the platform's messages without an addressee go; kept in the config."""
    source, link = asked.source, asked.link
    home = HomeChannel(source.platform, source.chat_id, source.chat_name or "Home", source.thread_id)
    value = {name: one for name, one in home.to_dict().items() if one is not None and name != "platform"}
    await works.agent.bridge.run(set_value, works.home, ("platforms", link.name, "home_channel"), value)
    link.config.home_channel = home  # what a reload reads then is no change, and the platform stays connected
    entry = link.entry
    variable = (entry.cron_deliver_env_var if entry is not None else "") or ""
    if variable and works.environ.get(variable):
        return f"Kept, but {variable} is set and wins: messages without an addressee still go to what it names."
    return "Messages without an addressee (scheduled jobs, say) come here now."


def quick_command(values: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return the entry of `quick_commands` for a command; None when there is none."""
    found = (values.get("quick_commands") or {}).get(name)
    return found if isinstance(found, Mapping) else None


async def run_quick(works: GatewayDeps, entry: Mapping[str, Any], name: str) -> str:
    """Run the shell command of an entry and return what it printed.

    Raises:
        UserError: it has none.
    """
    command = str(entry.get("command") or "")
    if not command:
        raise UserError(
            f"quick_commands.{name} has no command", hint="Give it `command`, or `type: alias` and `target`."
        )
    stopped = threading.Event()

    def run() -> processes.CommandResult:
        return processes.run(
            command,
            cwd=works.agent.settings.cwd,
            env=processes.tool_environment(works.environ),
            timeout_s=QUICK_TIMEOUT_S,
            output_limit_bytes=QUICK_OUTPUT_BYTES,
            cancelled=stopped,
        )

    try:
        done = await works.agent.bridge.run(run)
    finally:
        stopped.set()
    text = redactor((done.head + done.tail).decode("utf-8", errors="replace")).strip()
    status = f"\n(exit status {done.exit_code})" if done.exit_code else ""
    if done.timed_out:
        status = f"\n(ended after {QUICK_TIMEOUT_S:g} s: commands of quick_commands may take no longer)"
    return (text + status).strip() or "Done."
