"""OpenClaw's own program in several versions: installed once into a cache with a Node.js of its own, and used.

A home is made by its commands alone, with a stand-in for the model. Where npm cannot install, the tests are skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compat.corpus.install import CACHE

LATEST = "2026.9.6"
VERSIONS = ("2026.6.11", LATEST)
"""Sessions and keys in files, jobs in columns of a database; everything in databases, jobs as JSON."""
NODE = "26.10.0"
LIMIT_S = 900
MODEL = "scripted-model"
KEYS = ("sk-corner-0123456789", "123456:secret-of-telegram", "sk-ant-api03-0123456789-secret")
"""Secrets of each home, which no report may show."""


class CannotInstallOpenClaw(Exception):
    """npm could not; most often there is no network."""


def _npm(place: Path, *words: str) -> None:
    if shutil.which("npm") is None:
        raise CannotInstallOpenClaw("npm is not installed")
    command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(place), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise CannotInstallOpenClaw(" ".join(done.stderr.split())[-300:])


def installed(version: str) -> Path:
    """Return the folder with a version of the program, in `node_modules`, and the Node.js that runs it."""
    place = CACHE / f"openclaw-{version}"
    if not place.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=CACHE, prefix="part-"))
        try:
            _npm(part, "--ignore-scripts", f"openclaw@{version}")
            _npm(part, f"node@{NODE}")  # after the other, which would remove what its script installs
            part.rename(place)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return place


class OpenClaw:
    """The program, for one user.

    Args:
        user_home: the folder with `.openclaw`, its home.
    """

    def __init__(self, version: str, user_home: Path) -> None:
        place = installed(version) / "node_modules"
        self.home = user_home / ".openclaw"
        self._user_home = user_home
        self._words = [str(place / ".bin" / "node"), str(place / "openclaw" / "openclaw.mjs")]
        self._environment = {
            "PATH": f"{place / '.bin'}:{os.defpath}",
            "HOME": str(user_home),
            "OPENCLAW_SKIP_CHANNELS": "1",
            "NO_COLOR": "1",
        }

    def run(self, *words: str, stdin: str = "") -> str:
        """Run a command; return what it prints."""
        done = self._start(*words, stdin=stdin)
        assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def _start(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._words, *words],
            env=self._environment,
            cwd=self._user_home,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    @contextlib.contextmanager
    def gateway(self, port: int) -> Iterator[None]:
        """Run the gateway, which schedules jobs."""
        self.run("config", "set", "gateway.port", str(port))
        command = [*self._words, "gateway", "run", "--port", str(port)]
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                command, env=self._environment, cwd=self._user_home, stdout=log, stderr=log, start_new_session=True
            )
            try:
                until = time.monotonic() + 240
                while self._start("health", "--json").returncode != 0:
                    log.seek(0)
                    assert process.poll() is None and time.monotonic() < until, log.read()[-2000:]
                yield
            finally:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(60)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)


def make_openclaw_home(user_home: Path, version: str, base_url: str, port: int) -> OpenClaw:
    """Make a home: two agents with sessions, notes, a skill, a job of each kind, a channel, a key and a server."""
    program = OpenClaw(version, user_home)
    onboard = "onboard --non-interactive --accept-risk --mode local --auth-choice custom-api-key --skip-channels"
    program.run(
        *f"{onboard} --skip-health --skip-search --skip-ui --skip-skills --no-install-daemon".split(),
        *("--custom-base-url", base_url, "--custom-model-id", MODEL, "--custom-api-key", KEYS[0]),
    )
    workspace = program.home / "workspace"
    (workspace / "MEMORY.md").write_text("# Facts\n\nThe tree is outside.\n")
    (workspace / "memory").mkdir(exist_ok=True)
    (workspace / "memory" / "2026-05-28.md").write_text("We talked about trees.\n")
    skill = user_home / "made" / "prune"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: prune\ndescription: how to prune\n---\n\nDo it.\n")
    shutil.copytree(skill, workspace / "skills" / "prune")
    for text in ("hello there", "where is the tree? \U0001f333"):
        program.run("agent", "--local", "--agent", "main", "--message", text)
    telegram = {"enabled": True, "botToken": KEYS[1], "allowFrom": ["4711"], "groups": {"*": {"requireMention": True}}}
    program.run("config", "set", "channels.telegram", json.dumps({**telegram, "dmPolicy": "allowlist"}))
    program.run("mcp", "set", "files", '{"command": "npx", "args": ["files"]}')
    _store_key(program, version)
    program.run("agents", "add", "ops", "--non-interactive", "--workspace", str(program.home / "workspace-ops"))
    program.run("agent", "--local", "--agent", "ops", "--message", "hello from ops")
    with program.gateway(port):
        job = ["cron", "add", "--agent", "main", "--session", "isolated", "--no-deliver"]
        program.run(*job, "--name", "brief", "--cron", "0 7 * * *", "--message", "Summarise the night.")
        program.run(*job, "--name", "often", "--every", "2h", "--message", "Look at the garden.")
    return program


def _store_key(program: OpenClaw, version: str) -> None:
    """Store a key of another provider, with the command or, in older versions, in the file that it wrote then."""
    if version == LATEST:
        program.run("models", "auth", "paste-api-key", "--agent", "main", "--provider", "anthropic", stdin=KEYS[2])
        return
    place = program.home / "agents" / "main" / "agent" / "auth-profiles.json"
    store: dict[str, Any] = json.loads(place.read_text()) if place.exists() else {"version": 1, "profiles": {}}
    store["profiles"]["anthropic:manual"] = {"type": "api_key", "provider": "anthropic", "key": KEYS[2]}
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(store))


if __name__ == "__main__":
    made = make_openclaw_home(Path(sys.argv[2]), sys.argv[1], sys.argv[3], 18790)
    print(made.home)
