"""The handlers of the workspace tools, with their limits from the config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.config import Config
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.hooks import HookBus
from hermes_agent.policy import CommandPatterns
from hermes_agent.policy.operator_rules import CommandPolicy
from hermes_agent.workspace.background_processes import BackgroundProcesses
from hermes_agent.workspace.checkpoints import Checkpoints
from hermes_agent.workspace.patch_file import PatchTool
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.process_tool import ProcessTool, ProcessWatcher
from hermes_agent.workspace.read_file import ReadFileTool
from hermes_agent.workspace.search_files import SearchFilesTool
from hermes_agent.workspace.task_shells import TaskShells
from hermes_agent.workspace.terminal_tool import TerminalTool
from hermes_agent.workspace.tool_context import ToolContext
from hermes_agent.workspace.write_file import WriteFileTool


class WorkspaceTools(LazyNamedTuple):
    """The handlers, by the name of the tool."""

    read_file: ReadFileTool
    write_file: WriteFileTool
    patch: PatchTool
    search_files: SearchFilesTool
    terminal: TerminalTool
    process: ProcessTool

    @classmethod
    def of(
        cls,
        config: Config,
        home: Path,
        cwd: Path,
        shells: TaskShells,
        *,
        places: PathRules,
        environ: Mapping[str, str],
        hooks: HookBus | None,
        watching: Callable[[], ProcessWatcher] | None,
        checkpoints: Checkpoints | None,
        patterns: CommandPatterns | None,
    ) -> WorkspaceTools:
        """Make the handlers; arguments as of `register` in `workspace.feature`."""
        watcher = watching() if watching else None
        processes = BackgroundProcesses(home / "processes") if watcher is None else watcher.processes
        context = ToolContext(places, cwd, shells, checkpoints=checkpoints, processes=processes)
        settings = config.settings
        output, terminal = settings.tool_output, settings.terminal
        limits: dict[str, Any] = {
            "max_lines": output.max_lines,
            "max_line_chars": output.max_line_length,
        }
        shown = limits | {
            "max_bytes": output.max_bytes,
            "policy": CommandPolicy(
                settings.approvals.deny,
                settings.command_allowlist,
                home,
                terminal.unconfined_commands,
                patterns,
            ),
        }
        return cls(
            ReadFileTool(context, max_chars=settings.file_read_max_chars, environ=environ, **limits),
            WriteFileTool(context),
            PatchTool(context),
            SearchFilesTool(context, environ),
            TerminalTool(
                context,
                shells,
                timeout_s=terminal.timeout,
                hooks=hooks,
                processes=processes,
                watch=watcher.wake if watcher else lambda: None,
                **shown,
            ),
            ProcessTool(context, processes, **shown),
        )
