"""The handlers of the tools of this package, made with their limits from the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hermes_agent.config import Config
from hermes_agent.hooks import HookBus
from hermes_agent.policy import CommandPatterns
from hermes_agent.policy.commands import CommandPolicy
from hermes_agent.workspace.background import Processes
from hermes_agent.workspace.checkpoints import Checkpoints
from hermes_agent.workspace.circumstances import Circumstances
from hermes_agent.workspace.patch import Patch
from hermes_agent.workspace.places import Places
from hermes_agent.workspace.process import ProcessTool
from hermes_agent.workspace.reading import ReadFile
from hermes_agent.workspace.search import SearchFiles
from hermes_agent.workspace.shells import Shells
from hermes_agent.workspace.terminal import Terminal
from hermes_agent.workspace.watching import Watcher
from hermes_agent.workspace.writing import WriteFile

__all__ = ["Handlers"]


class Handlers(NamedTuple):
    """One for each tool, by its name."""

    read_file: ReadFile
    write_file: WriteFile
    patch: Patch
    search_files: SearchFiles
    terminal: Terminal
    process: ProcessTool

    @classmethod
    def of(
        cls,
        config: Config,
        home: Path,
        cwd: Path,
        shells: Shells,
        *,
        places: Places,
        environ: Mapping[str, str],
        hooks: HookBus | None,
        watching: Callable[[], Watcher] | None,
        checkpoints: Checkpoints | None,
        patterns: CommandPatterns | None,
    ) -> Handlers:
        """Make them; arguments as `tools.register` has them."""
        watcher = watching() if watching else None
        processes = Processes(home / "processes") if watcher is None else watcher.processes
        here = Circumstances(places, cwd, shells, checkpoints=checkpoints, processes=processes)
        limits: dict[str, Any] = {
            "max_lines": config.get("tool_output.max_lines"),
            "max_line_chars": config.get("tool_output.max_line_length"),
        }
        shown = limits | {
            "max_bytes": config.get("tool_output.max_bytes"),
            "policy": CommandPolicy(
                config.get("approvals.deny") or (),
                config.get("command_allowlist") or (),
                home,
                config.get("terminal.unconfined_commands") or (),
                patterns,
            ),
        }
        return cls(
            ReadFile(here, max_chars=config.get("file_read_max_chars"), environ=environ, **limits),
            WriteFile(here),
            Patch(here),
            SearchFiles(here, environ),
            Terminal(
                here,
                shells,
                timeout_s=config.get("terminal.timeout"),
                hooks=hooks,
                processes=processes,
                watch=watcher.wake if watcher else lambda: None,
                **shown,
            ),
            ProcessTool(here, processes, **shown),
        )
