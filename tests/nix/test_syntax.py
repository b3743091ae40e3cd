"""Every Nix file of the repository parses."""

from __future__ import annotations

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
