"""The module inside the whole NixOS module set: `make test-nixos-modules NIXOS=DIR NIXPKGS_LIB=DIR`.

`NIXOS` is nixpkgs' folder `nixos`, `NIXPKGS_LIB` its folder `lib`, or several with blanks between them. Packages are
the stand-ins of this folder (`nixos-modules.nix`). What NixOS renders is compared with what its stand-in renders.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.nix

HERE = Path(__file__).parent
NAMES = re.findall(r"^  ([A-Za-z]+) =\s", (HERE / "systems.nix").read_text(), re.MULTILINE)
LIBRARIES = os.environ.get("NIXPKGS_LIB", "").split() if os.environ.get("NIXOS") else [""]
PACKAGE = re.compile(r"pkgs\.([a-zA-Z_][a-zA-Z0-9_'-]*)")
OF_NIXOS = ("LOCALE_ARCHIVE", "TZDIR", "PATH")
"""Variables of a unit that NixOS adds or completes."""


@pytest.fixture(scope="module")
def nixos() -> Path:
    named = os.environ.get("NIXOS")
    if not named or not LIBRARIES[0]:
        pytest.skip("NIXOS and NIXPKGS_LIB name no folders of nixpkgs: `make test-nixos-modules`")
    return Path(named).resolve()


@pytest.fixture(scope="module")
def packages(nixos: Path) -> str:
    """Every name of a package that a module mentions."""
    found: set[str] = set()
    for file in (nixos / "modules").rglob("*.nix"):
        found |= set(PACKAGE.findall(file.read_text()))
    return " ".join(sorted(found))


def evaluate(nix: Any, nixos: Path, library: str, packages: str, attribute: str) -> Any:
    # The description of the host is built while evaluating.
    command = ["nix-instantiate", "--eval", "--read-write-mode", "--strict", "--json", *nix.options]
    command += ["tests/nix/nixos-modules.nix"]
    command += ["--arg", "nixos", str(nixos), "--arg", "library", str(Path(library).resolve())]
    command += ["--argstr", "names", packages, "--argstr", "hostSite", nix.site, "-A", attribute]
    done = subprocess.run(command, cwd=nix.tree, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def lines(unit: str) -> list[str]:
    """The lines of a unit that are the module's own, in the order of their keys."""
    kept = []
    for line in unit.splitlines():
        name = line.removeprefix('Environment="').partition("=")[0]
        if not line or name in OF_NIXOS or line.startswith(("[", "X-", "Description=")):
            continue
        kept.append(line)
    return sorted(kept)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", NAMES)
def test_nixos_renders_the_host_as_the_stand_in_does(name: str, library: str, nixos: Path, packages: str, nix) -> None:
    real = evaluate(nix, nixos, library, packages, f"hosts.{name}")
    assert real["failed"] == []
    assert real["warnings"] == []
    config = f"systems.{name}.config"
    assert set(real["units"]) == set(nix.evaluate(f"systems.{name}.unitNames"))
    for unit, text in real["units"].items():
        assert lines(text) == lines(nix.evaluate(f'{config}.systemd.units."{unit}".text')), unit
    ours = nix.evaluate(f"{config}.systemd.tmpfiles.settings")["10-hermes-agent"]
    assert set(real["tmpfiles"]) == set(ours)
    for path, rules in ours.items():
        for kind, rule in rules.items():
            assert {key: real["tmpfiles"][path][kind][key] for key in rule} == rule
    assert set(real["etc"]) == {file for file in nix.evaluate(f"{config}.environment.etc") if file.startswith("hermes")}
    assert "hermes-agent-unit-check" in real["checks"]
    if real["user"] is not None and name != "elsewhere":
        assert real["user"] == {"group": "hermes", "home": "/var/lib/hermes", "isSystemUser": True}


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_manual_of_nixos_has_every_option(library: str, nixos: Path, packages: str, nix) -> None:
    options = {option["name"]: option for option in evaluate(nix, nixos, library, packages, "manual")}
    assert len(options) > 350
    prefix = "services.hermes-agent"
    for name in ("enable", "settings.model.provider", "plugins.settings", "maxExposure", "mcpServers.<name>.command"):
        assert options[f"{prefix}.{name}"]["description"]
    own = [name for name, option in options.items() if not option["description"] and "<name>" not in name]
    assert own == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_modular_service_fits_into_nixpkgs_base_of_such_services(library: str, nixos: Path, nix, tmp_path) -> None:
    """The part for any service manager, with its nested services, assertions and configuration data."""
    if not Path(library, "services", "lib.nix").is_file():
        pytest.skip(f"{library} has no modular services")
    shutil.copytree(library, tmp_path / "lib")
    assertions = tmp_path / "nixos" / "modules" / "misc" / "assertions.nix"
    assertions.parent.mkdir(parents=True)
    shutil.copy(nixos / "modules" / "misc" / "assertions.nix", assertions)
    # A folder `lib` alone lacks this one, which names maintainers.
    maintainers = Path(library, "..", "modules", "generic", "meta-maintainers.nix")
    (tmp_path / "modules" / "generic").mkdir(parents=True)
    (tmp_path / "modules" / "generic" / maintainers.name).write_text(
        maintainers.read_text() if maintainers.is_file() else "{ }\n"
    )
    base = (
        "--arg",
        "lib",
        f"import {tmp_path / 'lib'}",
        "--arg",
        "servicesBase",
        str(tmp_path / "lib/services/lib.nix"),
    )
    service = json.loads(nix.build("modularService", *base).path.read_text())
    plain = json.loads(nix.build("modularService").path.read_text())
    assert service == plain
    assert service["argv"][1:] == ["gateway", "run", "--verbose"]
