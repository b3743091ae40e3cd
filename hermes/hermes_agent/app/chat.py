"""The chat in the terminal: connects the console with the host."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from hermes_agent import __version__
from hermes_agent.app.first_prompt import ChatSources, OpenedScreen, make_screen
from hermes_agent.app.start import start_warnings
from hermes_agent.console.console import Console
from hermes_agent.console.dependencies import BackgroundWork, ConsoleDeps, StartQuestion
from hermes_agent.console.overview import Banner
from hermes_agent.console.screen import Screen
from hermes_agent.host import Host
from hermes_agent.mcp.servers import McpServers
from hermes_agent.memory.manager import MemoryManager
from hermes_agent.models.model_catalog import ModelInfo
from hermes_agent.sessions import LOCAL
from hermes_agent.workspace.checkpoints import Checkpoints
from hermes_agent.workspace.feature import ProcessNotices
from hermes_agent.workspace.shell_hooks import ShellHookLoader


async def run_chat(
    host: Host, first: str | None, session_id: str | None, model: str | None, opened: OpenedScreen | None = None
) -> int:
    """Run a chat in the terminal and return the exit status.

    Args:
        first: a question to ask before the prompt; without a terminal the chat ends after it.
        session_id: the session to resume; None starts one.
        model: the model in place of the configured one.
        opened: the screen, if it shows its prompt already.
    """
    host.service(McpServers).start()
    if not _is_written(host, "checkpoints", "enabled"):  # a chat keeps them unless the config says otherwise
        checkpoints = host.service(Checkpoints)
        checkpoints.limits = checkpoints.limits._replace(enabled=True)
    reads = sys.stdin.isatty()
    sources = ChatSources(host.working_directory) if opened is None else opened.sources
    sources.directory = host.working_directory

    def screen(console: Console) -> Screen:
        sources.attach(console)
        return make_screen(host.config, host.home, sources, reads=reads) if opened is None else opened.screen

    try:
        console = Console(
            host.agent,
            host.slash,
            console_deps(host),
            banner=_banner(host),
            make_screen=screen,
            pastes=sources.pastes,
            begin=(lambda console: None) if opened is None else opened.early.hand_over,
            session_id=session_id,
            model=model,
        )
        return await console.run(first_question=first, prompt=reads)
    finally:
        await host.aclose()


def console_deps(host: Host) -> ConsoleDeps:
    """Return what the console uses of a host."""

    def list_models() -> list[ModelInfo]:
        return host.model_infos.list_models(host.select_model().endpoint)

    def save_setting(key: str, value: Any) -> None:
        from hermes_agent.app.manifest_cache import declared_schema
        from hermes_agent.config.edit import set_value

        set_value(host.home, tuple(key.split(".")), value, schema=declared_schema(host.home))

    def background(session_id: str) -> list[BackgroundWork]:
        processes = host.service(ProcessNotices).running(session_id)
        delegated = host.agent.subagents.list_background(session_id)
        return [
            *(BackgroundWork("command", each.command, each.began) for each in processes),
            *(BackgroundWork("subagent", goal, since) for goal, since in delegated),
        ]

    is_mode_written = _is_written(host, "display", "busy_input_mode")  # its default is that of chats
    return ConsoleDeps(
        home=host.home,
        directory=host.working_directory,
        ledger=host.ledger,
        settings=host.settings,
        save_setting=save_setting,
        list_models=list_models,
        add_note=partial(host.service(MemoryManager).add_note, LOCAL),
        background=background,
        busy_mode=host.config.settings.display.busy_input_mode if is_mode_written else "queue",
        shows_reasoning=host.config.settings.display.show_reasoning,
        has_local_files=host.config.settings.terminal.backend in ("local", "bwrap", "systemd"),
        questions=[
            StartQuestion(waiting.title, waiting.details, waiting.allow)
            for waiting in host.service(ShellHookLoader).questions()
        ],
    )


def _banner(host: Host) -> Banner:
    toolsets: dict[str, list[str]] = {}
    for name in host.toolsets.offered_tools("cli"):
        toolsets.setdefault(host.tools.get_toolset_for_tool(name) or "", []).append(name)
    return Banner(
        __version__,
        plugins=host.plugins.banner_lines(),
        hints=[*host.plugins.hints(), *start_warnings(host)],
        toolsets=toolsets,
    )


def _is_written(host: Host, section: str, key: str) -> bool:
    """Return whether the config files say something about a setting."""
    return any(key in (layer.document.value.get(section) or {}) for layer in host.config.layers)
