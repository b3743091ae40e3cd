"""Every Nix file of the repository parses."""

from __future__ import annotations

import shutil
import subprocess

import pytest

pytestmark = pytest.mark.nix


def test_every_nix_file_parses(nix) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.nix"],
        cwd=nix.tree,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    files = [nix.tree / name for name in listed.stdout.split()]
    assert len(files) > 20
    parsed = nix.parse(*files)
    assert parsed.status == 0, parsed.stderr


def test_the_package_has_the_form_of_nixfmt(nix) -> None:
    """RFC 166, as `nix fmt` writes it; no package index of the CI has nixfmt."""
    if shutil.which("nixfmt") is None:
        pytest.skip("nixfmt is not installed")
    files = [*nix.tree.glob("*.nix"), *(nix.tree / "nix").rglob("*.nix"), *(nix.tree / "examples").rglob("*.nix")]
    assert len(files) > 15
    done = subprocess.run(
        ["nixfmt", "--check", *map(str, files)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
