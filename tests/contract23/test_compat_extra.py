"""The extra `compat`: what upstream installs and published plugins import without declaring it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from compat.guides import plugin
from hermes_agent.plugins.loader import remedy_for
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.system.installation import COMPAT_IMPORTS
from hermes_agent.testing import plugin_host

ROOT = Path(__file__).resolve().parents[2]


def names(lines: list[str]) -> set[str]:
    return {found[0] for line in lines if (found := re.match(r"[a-z0-9-]+", line.strip()))}


def test_the_extra_the_locked_requirements_the_group_of_nix_and_the_message_name_the_same_packages() -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["compat"]
    wanted = names(extra)
    assert wanted == set(COMPAT_IMPORTS.values())
    assert names((ROOT / "requirements" / "compat.in").read_text().splitlines()) == wanted
    locked = {line.partition("==")[0] for line in (ROOT / "requirements" / "compat.txt").read_text().splitlines()}
    assert wanted <= locked
    group = re.search(r"compat = \[(.*?)\];", (ROOT / "nix" / "groups.nix").read_text(), re.DOTALL)
    assert group is not None
    assert set(re.findall(r'"([^"]+)"', group[1])) == wanted
    assert "EXTRAS=local,compat" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("module", ["fastapi", "PIL", "dateutil", "websockets"])
def test_a_plugin_that_lacks_such_a_package_is_told_the_extra(module: str) -> None:
    error = f"ModuleNotFoundError: No module named '{module}.x'"
    remedy = remedy_for(error, PluginManifest("p", key="p"))
    assert "the extra `compat` adds" in remedy
    assert f"`{COMPAT_IMPORTS[module]}`" in remedy
    assert f"ps: [ ps.{COMPAT_IMPORTS[module]} ]" in remedy


def test_another_missing_package_is_named_without_the_extra(tmp_path: Path) -> None:
    folder = plugin(tmp_path / "p", "import no_such_package_of_anybody\n\ndef register(ctx): ...\n")
    with plugin_host(folder, strict=False) as host:
        assert "no_such_package_of_anybody" in host.record.remedy
        assert "compat" not in host.record.remedy
