"""The chat in the terminal: connects the console with the host."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from hermes_agent import __version__
from hermes_agent.app.start import start_warnings
from hermes_agent.console.console import Console, ConsoleDeps, theme_name
from hermes_agent.console.overview import Banner
from hermes_agent.console.screen import Screen, pick_screen
from hermes_agent.console.slash_commands import argument_values, known_sessions
from hermes_agent.console.styled import Theme
from hermes_agent.host import Host
from hermes_agent.mcp.servers import McpServers
from hermes_agent.memory.manager import MemoryManager
from hermes_agent.models.model_catalog import ModelInfo
from hermes_agent.sessions import LOCAL
from hermes_agent.workspace.checkpoints import Checkpoints
from hermes_agent.workspace.feature import ProcessNotices


async def run_chat(host: Host, first: str | None, session_id: str | None, model: str | None) -> int:
    """Run a chat in the terminal and return the exit status.

    Args:
        first: a question to ask before the prompt; without a terminal the chat ends after it.
        session_id: the session to resume; None starts one.
        model: the model in place of the configured one.
    """
    host.service(McpServers).start()
    if not _is_written(host, "checkpoints", "enabled"):  # a chat keeps them unless the config says otherwise
        checkpoints = host.service(Checkpoints)
        checkpoints.limits = checkpoints.limits._replace(enabled=True)
    reads = sys.stdin.isatty()
    try:
        console = Console(
            host.agent,
            host.slash,
            console_deps(host),
            banner=_banner(host),
            make_screen=partial(_make_screen, host, reads),
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

    def count_background(session_id: str) -> int:
        processes = host.service(ProcessNotices).count_running(session_id)
        return processes + host.agent.subagents.count_background(session_id)

    return ConsoleDeps(
        home=host.home,
        directory=host.working_directory,
        ledger=host.ledger,
        setting=host.config.get,
        save_setting=save_setting,
        list_models=list_models,
        add_note=partial(host.service(MemoryManager).add_note, LOCAL),
        background=count_background,
        has_local_files=host.config.get("terminal.backend") in ("local", "bwrap", "systemd"),
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


def _make_screen(host: Host, reads: bool, console: Console) -> Screen:
    setting = host.config.get

    def make_live(theme: Theme) -> Screen:
        # prompt_toolkit costs 100 ms to import
        from hermes_agent.console.line_editor import CompletionSource, hint_for, input_buffer
        from hermes_agent.console.live_screen import LiveScreen

        source = CompletionSource(
            commands=console.help_rows,
            arguments=partial(argument_values, console, host.commands),
            sessions=partial(known_sessions, console),
            directory=host.working_directory,
        )
        return LiveScreen(
            theme,
            partial(input_buffer, host.home / "history", source),
            lambda text: hint_for(text, console.help_rows),
            editing_mode=str(setting("display.editing_mode")),
            fold_paste=console.pastes.fold,
        )

    name = theme_name(setting("display.skin"))
    return pick_screen(name, screen_reader=bool(setting("display.screen_reader")), make_live=make_live, reads=reads)


def _is_written(host: Host, section: str, key: str) -> bool:
    """Return whether the config files say something about a setting."""
    return any(key in (layer.document.value.get(section) or {}) for layer in host.config.layers)
