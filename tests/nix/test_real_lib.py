"""With nixpkgs' own library in place of the stand-in, every host comes out the same, to the last byte.

`NIXPKGS_LIB` names a checkout: the directory whose `default.nix` is nixpkgs' `lib`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.nix

HERE = Path(__file__).parent
NAMES = re.findall(r"^  ([A-Za-z]+) =\s", (HERE / "systems.nix").read_text(), re.MULTILINE)


UPSTREAM = re.findall(r"^  ([A-Za-z]+) =\s", (HERE / "upstream.nix").read_text(), re.MULTILINE)


@pytest.fixture
def library() -> str:
    named = os.environ.get("NIXPKGS_LIB")
    if not named:
        pytest.skip("NIXPKGS_LIB names no checkout of nixpkgs' lib")
    return named


@pytest.mark.parametrize(
    "host", ["e2e", *(f"systems.{name}" for name in NAMES), *(f"upstream.{name}" for name in UPSTREAM)]
)
def test_a_host_is_the_same_with_the_real_library(host: str, nix, library: str) -> None:
    attribute = f"{host}.toplevel"
    assert nix.derivation(attribute, "--arg", "lib", f"import {library}") == nix.derivation(attribute)


def test_every_refused_host_is_refused_by_the_real_library_as_well(nix, library: str) -> None:
    names = re.findall(r"^  ([a-z-]+) =\s", (HERE / "refused.nix").read_text(), re.MULTILINE)
    built = [n for n in names if nix.build(f"refused.{n}", "--arg", "lib", f"import {library}").status == 0]
    assert built == []
