"""The wheel of this checkout, built and installed as users do it, with the dependencies of the tests' environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

from worlds import ROOT

__all__ = ["build", "call", "copy_source", "hermes", "install_program", "install_wheel", "make_environment", "variant"]

INSTALLED = ("hermes", "plugins", "docs", "packaging", "setup.py", "pyproject.toml")
PAGES = ("README.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE")
BUILD = (
    "import sys; from setuptools.build_meta import build_sdist, build_wheel; print(globals()[sys.argv[1]](sys.argv[2]))"
)


def call(*command: str | Path, cwd: Path, timeout_s: float = 100, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(cwd), "PYTHONPATH": "", **more}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
    )


def copy_source(into: Path) -> Path:
    """Copy what the wheel is built from; a build writes into its source."""
    into.mkdir(parents=True)
    for name in (*INSTALLED, *PAGES):
        if (ROOT / name).is_dir():
            left_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, into / name, symlinks=True, ignore=left_out)
        else:
            shutil.copy2(ROOT / name, into / name)
    return into


def build(hook: str, source: Path, into: Path) -> Path:
    """Run one hook of the build backend; return what it wrote."""
    into.mkdir(exist_ok=True)
    done = call(sys.executable, "-c", BUILD, hook, into, cwd=source)
    assert done.returncode == 0, done.stderr
    return into / done.stdout.splitlines()[-1]


def make_environment(path: Path) -> Path:
    """Make an environment that sees the dependencies of this process, and not its agent; return `site-packages`."""
    assert call(sys.executable, "-m", "venv", "--without-pip", path, cwd=path.parent).returncode == 0
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(call(path / "bin" / "python", "-c", ask, cwd=path.parent).stdout[:-1])
    # a .pth in a .pth is not followed
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return site


def install_wheel(wheel: Path, environment: Path) -> None:
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    installed = call(*pip, cwd=environment.parent)
    assert installed.returncode == 0, installed.stderr


def install_program(wheel: Path, person: Path) -> None:
    """Install the program into a home as `make install` does: an environment, and a link on the PATH."""
    environment = person / ".local" / "share" / "hermes-agent"
    environment.parent.mkdir(parents=True)
    make_environment(environment)
    install_wheel(wheel, environment)
    (person / ".local" / "bin").mkdir()
    (person / ".local" / "bin" / "hermes").symlink_to(environment / "bin" / "hermes")


def hermes(person: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the installed program of a home."""
    path = f"{person}/.local/bin:/usr/bin:/bin"
    own = {"PATH": path, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **more}
    return call(person / ".local" / "bin" / "hermes", *arguments, cwd=person, timeout_s=250, **own)


def variant(wheel: Path, version: str, changes: Mapping[str, Callable[[str], str]], into: Path) -> Path:
    """Write the wheel of another version, with changed files, whose record has the new hashes.

    Args:
        changes: functions on the text by the path in the wheel; of the metadata, `METADATA`.
    """
    old = wheel.name.split("-")[1]
    target = into / wheel.name.replace(f"-{old}-", f"-{version}-")
    folder = f"hermes_agent-{version}.dist-info"
    edits = {**changes}
    edits["hermes_agent/__init__.py"] = lambda text: text.replace(
        f'__version__ = "{old}"', f'__version__ = "{version}"'
    )
    metadata = edits.pop("METADATA", str)
    edits[f"{folder}/METADATA"] = lambda text: metadata(text).replace(f"Version: {old}", f"Version: {version}", 1)
    record = []
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(target, "w") as made:
        for name in source.namelist():
            new = name.replace(f"hermes_agent-{old}.", f"hermes_agent-{version}.")
            if new == f"{folder}/RECORD":
                continue
            data = source.read(name)
            if new in edits:
                data = edits.pop(new)(data.decode()).encode()
            made.writestr(new, data)
            record.append(f"{new},sha256={urlsafe_b64encode(sha256(data).digest()).rstrip(b'=').decode()},{len(data)}")
        made.writestr(f"{folder}/RECORD", "\n".join([*record, f"{folder}/RECORD,,"]) + "\n")
    assert edits == {}, "every file to change is in the wheel"
    return target
