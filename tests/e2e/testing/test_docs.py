"""docs/plugins/testing.md: every snippet is run as it is printed."""

from __future__ import annotations

import inspect
import re
import subprocess
from pathlib import Path

from hermes_agent import testing
from hermes_agent.testing import PluginHost, plugin_host
from nested_pytest import NESTED

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "plugins" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
FILES = {m[1]: text for _, text in BLOCKS if (m := re.match(r"# file: (\S+)\n", text))}


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    assert len(FILES) == len(BLOCKS)
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    load = ["-p", "hermes_agent.testing.pytest_plugin", "-p", "no:hermes"]

    done = subprocess.run(
        [*NESTED, *load],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    written = sum(text.count("\ndef test_") for text in FILES.values())
    assert f"{written} passed" in done.stdout


def test_every_name_of_the_page_is_there_and_every_public_name_is_on_the_page() -> None:
    printed = set(re.findall(r"`host\.(\w+)", PAGE))
    for row in re.findall(r"^\| (`host\..*?) \|", PAGE, re.MULTILINE):
        printed |= set(re.findall(r"`(?:host\.)?(\w+)", row))
    public = {name for name in vars(PluginHost) if not name.startswith("_")}
    kept = {"keys", "conversation", "host"}  # for what the page has no word for
    attributes = {"home", "workspace", "model", "log"}
    assert printed == (public | attributes) - kept
    (signature,) = re.findall(r"^`plugin_host\((.*?)\)`", PAGE, re.MULTILINE)
    names = [part.strip().partition("=")[0].lstrip("*") for part in signature.split(",") if part.strip(" )")]
    assert names == list(inspect.signature(plugin_host).parameters)
    assert all(name in PAGE for name in testing._WHERE if name not in ("PluginHost", "Answer", "CliOutcome"))
