"""Every install line of README and docs, each in an empty environment, with the packages of an index. Slow.

`make test-readme` runs it, `make test` does not; `tests/e2e/test_install_lines.py` runs the light ones there.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from install_lines import ROOT, clone, install_block, install_lines, shell
from readme.container import REACHES

pytestmark = [pytest.mark.readme, pytest.mark.timeout(3600)]

INHERITED = {name: value for name, value in os.environ.items() if REACHES.search(name.upper())}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A clone, beside an empty home with the Python of the tests."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    return clone(tmp_path / "hermes-agent")


@pytest.mark.parametrize("name", install_lines())
def test_the_line_installs_its_extra_in_an_empty_environment(place: Path, name: str) -> None:
    line = install_lines()[name]
    if "[service]" in line and shutil.which("pkg-config") is None:
        pytest.skip("libsystemd's headers are not there: `make test` installs them")
    home = place.parent
    if "/opt/" in line:  # as root, and not on this machine
        line = line.replace("/opt/", f"{home}/opt/")
        python = f"{home}/opt/hermes-agent/bin/python"
    else:
        line = f"python3 -m venv ~/.local/share/hermes-agent\n{line}"
        python = "~/.local/share/hermes-agent/bin/python"
    extra = line.rpartition("[")[2].partition("]")[0]
    check = "import sys; from hermes_agent.system.installation import extras, missing_packages as lacks; "
    check += f"sys.exit(str(lacks(extras()['{extra}'])) if lacks(extras()['{extra}']) else 0)"
    path = f"{home}/bin:{os.environ['PATH']}"
    done = shell(f'{line}\n{python} -c "{check}"', home, place, timeout_s=1800, PATH=path, **INHERITED)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_the_section_install_leads_to_hermes_on_the_path(place: Path) -> None:
    home = place.parent / "person"
    home.mkdir()
    path = f"{home}/.local/bin:{place.parent}/bin:{os.environ['PATH']}"
    script = f"{install_block()}hermes --version && hermes model status || true"
    done = shell(script, home, home, timeout_s=1800, PATH=path, **INHERITED)
    assert "hermes-agent 0." in done.stdout and "runtime  there" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("line", ["pipx install .", "uv tool install ."])
def test_the_other_installers_put_hermes_on_the_path(place: Path, line: str) -> None:
    """The installer itself comes from the index, too: a distribution's may be older."""
    assert f"`{line}`" in (ROOT / "README.md").read_text()
    home = place.parent / "person"
    home.mkdir()
    installer = line.partition(" ")[0]
    path = f"{home}/.local/bin:{home}/tools/bin:{place.parent}/bin:{os.environ['PATH']}"
    script = f"python3 -m venv {home}/tools && {home}/tools/bin/pip install --quiet {installer}\n{line}\n"
    script += "command -v hermes && hermes --version && hermes update --check . && hermes self check\n"
    line_of_an_extra = "hermes self check | sed -n 's/.*ddgs is not installed — `\\(.*\\)`$/\\1/p'"
    script += f'line=$({line_of_an_extra}); echo "$line"; eval "$line" && hermes self check | grep "installed: ddgs"'
    done = shell(script, home, place, timeout_s=1800, PATH=path, **INHERITED)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{home}/.local/bin/hermes" in done.stdout and "hermes-agent 0." in done.stdout
    assert f"{line.rpartition(' ')[0]} --force" in done.stdout and "files are as installed" in done.stdout
