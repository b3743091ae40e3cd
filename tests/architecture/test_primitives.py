"""One mechanism for each purpose: a primitive is used in its home alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "hermes" / "hermes_agent"

HOMES: dict[str, tuple[str, dict[str, str]]] = {
    r"fcntl\.(flock|lockf)\(": ("system/locks.py", {}),
    r"inspect\.signature\(": (
        "core/calls.py",
        {
            "compat/agent.py": "makes the signature that a served function shows",
            "compat/models.py": "makes the signature that a served function shows",
        },
    ),
    r"popitem\(last=False\)": (
        "core/caches.py",
        {
            "agent/context_engines.py": "what is dropped is ended by a coroutine",
            "sessions/transcript.py": "limited by characters, not by entries",
        },
    ),
    r"random\.uniform\(": ("core/backoff.py", {}),
    r"[/\"]statm\"": ("system/process_tree.py", {}),
    r"[/\"]stat\"\)": (
        "system/process_tree.py",
        {"service/control_socket.py": "a process whose state cannot be read counts as one of the agent"},
    ),
    r"st_mtime_ns": (
        "system/files.py",
        {
            "app/manifest_cache.py": "kept as JSON between programs",
            "logs/readers.py": "compares times: which file is newer",
            "plugins/entry_points.py": "kept in `plugins.json`, which may be written on another machine",
            "plugins/pinned_files.py": "kept as JSON with the grants",
            "plugins/plugin_state.py": "the newest of all files of a plugin",
            "workspace/sandbox/file_rules.py": "the time of a directory alone",
        },
    ),
}


@pytest.mark.parametrize("primitive", HOMES)
def test_a_primitive_is_used_in_its_home_alone(primitive: str) -> None:
    home, exceptions = HOMES[primitive]
    using = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if re.search(primitive, path.read_text())}
    assert using == {home, *exceptions}
