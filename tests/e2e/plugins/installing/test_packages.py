"""`hermes plugins install` of Python packages: into an environment made for the test, without a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.app.main import main

Run = Callable[..., subprocess.CompletedProcess[str]]
Capture = pytest.CaptureFixture[str]

PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "hermes-plugin-{name}"
version = "{version}"

[tool.setuptools]
py-modules = ["fresh_{name}"]
"""
GROUP = """
[project.entry-points."hermes_agent.plugins"]
{name} = "fresh_{name}"
"""
INIT = """
def register(ctx):
    ctx.register_command("{name}", lambda raw: "hello")
"""


ELSEWHERE = """
import sysconfig
real = sysconfig.get_path
sysconfig.get_path = lambda name, *more: "/proc/none" if name == "purelib" else real(name, *more)
"""


def write_project(root: Path, name: str, version: str = "1.0", group: str = GROUP) -> Path:
    project = root / f"project-{name}-{version}"
    project.mkdir()
    (project / "pyproject.toml").write_text((PYPROJECT + group).format(name=name, version=version))
    (project / f"fresh_{name}.py").write_text(INIT.format(name=name))
    return project


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter of its own, with everything that this one has; what is installed goes to it alone."""
    place = tmp_path_factory.mktemp("venv")
    venv.create(place, with_pip=False, symlinks=True)
    [site] = place.glob("lib/python*/site-packages")
    (site / "all.pth").write_text("\n".join(p for p in sys.path if p.endswith(("site-packages", "/hermes"))) + "\n")
    return place / "bin" / "python"


@pytest.fixture
def run(python: Path, home: Path, tmp_path: Path) -> Run:
    """Run `hermes` there."""

    def hermes(*arguments: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "HERMES_HOME": str(home), "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "false"}
        return subprocess.run(
            [python, "-m", "hermes_agent", *arguments],
            cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip

    return hermes


def test_a_project_becomes_an_installed_plugin(run: Run, home: Path, tmp_path: Path) -> None:
    project = write_project(tmp_path, "one")

    done = run("plugins", "install", str(project), "--enable")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Installed hermes-plugin-one 1.0." in done.stdout
    assert "  commands  one" in done.stdout.splitlines()
    assert run("plugins", "list", "--plain", "--enabled").stdout == "enabled      entrypoint 1.0      one\n"
    origin = json.loads((home / "plugins_trust.json").read_text())["plugins"]["entrypoint:one"]["origin"]
    assert origin["distribution"] == "hermes-plugin-one"
    again = run("plugins", "install", str(project))
    assert "`one` is installed already, by hermes_plugin_one 1.0" in again.stderr


def test_a_wheel_is_looked_at_before_it_is_installed(run: Run, python: Path, write_plugin: Callable[..., Path],
                                                     tmp_path: Path) -> None:  # fmt: skip
    project = write_project(tmp_path, "two")
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "-q"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *offline, project], cwd=tmp_path, check=True, timeout=120)
    taken = write_plugin("mine", manifest="name: two\n")
    [wheel] = tmp_path.glob("*.whl")

    done = run("plugins", "install", str(wheel))

    assert done.returncode == 1
    assert f"`two` is already the user plugin {taken}; hermes-plugin-two 1.0 contains another" in done.stderr
    found = subprocess.run([python, "-c", "import fresh_two"], capture_output=True, check=False, timeout=60)
    assert found.returncode == 1


def test_a_package_without_a_plugin_is_not_installed(run: Run, python: Path, tmp_path: Path) -> None:
    done = run("plugins", "install", f"pip:{write_project(tmp_path, 'three', group='')}")

    assert "contains no plugin: it has no entry point in the group hermes_agent.plugins" in done.stderr
    found = subprocess.run([python, "-c", "import fresh_three"], capture_output=True, check=False, timeout=60)
    assert found.returncode == 1


def test_a_name_that_nobody_has_is_pips_own_words(run: Run) -> None:
    done = run("plugins", "install", "no-such-plugin-at-all")

    assert done.returncode == 1
    assert "pip wheel no-such-plugin-at-all failed:" in done.stderr
    assert "No matching distribution found" in done.stderr


def test_what_the_agent_stands_on_is_not_changed_for_a_plugin(run: Run, tmp_path: Path) -> None:
    project = write_project(tmp_path, "four")
    file = project / "pyproject.toml"
    file.write_text(file.read_text().replace('version = "1.0"', 'version = "1.0"\ndependencies = ["pyyaml<6"]'))

    done = run("plugins", "install", str(project))

    assert done.returncode == 1
    assert "pyyaml" in done.stderr.lower()
    assert run("plugins", "list", "--plain", "--enabled").returncode == 0


def test_a_home_that_nix_declares_names_the_options(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    declared = tmp_path / "declared.yaml"
    declared.write_text("{}\n")
    monkeypatch.setenv("HERMES_DECLARED_CONFIG", str(declared))

    assert main(["plugins", "install", "some-plugin"]) == 1

    err = capsys.readouterr().err
    assert "services.hermes-agent.extraPythonPackages" in err
    assert "extraPlugins" in err


def test_an_environment_that_belongs_to_the_system_is_left_alone(run: Run, python: Path) -> None:
    [site] = python.parents[1].glob("lib/python*/site-packages")
    (site / "elsewhere_shim.py").write_text(ELSEWHERE)
    hidden = site / "elsewhere.pth"
    hidden.write_text("import elsewhere_shim\n")
    try:
        done = run("plugins", "install", "some-plugin")
    finally:
        hidden.unlink()

    assert "/proc/none cannot be written: install it with what installed hermes-agent" in done.stderr


def test_a_package_is_updated_and_removed(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for version in ("1.0", "2.0"):
        project = write_project(tmp_path, "five", version)
        offline = ["--no-deps", "--no-index", "--no-build-isolation", "-q", "-w", wheels]
        subprocess.run([sys.executable, "-m", "pip", "wheel", *offline, project], check=True, timeout=120)
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    assert run("plugins", "install", "hermes-plugin-five==1.0", "--enable").returncode == 0
    pinned = run("plugins", "update", "five", "--yes")
    state = json.loads((home / "plugins_trust.json").read_text())
    state["plugins"]["entrypoint:five"]["origin"]["source"] = "hermes-plugin-five"
    (home / "plugins_trust.json").write_text(json.dumps(state))
    unasked = run("plugins", "update", "five")
    done = run("plugins", "update", "five", "--yes")

    assert pinned.stdout == "five 1.0 is up to date.\n"
    assert unasked.returncode == 1
    assert "five: 1.0 -> 2.0" in done.stdout
    assert (
        run("plugins", "list", "--plain", "--enabled").stdout.splitlines()[-1]
        == "enabled      entrypoint 2.0      five"
    )

    gone = run("plugins", "remove", "five", "--yes")

    assert gone.stdout.startswith("Removed five"), gone.stderr
    assert "five" not in run("plugins", "list", "--plain").stdout
    assert "five" not in (home / "config.yaml").read_text()


def test_a_memory_in_a_group_of_its_own_is_a_plugin_too(run: Run, home: Path, tmp_path: Path) -> None:
    group = '\n[project.entry-points."hermes_agent.memory_providers"]\n{name} = "fresh_{name}"\n'

    done = run("plugins", "install", str(write_project(tmp_path, "six", group=group)), "--no-enable")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "entrypoint:memory/six" in json.loads((home / "plugins_trust.json").read_text())["plugins"]
    assert "memory/six" in run("plugins", "list", "--plain").stdout
