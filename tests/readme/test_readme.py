"""The README's commands, in order, as a newcomer would type them: in a container with Debian, Python, make and git.

Slow (a Debian, the model, every test): `make test-readme` runs it, `make test` does not. With `HERMES_README=light`, as
`make test-light` has it, `make test` is left out. The section Install is executed for `test_tasks.py`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from install_lines import install_block
from readme.container import FOR_RUN, LIGHT, ROOT, debian, fenced, run

pytestmark = pytest.mark.readme


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = debian(tmp_path_factory.mktemp("debian") / "root", FOR_RUN)
    yield root
    shutil.rmtree(root, ignore_errors=True)


def test_the_fenced_commands_work_in_an_empty_container(container: Path) -> None:
    blocks = fenced("sh")
    assert [b.strip() for b in blocks[:2]] == ["make run", "make test"]
    install, setup = blocks[2:]
    assert install.replace("URL-of-this-repository", str(ROOT)) == install_block()
    assert setup.strip() == "hermes setup"
    outputs = []
    for block in blocks[: 1 if LIGHT else 2]:
        done = run(container, block, 3000)
        print(f"$ {block}\n{done.stdout[-6000:]}")
        assert done.returncode == 0, f"{block}\n{done.stdout[-8000:]}"
        outputs.append(done.stdout)
    first = outputs[0]
    assert "calculator: calculate, unit_convert" in first
    assert re.search(r"● calculate \S.* → 65536", first)
    assert LIGHT or re.search(r"\d+ passed", outputs[1])
