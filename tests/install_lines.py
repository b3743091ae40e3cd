"""The install lines of README.md and docs/, as an operator copies them, and an empty place to run them in."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

__all__ = ["ROOT", "clone", "install_block", "install_lines", "shell"]

ROOT = Path(__file__).parents[1]
_LINE = re.compile(r"(?:python3 -m venv (?:\S+) && )?[\w~./-]*\bpip install '\.[^']*'")
_URL = "URL-of-this-repository"


def install_block() -> str:
    """Return the commands of README's section Install."""
    section = (ROOT / "README.md").read_text().partition("\n## Install\n")[2]
    found = re.search(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert found is not None, "README's section Install has a block of commands"
    return found[1].replace(_URL, str(ROOT))


def install_lines() -> dict[str, str]:
    """Return each line that installs an extra by the page that has it, as `page: extra`."""
    found = {}
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for line in _LINE.findall(page.read_text()):
            found[f"{page.relative_to(ROOT)}: {line.rpartition(' ')[2]}"] = line
    return found


def clone(into: Path) -> Path:
    """Clone this checkout into a folder and return where."""
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(into)], check=True)
    return into


def shell(
    script: str, home: Path, cwd: Path, *, timeout_s: float = 300, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a script as somebody who has nothing but a home and the system's programs."""
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **more}
    return subprocess.run(
        ["sh", "-euc", script], cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
    )
