"""Five published plugins, packed one store path for each distribution: they build together, and true collisions do not.

Fetched once, pinned and by hash, into `.cache/compat`; without a package index the tests are skipped. They take two
minutes the first time: `make test-nix` runs them.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from compat.corpus.install import CannotInstall, installed
from compat.corpus.lists import plugins
from nix.nixpkgs.host import describe

pytestmark = [pytest.mark.nix, pytest.mark.xdist_group("corpus"), pytest.mark.timeout(900)]

HERE = Path(__file__).parent
PLUGINS = ("agentguard-spend-hermes", "agento11y-hermes", "atbash-hermes-plugin", "hermes-band", "hermes-ssh")
SHARED = ("httpx", "pyyaml", "opentelemetry-api", "opentelemetry-sdk", "cryptography")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The arguments of Nix that bring the plugins."""
    if not os.environ.get("HERMES_NIX_FULL"):
        pytest.skip("run by `make test-nix` (HERMES_NIX_FULL=1)")
    sites = []
    for plugin in (p for p in plugins(PLUGINS) if p.name in PLUGINS):
        try:
            site = str(installed(plugin))
        except CannotInstall as error:
            pytest.skip(f"{plugin.name} could not be fetched: {error}")
        sites.append({"name": plugin.name, "site": site, "distributions": describe(site)})
    assert [site["name"] for site in sites] == sorted(PLUGINS)
    file = tmp_path_factory.mktemp("corpus") / "sites.json"
    file.write_text(json.dumps(sites))
    return ("--argstr", "corpusFile", str(file))


def test_five_published_plugins_build_together_and_share_what_they_have_in_common(nix, corpus) -> None:
    package = nix.build("corpus.together.package", *corpus).path
    report = json.loads((package / "nix-support" / "plugins.json").read_text())
    assert {p["source"] for p in report["plugins"]} == {"entrypoint"}
    assert len(report["plugins"]) >= len(PLUGINS) and report["errors"] == report["conflicts"] == []
    closure = json.loads(nix.build("corpus.together.package.closureCheck", *corpus).path.read_text())
    assert set(SHARED) | set(PLUGINS) <= set(closure)
    assert nix.build("corpus.together.toplevel", *corpus).status == 0


@pytest.mark.parametrize("name", sorted(p.stem for p in (HERE / "refused-corpus").glob("*.expected")))
def test_a_true_collision_among_them_is_refused_with_both_owners(name: str, nix, corpus) -> None:
    refused = nix.build(f"corpus.refused.{name}", *corpus)
    assert refused.status != 0
    # Some of them say something themselves while they are loaded.
    text = nix.shown(refused).split("error: builder for")[0]
    text = text[text.index("error: hermes-agent: ") :]
    # How many more they share depends on what the package index has today.
    text = re.sub(r"(?<=and so are )`.*`", "<packages>", text)
    expected = HERE / "refused-corpus" / f"{name}.expected"
    if os.environ.get("UPDATE_EXPECTED"):
        expected.write_text(text)
    assert text == expected.read_text()
