"""The process of the daemon, from the lock of its home to its end.

It needs no parser of the command line: `hermes gateway run` without options comes here at once.
"""

from __future__ import annotations

import gc
import logging
import os
from functools import partial
from typing import TYPE_CHECKING

from hermes_agent.config.home import hermes_home, make_home
from hermes_agent.core.errors import EXIT_OK, UserError
from hermes_agent.system.deferred_modules import defer_tls

if TYPE_CHECKING:
    from hermes_agent.app.plugins.catalog_commands import UpdateReport
    from hermes_agent.host import Host
    from hermes_agent.service.systemd import ServiceNotifier, SocketHandover

logger = logging.getLogger(__name__)


def run_daemon_process(*, log_level: str | None = None) -> int:
    """Run the daemon of this home until it ends, and return the exit status.

    Args:
        log_level: None takes the level of the config.
    """
    defer_tls()
    from hermes_agent.app.start import start_host
    from hermes_agent.logs.handlers import stderr_is_journal
    from hermes_agent.logs.setup import end_start
    from hermes_agent.service.connections import raise_file_limit
    from hermes_agent.service.daemon_state import HomeLock, describe_self, read_note, write_state
    from hermes_agent.service.systemd import ServiceNotifier, SocketHandover, trace_hangs

    gc.disable()  # until it is ready: what a start makes stays, and looking for garbage in it takes 80 ms
    handover = SocketHandover(os.environ)  # first, and the notifier: no child process may inherit their sockets
    notifier = ServiceNotifier.open()
    trace_hangs()
    home = hermes_home()
    make_home(home)
    with HomeLock(home):
        try:
            host = start_host("daemon", log_level=log_level)
        except UserError:
            end_start()  # the reason is last
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


def _serve(host: Host, notifier: ServiceNotifier, handover: SocketHandover) -> None:
    import asyncio

    from hermes_agent.app.control_operations import FOR_MEMBERS, PluginStatus, make_operations
    from hermes_agent.app.daemon import ReloadSignal, run_daemon
    from hermes_agent.app.plugin_updates import last_check, look_for_updates
    from hermes_agent.gateway.scheduled_jobs import SchedulerFactory
    from hermes_agent.host.maintenance import MemoryWatch, UpdateWatch
    from hermes_agent.host.model_service import HostModels
    from hermes_agent.logs.setup import end_start
    from hermes_agent.mcp.servers import McpServers
    from hermes_agent.runtime.loops import new_core_loop
    from hermes_agent.server import read_settings, with_key
    from hermes_agent.server.conversations import IdempotentRequests
    from hermes_agent.server.proposal_page import ProposalPage
    from hermes_agent.service.control_socket import ControlSocket
    from hermes_agent.service.daemon_state import write_note
    from hermes_agent.tools.proposals import Proposals
    from hermes_agent.workspace.feature import ProcessNotices

    settings = read_settings(host.config.settings, host.credentials)
    if settings.enabled:
        settings = with_key(settings, host.home)

    gateway = host.gateway(restart=handover.request_restart, restarted_for=handover.restarted_for)
    plugins = PluginStatus(host, gateway.reload)
    reloads = ReloadSignal(plugins, notifier)
    webhooks = None
    if host.config.settings.webhooks:  # few homes have webhooks
        from hermes_agent.server.webhooks import WebhookEndpoint, WebhookTurns, read_routes

        routes = read_routes(host.config.settings, host.credentials)
        turns = WebhookTurns(routes, host.agent, gateway.compose, at_once=settings.max_concurrent_turns)
        host.delivery.serve("webhook", turns.serve)
        webhooks = WebhookEndpoint(routes, host.delivery)
    asked = make_operations(host, gateway, plugins, reloads, at_once=settings.max_concurrent_turns)
    control = ControlSocket(host.home, os.environ, asked, FOR_MEMBERS, handover)

    memory = MemoryWatch(host.settings, host.agent.release_memory, handover.request_restart, host.bridge.run)

    look, last = partial(look_for_updates, host.home, _check_updates), partial(last_check, host.home)
    updates = UpdateWatch(look, last, host.settings, host.bridge.run)

    def ready() -> None:
        gc.freeze()  # what a start makes stays
        gc.enable()
        end_start()
        host.service(McpServers).start()

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
                components=[
                    control,
                    gateway,
                    host.service(ProcessNotices),
                    host.delivery,
                    host.upkeep,
                    memory,
                    updates,
                    host.service(SchedulerFactory).make(gateway.send_text, gateway.attach),
                ],
                reloads=reloads,
                once=IdempotentRequests(host.delivery, host.agent.call_transcript),
                webhooks=webhooks,
                service=HostModels(host),
                pages=ProposalPage(host.service(Proposals), settings.key, host.bridge.run).routes(),
                handover=handover,
                on_ready=ready,
            )
        finally:
            await host.aclose()

    with asyncio.Runner(loop_factory=new_core_loop) as runner:
        # not `run`, which handles SIGINT itself: that handler's text, the task's, needs `inspect`
        runner.get_loop().run_until_complete(main())


def _check_updates() -> list[UpdateReport]:
    """Return for each installed plugin whether there is an update; it blocks."""
    from hermes_agent.app.plugins.catalog_commands import update_reports  # a daemon needs them once a day
    from hermes_agent.app.plugins.home import InstalledPlugins

    return update_reports(InstalledPlugins(), logger.info)


def _model_name(host: Host) -> list[str]:
    """Return the name of the configured model; a daemon without a model starts, and refuses requests."""
    try:
        return [host.select_model().model]
    except UserError as exc:
        logger.warning("no model yet, requests are refused: %s `hermes doctor` says more.", exc.message)
        return []


def _counts(host: Host) -> dict[str, int]:
    from hermes_agent.system.process_tree import resident_bytes

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
