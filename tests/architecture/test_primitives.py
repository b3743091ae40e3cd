"""One mechanism for each purpose: a primitive is used in its home alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "hermes" / "hermes_agent"

LOCK = r"fcntl\.(flock|lockf)\("
SHORTENED = r"\[:[^\]]*\](\.rstrip\(\))?(\}| \+ [\"'])(…|\.\.\.)[\"']|\[:room\] \+ mark"
"""A text is cut, and a mark put behind it."""

HOMES: dict[str, tuple[str, dict[str, str]]] = {
    LOCK: ("system/locks.py", {}),
    SHORTENED: ("core/text.py", {"app/plugins/install.py": "the first digits of a hash"}),
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


@pytest.mark.parametrize("primitive", [LOCK, SHORTENED])
def test_bundled_plugins_lock_files_and_shorten_texts_with_what_the_package_has(primitive: str) -> None:
    plugins = Path(__file__).parents[2] / "plugins"
    files = list(plugins.rglob("*.py"))
    assert len(files) > 50
    assert [str(p.relative_to(plugins)) for p in files if re.search(primitive, p.read_text(encoding="utf-8"))] == []


def test_a_registry_of_a_kind_holds_a_registry_and_is_no_subclass_of_it() -> None:
    subclasses = re.compile(r"^class (\w+)\((?:[\w.]+, )*Registry\b", re.MULTILINE)
    found = {
        (str(path.relative_to(PACKAGE)), name)
        for path in PACKAGE.rglob("*.py")
        for name in subclasses.findall(path.read_text(encoding="utf-8"))
    }
    assert found == set(), "it is a `RegistryFacade`, or has a `Registry`"
