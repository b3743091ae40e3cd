"""nix/nixpkgs-versions: our ranges beside the packages of nixpkgs, and the page with the table."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "nixos" / "nixpkgs.md"
MODULES = Path("pkgs", "development", "python-modules")


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "nix" / "nixpkgs-versions"), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_versions_of_a_folder_of_nixpkgs_are_compared_with_the_ranges(tmp_path: Path) -> None:
    for name, text in {
        "aiohttp": 'buildPythonPackage rec {\n  pname = "aiohttp";\n  version = "3.13.2";\n}',
        "cronsim": '{ pname = "cronsim"; version = "2.3"; }',
        "httpx": '{ version = "${"0"}.28"; }',
        "pyyaml6": '(finalAttrs: {\n  version = "6.0.3";\n})',
    }.items():
        (tmp_path / MODULES / name).mkdir(parents=True)
        (tmp_path / MODULES / name / "default.nix").write_text(text)
    listing = tmp_path / "pkgs" / "top-level" / "python-packages.nix"
    listing.parent.mkdir(parents=True)
    listing.write_text("self: super: {\n  pyyaml = callPackage ../development/python-modules/pyyaml6 { };\n}\n")
    done = run(tmp_path)
    rows = {row.split(" | ")[1].strip("`"): row.strip("| ").split(" | ")[-2:] for row in done.stdout.splitlines()[2:]}
    assert rows["aiohttp"] == ["3.13.2", "yes"]
    assert rows["cronsim"] == ["2.3", "no"]
    assert rows["httpx"] == ["not found", "?"]
    assert rows["pyyaml"] == ["6.0.3", "yes"]
    assert rows["daytona"][0] == "none" and rows["daytona"][1].startswith("`nix/python/`: ")
    assert done.returncode == 1
    assert {"cronsim", "httpx"} <= set(done.stderr.partition(": ")[2].strip().split(", "))


def test_a_folder_without_packages_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 2
    assert f"{tmp_path} has no pkgs/development/python-modules: name a folder of nixpkgs" in done.stderr


def test_the_page_has_a_row_with_todays_range_for_each_requirement() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [text for group in (project["dependencies"], *project["optional-dependencies"].values()) for text in group]
    wanted = sorted(
        (
            re.sub(r"[-_.]+", "-", re.split(r"[<>=!~\[; ]", text)[0]).lower(),
            "".join(re.findall(r"[<>=!~]+[\d.]+", text)),
        )
        for text in texts
    )
    rows = re.findall(r"^\|[^|]*\| `([^`]+)` \| `?([^`|]+?)`? \| [^|]+ \| [^|]+ \|$", PAGE.read_text(), re.MULTILINE)
    assert sorted((name, "" if spec == "any" else spec.replace(",", "")) for name, spec in rows) == wanted, (
        "`nix/nixpkgs-versions --write` writes it again"
    )
    assert re.search(r"^Read on \d{4}-\d\d-\d\d\.$", PAGE.read_text(), re.MULTILINE)
