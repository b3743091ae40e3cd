"""The flake, as people use it, with the stand-in in nixpkgs' place."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.nix


def test_the_lock_file_fits_the_flake(nix, tree: Path) -> None:
    done = nix.flake("flake", "metadata", "--no-update-lock-file", "--json", f"path:{tree}")
    assert done.status == 0, done.stderr
    locks = json.loads(done.stdout)["locks"]
    assert list(locks["nodes"]) == ["nixpkgs", "root"]
    assert locks["nodes"]["nixpkgs"]["original"]["ref"] == "nixos-26.05"


def test_the_checks_of_the_flake_pass(nix, tree: Path, nixpkgs: Path) -> None:
    before = (tree / "flake.lock").read_text()
    done = nix.flake("flake", "check", f"path:{tree}", offline_nixpkgs=nixpkgs)
    assert done.status == 0, done.stderr
    assert (tree / "flake.lock").read_text() == before


def test_the_flake_builds_and_runs(nix, tree: Path, nixpkgs: Path) -> None:
    built = nix.flake("build", f"path:{tree}", "--no-link", "--json", offline_nixpkgs=nixpkgs)
    assert built.status == 0, built.stderr
    program = Path(json.loads(built.stdout)[0]["outputs"]["out"]) / "bin" / "hermes"
    assert program.exists()
    ran = nix.flake("run", f"path:{tree}", "--", "--version", offline_nixpkgs=nixpkgs)
    assert ran.status == 0, ran.stderr
    assert ran.stdout.startswith("hermes-agent ")


def test_a_hosts_overlay_reaches_the_agent(nix, tree: Path, nixpkgs: Path) -> None:
    overlaid = (
        f'let f = builtins.getFlake "path:{tree}"; n = builtins.getFlake "path:{nixpkgs}"; '
        "pkgs = n.legacyPackages.${builtins.currentSystem}; "
        "in (f.overlays.default pkgs { }).hermes-agent.pname"
    )
    done = nix.flake("eval", "--impure", "--raw", "--expr", overlaid)
    assert (done.status, done.stdout) == (0, "hermes-agent"), done.stderr


def test_a_clone_without_flakes_has_the_same_package(nix, tree: Path, nixpkgs: Path) -> None:
    flake = nix.flake("eval", "--raw", f"path:{tree}#hermes-agent.drvPath", offline_nixpkgs=nixpkgs)
    assert flake.status == 0, flake.stderr
    pkgs = f'(builtins.getFlake "path:{nixpkgs}").legacyPackages.${{builtins.currentSystem}}'
    plain = f"(import {tree} {{ pkgs = {pkgs}; }}).hermes-agent.drvPath"
    done = nix.flake("eval", "--impure", "--raw", "--expr", plain)
    assert done.status == 0, done.stderr
    assert done.stdout == flake.stdout


@pytest.mark.parametrize("host", ["agent", "local"])
def test_the_example_host_is_a_flake_that_evaluates(host: str, nix, tree: Path, nixpkgs: Path) -> None:
    unit = f'nixosConfigurations.{host}.config.systemd.units."hermes-agent.service".text'
    done = nix.flake(
        "eval",
        "--raw",
        f"path:{tree}/examples/nixos#{unit}",
        "--override-input",
        "hermes-agent",
        f"path:{tree}",
        offline_nixpkgs=nixpkgs,
    )
    assert done.status == 0, done.stderr
    has_key = "LoadCredential=OPENROUTER_API_KEY:/run/secrets/openrouter-api-key" in done.stdout.splitlines()
    assert has_key == (host == "agent")
    assert ("hermes-local-model.service" in done.stdout) == (host == "local")


def test_the_flake_shows_what_there_is(nix, tree: Path, nixpkgs: Path) -> None:
    done = nix.flake("flake", "show", "--json", f"path:{tree}", offline_nixpkgs=nixpkgs)
    assert done.status == 0, done.stderr
    shown = json.loads(done.stdout)
    assert set(shown) >= {
        "apps",
        "checks",
        "devShells",
        "formatter",
        "legacyPackages",
        "nixosModules",
        "overlays",
        "packages",
        "templates",
    }
    assert set(shown["templates"]) == {"default", "host", "plugin-directory", "plugin-entry-point"}
    assert set(shown["apps"]["x86_64-linux"]) == {"check-config", "check-plugins", "default", "hermes"}


def test_the_overlay_has_the_builder_of_plugins_and_a_template_passes_through_it(
    nix, tree: Path, nixpkgs: Path
) -> None:
    template = tree / "nix" / "templates" / "plugin-directory"
    expression = (
        f'let f = builtins.getFlake "path:{tree}"; n = builtins.getFlake "path:{nixpkgs}"; '
        "pkgs = n.legacyPackages.${builtins.currentSystem}; final = pkgs // f.overlays.default final pkgs; "
        f'in final.buildHermesPlugin {{ pname = "my-plugin"; src = {template}; }}'
    )
    built = nix.flake("build", "--impure", "--no-link", "--json", "--expr", expression)
    assert built.status == 0, built.stderr
    assert (Path(json.loads(built.stdout)[0]["outputs"]["out"]) / "plugin.yaml").is_file()


def test_one_line_of_ci_checks_a_plugin_of_ones_own(nix, tree: Path, nixpkgs: Path, tmp_path: Path) -> None:
    """`nix flake check` in the template of a directory plugin, as it is and with a fault."""
    plugin = tmp_path / "plugin"
    shutil.copytree(tree / "nix" / "templates" / "plugin-directory", plugin)
    command = ("flake", "check", f"path:{plugin}", "--override-input", "hermes-agent", f"path:{tree}")
    done = nix.flake(*command, offline_nixpkgs=nixpkgs)
    assert done.status == 0, done.stderr
    code = plugin / "__init__.py"
    code.write_text(f"import flux_capacitor\n{code.read_text()}")
    refused = nix.flake(*command, offline_nixpkgs=nixpkgs)
    assert refused.status != 0
    assert "ModuleNotFoundError: No module named 'flux_capacitor'" in refused.stderr


def test_the_template_of_a_package_is_a_plugin(nix, tree: Path, nixpkgs: Path) -> None:
    template = tree / "nix" / "templates" / "plugin-entry-point"
    done = nix.flake(
        "eval", "--raw", f"path:{template}#checks.x86_64-linux.agent.drvPath",
        "--override-input", "hermes-agent", f"path:{tree}", offline_nixpkgs=nixpkgs,
    )  # fmt: skip
    assert done.status == 0, done.stderr
    assert done.stdout.endswith(".drv")
