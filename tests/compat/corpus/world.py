"""The world of one run: a home of its own, no network, 60 seconds."""

from __future__ import annotations

import functools
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from compat.corpus.install import without_entry_points
from compat.corpus.lists import Plugin, Run, Service

__all__ = ["LIMIT_S", "PluginHome", "asks_for_env", "gating_env", "made_up", "offline", "plugin_folder"]

LIMIT_S = 60
CHILD = Path(__file__).with_name("child.py")
FORMS = {"URL": "https://example.invalid", "ENDPOINT": "https://example.invalid", "HOST": "https://example.invalid"}
"""Made-up values by the end of a variable's name."""
MADE_UP = "dummy-key-0123456789abcdef"
"""Any other value; the oracle's."""
OFFLINE = {name: "#!/bin/sh\necho there is no network >&2\nexit 127\n" for name in ("npm", "npx", "uv", "uvx")}
"""Programs that would fetch something first, and wait long for it; a plugin may ask whether they are there."""


def made_up(name: str) -> str:
    """Return a value for a variable that somebody might have configured."""
    return FORMS.get(name.rpartition("_")[2], MADE_UP)


@functools.cache
def offline() -> tuple[str, ...]:
    """Return what cuts a command off the network; nothing where that needs more rights than we have."""
    probe = subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False) if _is_linux() else None
    return ("unshare", "-n", "--") if probe is not None and probe.returncode == 0 else ()


def _is_linux() -> bool:
    return sys.platform == "linux" and shutil.which("unshare") is not None


