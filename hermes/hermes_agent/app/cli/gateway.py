"""`hermes gateway`: run (the daemon), key, status, stop, restart, reload, revive."""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.app.cli.command import JSON, Args, CliSubcommand, argument, ensure_home, exclusive
from hermes_agent.app.daemon_client import ask_daemon, daemon_socket
from hermes_agent.config import load
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError

if TYPE_CHECKING:
    from hermes_agent.host import Host
    from hermes_agent.server import HttpSettings
    from hermes_agent.service.handover import SocketHandover
    from hermes_agent.service.notify import ServiceNotifier

__all__ = ["add_gateway"]

logger = logging.getLogger(__name__)

RETURNS_WITHIN_S = 60.0
"""How long nobody may hold the home while it restarts."""

gateway_command = CliSubcommand("gateway", "run the daemon, ask how it does")
add_gateway = gateway_command.add


@gateway_command.action(
    "run",
    "run the daemon in the foreground, with the HTTP server",
    exclusive(
        argument("-v", "--verbose", dest="log_level", action="store_const", const="DEBUG", help="log everything"),
        argument(
            "-q", "--quiet", dest="log_level", action="store_const", const="WARNING", help="log warnings and worse"
        ),
    ),
)
def _run_daemon(args: Args) -> int:
    # In the function, here and below: no other command needs them, and start-up is to be quick.
    from hermes_agent.app.start import start_host
    from hermes_agent.service.descriptors import raise_file_limit
    from hermes_agent.service.handover import SocketHandover
    from hermes_agent.service.journal import stderr_is_journal
    from hermes_agent.service.lock import HomeLock
    from hermes_agent.service.logs import end_start
    from hermes_agent.service.notify import ServiceNotifier
    from hermes_agent.service.state import describe_self, read_note, write_state
    from hermes_agent.service.watchdog import trace_hangs

    handover = SocketHandover(os.environ)  # these two first: no child process may find the sockets in its environment
    notifier = ServiceNotifier.open()
    trace_hangs()
    home = ensure_home()
    with HomeLock(home):
        try:
            host = start_host("daemon", log_level=args.log_level)
        except UserError:
            end_start()  # the reason comes last
            raise
        raise_file_limit()
        try:
            notes = {name: read_note(home, name) for name in ("control", "http") if handover.follows}
            write_state(home, describe_self("journal" if stderr_is_journal(os.environ) else "file"), notes)
            _serve(host, notifier, handover)
        except UserError as exc:
            end_start()
            logger.error("%s", exc)
            return exc.exit_status
        finally:
            notifier.close()
    if handover.wanted:
        try:
            handover.become_next()
        except OSError as exc:
            handover.close()
            raise UserError(f"the program cannot be started again: {exc}", hint="Is it still installed?") from exc
    return EXIT_OK


@gateway_command.action(
    "setup",
    "set up a chat platform: its settings, and who may talk",
    argument("platform", metavar="PLATFORM", nargs="?", help="which; without it, one of a list"),
)
def _setup(args: Args) -> int:
    from hermes_agent.app.gateway_setup import set_up
    from hermes_agent.app.start import start_host

    ensure_home()
    host = start_host()
    try:
        return set_up(host, args.platform)
    finally:
        host.bridge.close()


def _serve(host: Host, notifier: ServiceNotifier, handover: SocketHandover) -> None:
    import asyncio

    from hermes_agent.app.control_door import FOR_MEMBERS, make_operations
    from hermes_agent.app.plugin_door import PluginStatus
    from hermes_agent.host.memory_watch import MemoryWatch
    from hermes_agent.io.core_loop import new_core_loop
    from hermes_agent.server import read_settings, with_key
    from hermes_agent.server.daemon import run_daemon
    from hermes_agent.server.once import IdempotentRequests
    from hermes_agent.server.reloading import ReloadSignal
    from hermes_agent.service.control import ControlSocket
    from hermes_agent.service.logs import end_start
    from hermes_agent.service.state import write_note

    settings = read_settings(host.config, host.credentials)
    if settings.enabled:
        settings = with_key(settings, host.home)

    gateway = host.gateway(restart=handover.request_restart, restarted_for=handover.told)
    plugins = PluginStatus(host, gateway.reload)
    reloads = ReloadSignal(plugins, notifier)
    webhooks = None
    if host.config.get("webhooks"):  # few have any
        from hermes_agent.server.webhook_routes import read_routes
        from hermes_agent.server.webhook_turns import WebhookTurns
        from hermes_agent.server.webhooks import WebhookEndpoint

        routes = read_routes(host.config, host.credentials)
        turns = WebhookTurns(routes, host.agent, gateway.compose, at_once=settings.max_concurrent_turns)
        host.delivery.serve("webhook", turns.serve)
        webhooks = WebhookEndpoint(routes, host.delivery)
    asked = make_operations(host, gateway, reloads, at_once=settings.max_concurrent_turns)
    control = ControlSocket(host.home, os.environ, asked, FOR_MEMBERS, handover)

    memory = MemoryWatch(
        lambda key: host.config.get(key), host.agent.release_memory, handover.request_restart, host.bridge.run
    )

    def ready() -> None:
        end_start()
        host.mcp.start()

    async def main() -> None:
        try:
            await run_daemon(
                host.agent,
                settings,
                models=_model_name(host),
                counts=lambda: _counts(host) | gateway.counts(),
                notifier=notifier,
                plugins=plugins,
                slash=host.slash,
                on_listen=lambda address: write_note(host.home, "http", address),
                # drained from the end: adapters stay until the last answer is out, and the socket answers to the end
                beside=[
                    control,
                    gateway,
                    host.process_notices,
                    host.delivery,
                    host.upkeep,
                    memory,
                    host.make_clock(gateway.send_text, gateway.attach),
                ],
                reloads=reloads,
                once=IdempotentRequests(host.delivery, host.agent.call_transcript),
                webhooks=webhooks,
                handover=handover,
                on_ready=ready,
            )
        finally:
            await host.aclose()

    with asyncio.Runner(loop_factory=new_core_loop) as runner:
        runner.run(main())


