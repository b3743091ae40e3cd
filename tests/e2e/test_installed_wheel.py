"""The wheel, built and installed as people do it: what comes with the agent is in it, and answers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from worlds import ROOT

INSTALLED = ("hermes", "plugins", "pyproject.toml", "README.md", "LICENSE")
BUILD = (
    "import sys; from setuptools.build_meta import build_sdist, build_wheel; print(globals()[sys.argv[1]](sys.argv[2]))"
)


def call(*command: str | Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(cwd), "PYTHONPATH": "", **more}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=100, check=False)


def build(hook: str, source: Path, into: Path) -> Path:
    """Run one hook of the build backend; return what it wrote."""
    into.mkdir(exist_ok=True)
    done = call(sys.executable, "-c", BUILD, hook, into, cwd=source)
    assert done.returncode == 0, done.stderr
    return into / done.stdout.splitlines()[-1]


@pytest.mark.parametrize("over_an_archive", [False, True], ids=["from the sources", "from an archive of the sources"])
def test_the_installed_wheel_has_the_bundled_plugins_as_files_and_a_bundled_provider_answers(
    tmp_path: Path, scripted, over_an_archive: bool
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in INSTALLED:
        if (ROOT / name).is_dir():
            left_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=left_out)
        else:
            shutil.copy2(ROOT / name, source / name)
    if over_an_archive:
        shutil.unpack_archive(build("build_sdist", source, tmp_path / "dist"), tmp_path / "unpacked")
        (source,) = (tmp_path / "unpacked").iterdir()
    wheel = build("build_wheel", source, tmp_path / "wheels")

    environment = tmp_path / "environment"
    assert call(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path).returncode == 0
    python = environment / "bin" / "python"
    site = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).stdout[:-1])
    # What the agent depends on is that of this process; a .pth in a .pth is not followed, so its own agent is not.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    installed = call(*pip, cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr

    bundled = site / "hermes_agent" / "_bundled"
    suffixes = (".py", ".yaml")
    expected = {p.relative_to(ROOT / "plugins") for p in (ROOT / "plugins").rglob("*") if p.suffix in suffixes}
    found = {p.relative_to(bundled) for p in bundled.rglob("*") if p.suffix in suffixes and not p.is_symlink()}
    assert len(expected) > 20 and found == expected
    assert not bundled.is_symlink()

    with scripted([{"match": {"userMessage": "Hello"}, "response": {"content": "Good day."}}]) as model:
        home = tmp_path / "home"
        home.mkdir()
        (home / "config.yaml").write_text(
            f"model: {{provider: custom, base_url: '{model.base_url}', default: scripted}}\n"
        )
        where = {"HERMES_HOME": str(home), "OPENAI_API_KEY": model.key}
        said = call(environment / "bin" / "hermes", "-z", "Hello", cwd=tmp_path, **where)
        assert (said.returncode, said.stdout) == (0, "Good day.\n"), said.stderr