class PluginHome:
    """A home with a plugin in it.

    Args:
        place: an empty folder.
        site: where the plugin is installed.
        service: the stand-in that it speaks to.
    """

    def __init__(self, place: Path, plugin: Plugin, run: Run, site: Path, *, service: Service | None = None) -> None:
        self.plugin, self.run, self.place, self.service = plugin, run, place, service
        self.port = _free_port() if service is not None else 0
        self.home = place / "home"
        self.hermes = self.home / ".hermes"
        self.programs = place / "programs"
        self.work = place / "work"
        for folder in (self.hermes, self.programs, self.work, place / "tmp"):
            folder.mkdir(parents=True)
        self.site = (
            site if run.layout in ("entrypoint", "installer") else without_entry_points(site, plugin, place / "site")
        )
        self._furnish()

    @property
    def environ(self) -> dict[str, str]:
        """The environment of the run."""
        given: dict[str, str] = {}
        if not self.run.without_env:
            names = (*self.run.env, *gating_env(self.plugin, self.run, self.site))
            given = {name: self.plugin.setting.env.get(name, made_up(name)) for name in names}
        if self.service is not None:
            given |= self._filled(self.service.env)
        path = f"{self.programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return given | {
            "HOME": str(self.home),
            "HERMES_HOME": str(self.hermes),
            "HERMES_BUNDLED_PLUGINS": str(self.place / "none"),  # the oracle knows of the plugin alone
            "LANG": "C.UTF-8",
            "PATH": path,
            "PYTHONPATH": str(self.site),
            "TMPDIR": str(self.place / "tmp"),
        }

    def start(self, *, depth: str) -> dict[str, Any]:
        """Load the plugin in a process of its own and return what it registered, as `child` wrote it.

        Args:
            depth: `register`, `smoke` (call everything) or `service`.

        Raises:
            TimeoutError: it took longer than `LIMIT_S`.
            RuntimeError: the process ended without an answer; the text is the end of what it said.
        """
        for command in self.plugin.setting.installer if self.run.layout == "installer" else ():
            done = self._call([str(self.site / "bin" / command[0]), *command[1:]])
            if done.returncode != 0:
                raise RuntimeError(f"its installer ended with {done.returncode}: {_end(done)}")
        self._configure()
        answer = self.place / "answer.json"
        plan = "" if self.service is None else json.dumps(asdict(self.service) | {"port": self.port})
        done = self._call([str(CHILD), str(answer), depth, plan], compat=False)
        if not answer.exists():
            raise RuntimeError(f"the process ended with {done.returncode}: {_end(done)}")
        result: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        if done.returncode != 0:
            result["ended"] = f"the process ended with {done.returncode}: {_end(done)}"
        return result

    def _call(self, command: Sequence[str], *, compat: bool = True) -> subprocess.CompletedProcess[str]:
        python = [sys.executable, "-m", "hermes_agent.compat"] if compat else [sys.executable, "-P"]
        try:
            return subprocess.run(
                [*offline(), *python, *command],
                cwd=self.work,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as exc:
            raise TimeoutError(f"it did not end within {LIMIT_S} s") from exc

    def _furnish(self) -> None:
        setting = self.plugin.setting
        for name, text in setting.files.items():
            file = self.home / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        programs = dict(setting.programs if self.run.configured else {})
        if self.service is not None:
            programs = dict(self.service.programs)
        for name, text in (OFFLINE | programs).items():
            (self.programs / name).write_text(text, encoding="utf-8")
            (self.programs / name).chmod(0o755)
        if self.run.layout.startswith("dir"):
            name = self.run.memory_provider or self.run.enabled[0]
            shutil.copytree(
                plugin_folder(self.plugin, self.run, self.site), self.hermes / "plugins" / name, symlinks=True
            )

    def _configure(self) -> None:
        file = self.hermes / "config.yaml"  # an installer may have written one
        config: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8")) or {} if file.exists() else {}
        config.setdefault("plugins", {})["enabled"] = list(self.run.enabled)
        if self.run.memory_provider:
            config.setdefault("memory", {})["provider"] = self.run.memory_provider
        if self.service is not None:
            config |= self._filled(self.service.config)
        file.write_text(yaml.safe_dump(config), encoding="utf-8")

    def _filled(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values with the stand-in's address in them."""
        text = json.dumps(values).replace("{url}", f"http://127.0.0.1:{self.port}").replace("{home}", str(self.home))
        filled: dict[str, Any] = json.loads(text)
        return filled


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def plugin_folder(plugin: Plugin, run: Run, site: Path) -> Path:
    """Return the plugin's own folder in its installed files.

    Raises:
        RuntimeError: none is named as the run says.
    """
    if plugin.repository is not None:
        assert plugin.repository.place is not None
        return plugin.repository.place
    if plugin.setting.folder:
        return site / plugin.setting.folder
    wanted = {run.memory_provider, *run.enabled}
    found = [file for name in ("plugin.yaml", "plugin.yml") for file in sorted(_walk(site, name))]
    for file in found:
        if wanted & {file.parent.name, _manifest(file).get("name")}:
            return file.parent
    if len(found) == 1:
        return found[0].parent
    raise RuntimeError(f"no folder of the plugin is named {' or '.join(sorted(wanted))}: {found}")


def asks_for_env(plugin: Plugin, run: Run, site: Path) -> bool:
    """Say whether the promised gate, which the peer lacks, applies to this run."""
    return bool(gating_env(plugin, run, site))


def gating_env(plugin: Plugin, run: Run, site: Path) -> list[str]:
    """Return the variables that gate a run: `requires_env` of a standalone plugin that is a folder."""
    if run.layout != "dir":
        return []
    manifest = _manifest(plugin_folder(plugin, run, site) / "plugin.yaml")
    if manifest.get("kind", "standalone") != "standalone":
        return []
    return [str(e["name"] if isinstance(e, Mapping) else e) for e in manifest.get("requires_env") or ()]


def _walk(site: Path, name: str) -> list[Path]:
    return [Path(folder) / name for folder, _, files in os.walk(site, followlinks=True) if name in files]


def _manifest(file: Path) -> dict[str, Any]:
    try:
        loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _end(done: subprocess.CompletedProcess[str]) -> str:
    return " | ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