def _model_name(host: Host) -> list[str]:
    """The name of the configured model; a daemon without one starts, and tells who asks."""
    try:
        return [host.select_model().model]
    except UserError as exc:
        logger.warning("no model yet, requests are refused: %s `hermes doctor` says more.", exc.message)
        return []


def _counts(host: Host) -> dict[str, int]:
    from hermes_agent.host.memory_watch import resident_bytes

    own = [record for record in host.plugins.records if record.manifest.source != "bundled"]
    return {
        "plugins": sum(record.enabled and not record.deferred for record in own),
        "plugins_failed": sum(record.status == "failed" for record in host.plugins.records),
        "plugins_suspended": len(host.hooks.suspended()),
        "plugin_errors": sum(tally.errors for tally in host.account.usage_by_plugin().values()),
        "tools": len(host.tools),
        "sessions": len(host.agent.open_conversations),
        "resident_bytes": resident_bytes(),
    }


@gateway_command.action("key", "print the key of the HTTP server, made when there is none")
def _key(args: Args) -> None:
    from hermes_agent.server import with_key

    home = ensure_home()
    print(with_key(_settings(home), home).key)


@gateway_command.action("status", "say whether the daemon runs and answers (exit status 1: no)", JSON)
def _status(args: Args) -> int:
    from hermes_agent.app.gateway_status import collect_from_socket, collect_status, status_text

    if (door := daemon_socket(os.environ)) is not None:
        found = collect_from_socket(door)
    else:
        home = ensure_home()
        found = collect_status(home, lambda: _settings(home).key)
    print(json.dumps(found, indent=2) if args.json else status_text(found))
    well = found["running"] and found.get("http", {}).get("status") in ("ok", "off")
    return EXIT_OK if well else EXIT_FAILED


def _ask_daemon(op: str, *, timeout_s: float = 30.0, **more: Any) -> dict[str, Any]:
    home = ensure_home() if daemon_socket(os.environ) is None else Path()
    return ask_daemon(home, {"op": op, **more}, timeout_s=timeout_s)


@gateway_command.action(
    "stop",
    "let running turns finish, then end the daemon",
    argument("--now", action="store_true", help="do not wait for running turns; they go on at the next start"),
)
def _stop(args: Args) -> None:
    from hermes_agent.service.lock import lock_holder

    door = daemon_socket(os.environ)
    if door is None and lock_holder(ensure_home()) is None:
        print("not running")
        return
    pid = _ask_daemon("stop", now=args.now)["pid"]
    while door.exists() if door is not None else lock_holder(ensure_home()) == pid:
        time.sleep(0.1)
    print(f"stopped (pid {pid})")


@gateway_command.action("restart", "begin anew (an update, say) without refusing or losing anything")
def _restart(args: Args) -> int:
    before = _ask_daemon("status")["started"]
    _ask_daemon("restart")
    silent_since = 0.0
    while True:
        time.sleep(0.2)
        try:
            now = _ask_daemon("status")
        except UserError as exc:  # between its end and its begin nobody answers
            silent_since = silent_since or time.monotonic()
            if time.monotonic() - silent_since > RETURNS_WITHIN_S:
                raise UserError("the daemon has ended and not come back", hint="`hermes logs` says why.") from exc
            continue
        silent_since = 0.0
        if now["started"] != before:
            print(f"restarted (pid {now['pid']})")
            return EXIT_OK


@gateway_command.action("reload", "load plugins and config anew, and say what changed")
def _reload(args: Args) -> None:
    print("\n".join(_ask_daemon("reload", timeout_s=120)["told"]) or "nothing changed")


@gateway_command.action(
    "revive",
    "send again to a target that was given up",
    argument("target", metavar="TARGET", help="as `hermes gateway status` lists it, or all"),
)
def _revive(args: Args) -> None:
    for target in _ask_daemon("revive", target=args.target)["revived"]:
        print(f"{target}: what waited is sent now")


def _settings(home: Path) -> HttpSettings:
    from hermes_agent.credentials import Credentials
    from hermes_agent.server import read_settings

    return read_settings(load(home), Credentials(home, os.environ))
