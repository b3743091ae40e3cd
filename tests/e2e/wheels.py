"""The wheel of this checkout, built and installed as users do it, with the dependencies of the tests' environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from worlds import ROOT

__all__ = ["build", "call", "copy_source", "install_wheel", "make_environment"]

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
