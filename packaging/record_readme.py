#!/usr/bin/env python3
"""Record answers of the embedded model into README.md, between its two markers.

Run it in a checkout after `make run` (which fetches the model): `.venv/bin/python packaging/record_readme.py`. It works
in a temporary home with the example plugin and in a temporary directory with one file.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HERMES = ROOT / ".venv" / "bin" / "hermes"
FILE = "notes.txt"
CONTENT = 'Backup: every night at 02:30, to the disk "vault".\nLast restore test: 3 May.\n'
QUESTIONS = ("What's 2 to the power of 16?", f"Read {FILE}. When does the backup run?")
BLOCK = re.compile(r"(<!-- recording -->\n)(.*?)(<!-- end of the recording -->)", re.DOTALL)
WIDTH = 120


def hermes(home: Path, folder: Path, *arguments: str) -> str:
    """Run one command; return what it prints on stdout and stderr, with long lines shortened."""
    environment = {**os.environ, "HERMES_HOME": str(home)}
    command = [str(HERMES), *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    lines = done.stdout.strip().splitlines()
    return "".join(f"{line if len(line) <= WIDTH else line[: WIDTH - 1] + '…'}\n" for line in lines)


def record() -> str:
    """Ask the questions; return the fenced block of commands and answers."""
    with tempfile.TemporaryDirectory() as place:
        home, folder = Path(place) / "home", Path(place) / "work"
        folder.mkdir()
        (folder / FILE).write_text(CONTENT)
        shutil.copytree(ROOT / "examples" / "plugins" / "calculator", home / "plugins" / "calculator")
        hermes(home, folder, "config", "set", "model.provider", "local")
        hermes(home, folder, "plugins", "enable", "calculator")
        answers = [f"$ hermes -z {quoted(one)}\n{hermes(home, folder, '-z', one)}" for one in QUESTIONS]
    return "```console\n" + "\n".join(answers) + "```\n"


def quoted(question: str) -> str:
    """Return the question as a shell argument, in double quotes where these suffice."""
    return shlex.quote(question) if re.search(r'["$`\\]', question) else f'"{question}"'


def main() -> None:
    """Write the block into README.md."""
    page = ROOT / "README.md"
    text, count = BLOCK.subn(lambda found: found[1] + record() + found[3], page.read_text(encoding="utf-8"))
    if count != 1:
        sys.exit("README.md has no markers `<!-- recording -->` and `<!-- end of the recording -->`")
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
