"""The install lines of README, docs and messages, run as printed; what the agent depends on is that of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from install_lines import ROOT, install_block, install_lines, shell

OFFLINE = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
OFFLINE |= {"PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_COMPILE": "0"}
"""`0`: pip reads these variables as the values of `build_isolation` and `compile`."""
VENV = "~/.local/share/hermes-agent"
ASK = "from hermes_agent.system.installation import install_hint; print(install_hint('documents')[1:-1])"

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("install lines")]

Run = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Somebody who has run README's section Install; further scripts run in the clone."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    home = tmp_path_factory.mktemp("newcomer")
    (home / "bin").mkdir()
    (home / "bin" / "python3").symlink_to(sys.executable)
    path = f"{home}/.local/bin:{home}/bin:{os.environ['PATH']}"

    def run(script: str, cwd: Path = home / "hermes-agent") -> subprocess.CompletedProcess[str]:
        return shell(script, home, cwd, PATH=path, **OFFLINE)

    site = f"{VENV}/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    # an isolated build would fetch a newer setuptools than some Pythons give their environments
    before = f"python3 -m venv {VENV}\n"
    before += f"rm -rf {site}/setuptools* {site}/pkg_resources {site}/_distutils_hack {site}/distutils-precedence.pth\n"
    before += f"echo {sysconfig.get_path('purelib')} > {site}/dependencies.pth\n"
    script = before + install_block()
    done = run(script, home)
    assert done.returncode == 0, done.stdout + done.stderr
    return run


def test_the_section_install_of_the_readme_begins_with_a_clone_and_ends_with_hermes_on_the_path(newcomer: Run) -> None:
    assert install_block().startswith("git clone ")
    done = newcomer("hermes --version && command -v hermes && hermes doctor --offline || true")
    assert "hermes-agent 0." in done.stdout and "/.local/bin/hermes" in done.stdout
    assert "extras      installed: " in done.stdout, done.stderr


def test_the_line_of_the_docs_for_a_light_extra_works_as_printed(newcomer: Run) -> None:
    line = install_lines()["docs/operator/files.md: '.[documents]'"]
    done = newcomer(line)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_line_that_messages_and_the_doctor_print_works_as_printed_from_the_tree_and_from_a_wheel(
    newcomer: Run,
) -> None:
    from_tree = newcomer(f'{VENV}/bin/python -c "{ASK}"').stdout.strip()
    assert from_tree.endswith("/hermes-agent[documents]'")
    done = newcomer(from_tree)
    assert done.returncode == 0, done.stdout + done.stderr

    pip = f"{VENV}/bin/pip"
    done = newcomer(f"{pip} wheel --quiet --no-deps . && {pip} install --quiet --force-reinstall --no-deps ./*.whl")
    assert done.returncode == 0, done.stdout + done.stderr
    from_wheel = newcomer(f'{VENV}/bin/python -c "{ASK}"').stdout.strip()
    assert from_wheel.endswith(".whl[documents]'")
    done = newcomer(from_wheel)
    assert done.returncode == 0, done.stdout + done.stderr

    gone = newcomer(f'rm ./*.whl && {VENV}/bin/python -c "{ASK}"').stdout.strip()
    assert "pypdf" in gone and "hermes-agent[" not in gone


def test_every_extra_has_a_line_in_the_docs() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = " ".join(install_lines())
    assert {name for name in declared if f"[{name}]" not in named} == {"daytona"}  # beside that of modal
    assert "`'.[daytona]'`" in (ROOT / "docs" / "operator" / "commands.md").read_text()


def test_make_uninstall_removes_what_make_install_made_and_leaves_the_home(newcomer: Run) -> None:
    made = "$HOME/.local/share/bash-completion/completions/hermes"
    done = newcomer(f"test -s {made} && mkdir -p ~/.hermes && make uninstall && test ! -e {made}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left " in done.stdout and "/.hermes: settings, sessions, plugins and keys" in done.stdout
    gone = newcomer(f"test ! -e {VENV} && ! command -v hermes && test -d ~/.hermes")
    assert gone.returncode == 0, gone.stdout + gone.stderr


def test_make_install_leaves_another_program_of_the_name_alone(newcomer: Run, tmp_path: Path) -> None:
    other = tmp_path / "hermes"
    other.write_text("#!/bin/sh\n")
    done = newcomer(f"make install HERMES_BIN={tmp_path}")
    assert done.returncode != 0
    assert f"{other} exists and is another program" in done.stderr
    assert other.read_text() == "#!/bin/sh\n"


def test_an_installation_without_extras_stays_small_and_has_no_sdk_of_a_vendor() -> None:
    lines = (ROOT / "requirements" / "run.txt").read_text().splitlines()
    locked = [line.partition("==")[0] for line in lines if "==" in line and not line.startswith((" ", "#"))]
    assert len(locked) > 30 and {"openai", "anthropic", "pydantic", "mcp"}.isdisjoint(locked)
    sizes = {}
    for name in locked:
        try:
            files = metadata.distribution(name).files or ()
        except metadata.PackageNotFoundError:  # of another system
            continue
        paths = [Path(str(file.locate())) for file in files if file.suffix != ".pyc"]
        sizes[name] = sum(path.stat().st_size for path in paths if path.is_file())
    assert 10 << 20 < sum(sizes.values()) < 48 << 20, sorted(sizes.items(), key=lambda item: -item[1])[:10]
