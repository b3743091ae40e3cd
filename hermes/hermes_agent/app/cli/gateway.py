"""`hermes gateway`: run (the daemon), key, status."""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hermes_agent.host import Host
    from hermes_agent.server import ServerSettings
    from hermes_agent.service.notify import Notifier

__all__ = ["add"]

logger = logging.getLogger(__name__)


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("gateway", help="run the daemon, ask how it does")
    commands = parser.add_subparsers(prog=parser.prog, dest="gateway_command", metavar="COMMAND", required=True)

    run = commands.add_parser("run", help="run the daemon in the foreground, with the HTTP server")
    level = run.add_mutually_exclusive_group()
    level.add_argument("-v", "--verbose", dest="log_level", action="store_const", const="DEBUG", help="log everything")
    level.add_argument(
        "-q", "--quiet", dest="log_level", action="store_const", const="WARNING", help="log warnings and worse"
    )
    run.set_defaults(run=_run)

    key = commands.add_parser("key", help="print the key of the HTTP server, made when there is none")
    key.set_defaults(run=_key)

    status = commands.add_parser("status", help="say whether the daemon runs and answers (exit status 1: no)")
    status.add_argument("--json", action="store_true", help="print JSON")
    status.set_defaults(run=_status)


def _run(args: argparse.Namespace) -> int:
    # In the function, here and below: no other command needs them, and start-up is to be quick.
    from hermes_agent.app.start import start_host
    from hermes_agent.core.errors import EXIT_OK, UserError
    from hermes_agent.service.journal import stderr_is_journal
    from hermes_agent.service.lock import HomeLock
    from hermes_agent.service.notify import Notifier
    from hermes_agent.service.state import describe_self, write_state
    from hermes_agent.service.watchdog import trace_hangs

    notifier = Notifier.open()  # first: no child process may find the socket in its environment
    trace_hangs()
    home = _home()
    with HomeLock(home):
        host = start_host("daemon", log_level=args.log_level)
        try:
            write_state(home, describe_self("journal" if stderr_is_journal(os.environ) else "file"))
            _serve(host, notifier)
        except UserError as exc:
            logger.error("%s", exc)
            return exc.exit_status
        finally:
            notifier.close()
    return EXIT_OK


def _serve(host: Host, notifier: Notifier) -> None:
    import asyncio

    from hermes_agent.app.plugin_door import HostPlugins
    from hermes_agent.server import read_settings, with_key
    from hermes_agent.server.daemon import run_daemon
    from hermes_agent.server.whereabouts import note_address

    settings = read_settings(host.config, host.credentials)
    if settings.enabled:
        settings = with_key(settings, host.home)

    gateway = host.gateway()

    async def main() -> None:
        try:
            await run_daemon(
                host.agent,
                settings,
                models=_models(host),
                counts=lambda: _counts(host) | gateway.counts(),
                notifier=notifier,
                plugins=HostPlugins(host),
                slash=host.slash,
                on_listen=lambda address: note_address(host.home, address),
                beside=[
                    gateway,
                    host.delivery,
                    host.make_clock(gateway.say),
                ],  # adapters stay until the last answer is out
            )
        finally:
            await host.aclose()

    asyncio.run(main())


def _models(host: Host) -> list[str]:
    """The name of the configured model; a daemon without one starts, and tells who asks."""
    from hermes_agent.core.errors import UserError

    try:
        return [host.choose_model(None).name]
    except UserError as exc:
        logger.warning("no model yet, requests are refused: %s", exc)
        return []


def _counts(host: Host) -> dict[str, int]:
    return {
        "plugins": sum(record.enabled and not record.deferred for record in host.plugins.records),
        "plugins_failed": sum(record.status == "failed" for record in host.plugins.records),
        "plugins_suspended": len(host.hooks.suspended()),
        "plugin_errors": sum(tally.errors for tally in host.account.all().values()),
        "tools": len(host.tools),
        "sessions": len(host.agent.open_conversations),
    }


def _key(args: argparse.Namespace) -> int:
    from hermes_agent.server import with_key

    home = _home()
    print(with_key(_settings(home), home).key)
    return 0


def _status(args: argparse.Namespace) -> int:
    from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK
    from hermes_agent.service.lock import holder

    home = _home()
    pid = holder(home)
    if pid is None:
        found: dict[str, Any] = {"running": False, "home": str(home)}
    else:
        found = {"running": True, "home": str(home), "pid": pid} | _since(home) | _http(home)
    print(json.dumps(found, indent=2) if args.json else _as_text(found))
    well = found["running"] and found.get("http", {}).get("status") in ("ok", "off")
    return EXIT_OK if well else EXIT_FAILED


def _since(home: Path) -> dict[str, Any]:
    from hermes_agent.service.state import read_state

    state = read_state(home)
    return {} if state is None else {"started": state.started, "unit": state.unit, "log": state.log}


def _http(home: Path) -> dict[str, Any]:
    """What the server says, or why it says nothing; the key's file is read but not made."""
    from hermes_agent.core.errors import UserError
    from hermes_agent.server import KEY_NAME, file_key
    from hermes_agent.server.whereabouts import ask_health, noted_address

    address = noted_address(home)
    if address is None:
        return {"http": {"status": "off"}}
    try:
        key = _settings(home).key or (file_key(home) if (home / KEY_NAME).exists() else None)
        return {"http": {"address": address, **ask_health(address, key)}}
    except (OSError, ValueError, UserError) as exc:
        return {"http": {"address": address, "status": "unknown", "error": str(exc)}}


def _as_text(found: Mapping[str, Any]) -> str:
    if not found["running"]:
        return f"not running (home {found['home']})"
    who = f"pid {found['pid']}" if found["pid"] else "pid unknown"
    unit = f", unit {found['unit']}" if found.get("unit") else ""
    since = (
        f", since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(found['started']))}" if "started" in found else ""
    )
    http = found["http"]
    if http["status"] == "off":
        return f"running: {who}{unit}{since}\nhttp: off, or not listening yet"
    said = f"not known: {http['error']}" if "error" in http else f"{http['status']}, version {http['version']}"
    numbers = ", ".join(f"{v} {k.replace('_', ' ')}" for k, v in http.items() if isinstance(v, int))
    return f"running: {who}{unit}{since}\nhttp: http://{http['address']} {said}" + (f"; {numbers}" if numbers else "")


def _settings(home: Path) -> ServerSettings:
    from hermes_agent.config import load
    from hermes_agent.credentials import Credentials
    from hermes_agent.server import read_settings

    return read_settings(load(home), Credentials(home, os.environ))


def _home() -> Path:
    """The home, made when it is not there."""
    from hermes_agent.config import hermes_home, make_home

    home = hermes_home()
    make_home(home)
    return home
