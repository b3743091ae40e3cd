"""Load a bundled plugin of upstream as a user's plugin, here or in upstream's environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from compat.corpus.compare import differences
from compat.corpus.lists import DATA
from compat.corpus.shapes import PLATFORM_CALLBACKS
from compat.corpus.world import LIMIT_S, made_up, offline

ORACLE = DATA.parent / "bundled" / "oracle.json"
DECLINED = DATA.parent / "bundled" / "declined.toml"
HERE, PEER = Path(__file__).parents[1] / "corpus" / "child.py", Path(__file__).with_name("peer.py")


CRON = "providers.cron_scheduler"
"""Upstream's context of a plugin lacks the method."""


def load(name: str, plugins: Path, *, interpreter: str = "") -> dict[str, Any]:
    """Load one plugin in a home and a process of its own, and return what it registered.

    Args:
        interpreter: of upstream's environment; here without one.

    Raises:
        RuntimeError: the process ended without an answer; the text is the end of what it wrote.
        subprocess.TimeoutExpired: it took longer than `LIMIT_S`.
    """
    memory = name.removeprefix("memory/") if name.startswith("memory/") else ""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        home = place / "home" / ".hermes"
        target = home / "plugins" / (memory or name)
        target.parent.mkdir(parents=True)
        shutil.copytree(plugins / name, target)
        config: dict[str, Any] = {"plugins": {"enabled": [memory or name]}}
        if memory:
            config["memory"] = {"provider": memory}
        (home / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        (place / "none").mkdir()
        environ = {
            "HOME": str(place / "home"),
            "HERMES_HOME": str(home),
            "HERMES_BUNDLED_PLUGINS": str(place / "none"),
            "LANG": "C.UTF-8",
            "PATH": os.environ.get("PATH", os.defpath),
            "TMPDIR": folder,
        } | _gating_values(target / "plugin.yaml")
        answer = place / "answer.json"
        command = [interpreter, str(PEER), str(answer), memory] if interpreter else _here(answer)
        done = subprocess.run(
            [*offline(), *command],
            cwd=place,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
        if not answer.exists():
            said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise RuntimeError(f"the process ended with {done.returncode}: {''.join(said)}")
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return found if interpreter else found["registered"]


def _here(answer: Path) -> Sequence[str]:
    return [sys.executable, "-P", str(HERE), str(answer), "register", ""]


def _gating_values(file: Path) -> dict[str, str]:
    """Return made-up values of the variables without which a standalone plugin does not run here."""
    manifest = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    if manifest.get("kind", "standalone") != "standalone":
        return {}
    names = [each["name"] if isinstance(each, Mapping) else each for each in manifest.get("requires_env") or ()]
    return {name: made_up(name) for name in names}


def compared(peer: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Return a line for each difference between what upstream and this program registered."""
    return differences(peer, _like_peer(ours, peer))


def _like_peer(ours: Mapping[str, Any], peer: Mapping[str, Any]) -> dict[str, Any]:
    """Return our record with the fields that the record of upstream has."""
    shaped = {section: entries for section, entries in ours.items() if section != CRON or section in peer}
    for section in set(shaped) - {"plugins", "hooks", "middleware"}:
        there = peer.get(section, {})
        if section == "memory":
            shaped[section] = {key: ours[section].get(key) for key in there}
        elif isinstance(ours[section], Mapping):
            shaped[section] = {name: _fields(each, there.get(name)) for name, each in ours[section].items()}
    return shaped


def _fields(ours: Any, peer: Any) -> Any:
    if not isinstance(ours, Mapping) or not isinstance(peer, Mapping):
        return ours
    shaped = {key: ours.get(key) is not None if key in PLATFORM_CALLBACKS else ours.get(key) for key in peer}
    if shaped.get("fixed_temperature") == "OMIT_TEMPERATURE":  # a marker, which is a bare object with upstream
        shaped["fixed_temperature"] = peer["fixed_temperature"]
    return shaped
