"""Every Nix file of the repository parses, and has the form that `nix fmt` writes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.nix


def nix_files(tree: Path) -> list[Path]:
    """The Nix files that git knows, or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.nix"],
        cwd=tree,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    files = [tree / name for name in listed.stdout.split() if (tree / name).is_file()]
    assert len(files) > 60
    return files


def test_every_nix_file_parses(nix) -> None:
    parsed = nix.parse(*nix_files(nix.tree))
    assert parsed.status == 0, parsed.stderr


def test_every_nix_file_has_the_form_of_nixfmt(nix) -> None:
    """RFC 166, in nixfmt's own width of 100. NIXFMT names the program where it is not on the PATH."""
    program = os.environ.get("NIXFMT") or shutil.which("nixfmt")
    if program is None:
        pytest.skip("nixfmt is neither on the PATH nor in NIXFMT: no package index of the CI has it")
    done = subprocess.run(
        [program, "--check", *map(str, nix_files(nix.tree))], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"run `nix fmt`, or {program} on these files:\n{done.stderr}"


def test_options_are_interfaces_with_types_of_the_library(nix) -> None:
    """What follows from options is in derived.nix; the one result that others read is the package of the unit."""
    modules = sorted((nix.tree / "modules").rglob("*.nix"))
    texts = {file.name: file.read_text() for file in modules}
    assert len(texts) > 25
    read_only = [name for name, text in texts.items() for _ in re.findall(r"readOnly = true", text)]
    assert read_only == ["options.nix"]
    assert "finalPackage = mkOption {\n      type = types.package;\n      readOnly = true;" in texts["options.nix"]
    made = re.compile(r"mkOptionType|types\.addCheck|type = [^;]*// \{")
    assert [name for name, text in texts.items() if made.search(text)] == []
