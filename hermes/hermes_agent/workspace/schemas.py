"""Schemas of the workspace tools, without their handlers, which a start does not load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_agent.workspace.task_shells import TaskShells

ACTIONS = ("list", "poll", "log", "wait", "kill", "write", "submit", "close")
"""Actions of the tool `process`."""

READ_FILE: dict[str, Any] = {
    "name": "read_file",
    "description": (
        "Read a text file, or list a directory. Each line of a file comes as NUMBER|TEXT. Go on at `next_offset` when"
        " the result has one. Of PDF, office files and notebooks offset and limit count pages, slides, rows, paragraphs"
        " or cells."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "offset": {"type": "integer", "description": "First line, from 1"},
            "limit": {"type": "integer", "description": "Number of lines"},
        },
        "required": ["path"],
    },
}

WRITE_FILE: dict[str, Any] = {
    "name": "write_file",
    "description": "Create a file or replace its whole content. Missing directories are made.",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
        "required": ["path", "content"],
    },
}

PATCH: dict[str, Any] = {
    "name": "patch",
    "description": (
        "Change files. replace: put new_string for old_string in path. patch: several files, as *** Begin Patch,"
        " *** Update File: PATH (or Add, Delete), @@ LINE, lines with ' ', '-' or '+' before, *** End Patch."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "mode": {"type": "string", "enum": ["replace", "patch"]},
            "path": {"type": "string"},
            "old_string": {"type": "string"},
            "new_string": {"type": "string"},
            "replace_all": {"type": "boolean"},
            "patch": {"type": "string"},
        },
        "required": ["mode"],
    },
}

SEARCH_FILES: dict[str, Any] = {
    "name": "search_files",
    "description": "Search file contents by regex, or (target=files) find files by name with a glob.",
    "parameters": {
        "type": "object",
        "properties": {
            "pattern": {"type": "string"},
            "target": {"type": "string", "enum": ["content", "files"]},
            "path": {"type": "string", "description": "Directory or file, default ."},
            "file_glob": {"type": "string", "description": "Only these files, as *.py"},
            "limit": {"type": "integer", "description": "Default 50"},
            "offset": {"type": "integer", "description": "Results to skip"},
            "output_mode": {"type": "string", "enum": ["content", "files_only", "count"]},
            "context": {"type": "integer", "description": "Lines around a match"},
        },
        "required": ["pattern"],
    },
}

TERMINAL: dict[str, Any] = {
    "name": "terminal",
    "description": (
        "Run a shell command and wait for it. `cd`, exported variables and functions last. It gets no input, and what"
        " it leaves running is stopped: use background and the tool process for that."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "command": {"type": "string"},
            "timeout": {"type": "integer", "description": "Seconds"},
            "background": {"type": "boolean", "description": "Do not wait"},
            "pty": {"type": "boolean", "description": "Give it a terminal"},
            "notify_on_complete": {"type": "boolean", "description": "Tell me when it has ended"},
            "watch_patterns": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Tell me when it prints one of these",
            },
            "workdir": {"type": "string", "description": "Directory, this time"},
        },
        "required": ["command"],
    },
}

PROCESS: dict[str, Any] = {
    "name": "process",
    "description": (
        "Background processes: list; poll new output; log by line; wait for the end; kill; write input, submit it with"
        " Enter, close it."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": list(ACTIONS)},
            "session_id": {"type": "string"},
            "data": {"type": "string"},
            "timeout": {"type": "integer", "description": "Seconds"},
            "offset": {"type": "integer", "description": "First line of the log"},
            "limit": {"type": "integer"},
        },
        "required": ["action"],
    },
}

WRITE_TO: dict[str, Any] = {
    "type": "string",
    "description": (
        "Folder outside the working directory, as ~/Documents, that this command writes in, and in no other; the user"
        " is asked once for each folder."
    ),
}
UNCONFINED: dict[str, Any] = {
    "type": "boolean",
    "description": "Run outside the sandbox; the user is asked each time. Only when the sandbox made the command fail.",
}


def terminal_changes(shells: TaskShells) -> dict[str, Any]:
    """Return the changes of the backend to the description and parameters of `terminal`."""
    backend = shells.backend_or_none
    if backend is None or not backend.description:
        return {}
    changed: dict[str, Any] = {"description": f"{TERMINAL['description']} {backend.description}"}
    more = {"write_to": WRITE_TO} if backend.opens else {}
    more |= {"unconfined": UNCONFINED} if backend.can_leave else {}
    if more:
        properties = {**TERMINAL["parameters"]["properties"], **more}
        changed["parameters"] = {**TERMINAL["parameters"], "properties": properties}
    return changed
