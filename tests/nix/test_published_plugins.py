"""nix/plugins: published plugins as packages, their data, and the page about them.

The wheels come from the package index, which the hashes make one thing with the data; without an index the tests that
need them are skipped. `make test-nix` builds the agent with each of them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from compat.corpus.install import CannotInstall, installed
from compat.corpus.lists import plugins
from nix.nixpkgs.host import describe

pytestmark = [pytest.mark.nix, pytest.mark.xdist_group("corpus")]

ROOT = Path(__file__).parents[2]
SET = ROOT / "nix" / "plugins"
DATA = {
    "plugins": json.loads((SET / "plugins.json").read_text()),
    "libraries": json.loads((ROOT / "nix" / "python" / "packages.json").read_text()),
}
NIXPKGS = json.loads((SET / "nixpkgs.json").read_text())
TOGETHER = json.loads((SET / "together.json").read_text())
PAGE = ROOT / "docs" / "nixos" / "published-plugins.md"
WHEELS = ROOT / ".cache" / "compat" / "wheels"
FEW = ("agentguard-hermes-plugin", "fabricium", "jovaltus", "memorylake-hermes")
"""One of each kind, and a library, none of them with packages that the agent does not have."""
FULL = pytest.mark.skipif(not os.environ.get("HERMES_NIX_FULL"), reason="run by `make test-nix` (HERMES_NIX_FULL=1)")


def entries() -> dict[str, dict[str, Any]]:
    return {**DATA["plugins"], **DATA["libraries"]}


def command(name: str) -> ModuleType:
    """Load a script of nix/plugins as a module."""
    loader = SourceFileLoader(f"published_{name}", str(SET / name))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module
    write, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = write
    return module


def download(names: tuple[str, ...]) -> None:
    """Bring the wheels of this machine into the cache; Nix compares their hashes."""
    files = {name: entry["wheels"].get("any", entry["wheels"].get("x86_64-linux")) for name, entry in entries().items()}
    wanted = [name for name in names if files[name] and not (WHEELS / files[name]["file"]).exists()]
    if not wanted:
        return
    specs = [f"{name}=={entries()[name]['version']}" for name in wanted]
    options = ["--quiet", "--no-deps", "--ignore-requires-python", "--only-binary=:all:", "--dest", str(WHEELS)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, *specs],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"the wheels could not be fetched: {done.stderr.strip().splitlines()[-1]}")


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The arguments of Nix that bring the wheels of a few plugins."""
    download(FEW)
    file = tmp_path_factory.mktemp("published") / "published.json"
    file.write_text(json.dumps({"files": str(WHEELS), "sites": []}))
    return ("--argstr", "publishedFile", str(file))


@pytest.fixture(scope="module")
def all_of_them(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The same for all, with everything that they import."""
    download(tuple(entries()))
    sites = []
    for plugin in (p for p in plugins() if p.name in DATA["plugins"]):
        try:
            site = str(installed(plugin))
        except CannotInstall as error:
            pytest.skip(f"{plugin.name} could not be fetched: {error}")
        sites.append({"name": plugin.name, "site": site, "distributions": describe(site)})
    file = tmp_path_factory.mktemp("published") / "published.json"
    file.write_text(json.dumps({"files": str(WHEELS), "sites": sites}))
    return ("--argstr", "publishedFile", str(file))


def test_the_set_has_every_plugin_of_the_open_corpus_with_versions_and_hashes() -> None:
    listed = dict(line.split("==") for line in (ROOT / "tests/data/corpus/open.txt").read_text().split())
    assert {name: DATA["plugins"][name]["version"] for name in listed} == listed
    for name, entry in entries().items():
        for wheel in entry["wheels"].values():
            assert re.fullmatch(r"sha256-[A-Za-z0-9+/]{43}=", wheel["hash"]), name
            assert wheel["file"].split("-")[1] == entry["version"], name


def test_every_dependency_is_a_package_of_nixpkgs_or_of_the_set() -> None:
    known = set(NIXPKGS.values()) | set(DATA["libraries"])
    wanted = {other for entry in entries().values() for other in entry["dependencies"]}
    assert len(wanted) > 50 and wanted <= known


def test_a_host_takes_published_plugins_of_each_kind_by_name(nix, few) -> None:
    package = nix.build("publishedHost.package", *few).path
    report = json.loads((package / "nix-support" / "plugins.json").read_text())
    found = {plugin["key"]: plugin["source"] for plugin in report["plugins"]}
    assert found == {"agentguard": "declared", "jovaltus": "entrypoint", "memorylake": "declared"}
    closure = json.loads(nix.build("publishedHost.package.closureCheck", *few).path.read_text())
    assert closure["fabricium"]["version"] == DATA["libraries"]["fabricium"]["version"]
    assert nix.build("publishedHost.toplevel", *few).status == 0


def test_a_file_that_is_not_the_one_of_the_data_is_refused(nix, few, tmp_path: Path) -> None:
    file = DATA["plugins"]["memorylake-hermes"]["wheels"]["any"]["file"]
    (tmp_path / file).write_bytes((WHEELS / file).read_bytes() + b"\n")
    other = tmp_path / "published.json"
    other.write_text(json.dumps({"files": str(tmp_path), "sites": []}))
    store = {"NIX_STORE_DIR": str(tmp_path / "store"), "NIX_STATE_DIR": str(tmp_path / "var")}
    environment = {**nix.environment, **store, "NIX_LOG_DIR": str(tmp_path / "log")}
    own = type(nix)(nix.tree, environment, nix.options, nix.site)
    refused = own.build("hermesPlugins.memorylake-hermes", "--argstr", "publishedFile", str(other))
    assert refused.status != 0 and "hash mismatch in fixed-output derivation" in refused.stderr


def test_a_missing_dependency_is_refused_with_its_name(nix, few) -> None:
    refused = nix.build("hermesPlugins.atomicmemory-hermes.tests.agent", *few)
    assert refused.status != 0
    assert "the package `atomicmemory` needs the Python package `numpy`, which the package set" in refused.stderr


def test_the_largest_set_without_a_conflict_is_found() -> None:
    table = command("table")
    tools = {"one": ["a"], "two": ["a", "b"], "three": ["b"], "alone": ["c"]}
    reports = {name: [{"key": name, "tools": names}] for name, names in tools.items()}
    against = table.conflicts(reports)
    assert against == {"one": {"two"}, "two": {"one", "three"}, "three": {"two"}, "alone": set()}
    assert table.largest(against) == ["alone", "one", "three"]


def test_the_page_has_a_row_for_each_plugin_in_the_version_of_the_set() -> None:
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)` \| ([^ |]+) \|", PAGE.read_text(), re.MULTILINE))
    assert rows == {name: entry["version"] for name, entry in DATA["plugins"].items()}
    assert f"{len(TOGETHER)} of these " in PAGE.read_text()


def test_what_the_index_says_of_a_plugin_becomes_its_entry(tmp_path: Path, few) -> None:
    """`jovaltus` with its library: the same as in the set, from an empty file."""
    version, library = DATA["plugins"]["jovaltus"]["version"], DATA["libraries"]["fabricium"]["version"]
    run = [sys.executable, str(SET / "update"), "--to", str(tmp_path), f"jovaltus=={version}"]
    undecided = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False, env=without_nix())
    assert undecided.returncode == 1
    assert "nobody knows whether nixpkgs has `fabricium`" in undecided.stderr
    run += ["--as-library", f"fabricium=={library}"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "plugins" / "plugins.json").read_text())
    assert written == {"jovaltus": DATA["plugins"]["jovaltus"]}
    written = json.loads((tmp_path / "python" / "packages.json").read_text())
    assert written == {"fabricium": DATA["libraries"]["fabricium"]}


def without_nix() -> dict[str, str]:
    return os.environ | {"NIX_PATH": ""}


@FULL
@pytest.mark.timeout(3600)
def test_the_agent_loads_each_plugin_and_the_largest_set_and_the_page_says_what_they_register(
    nix, all_of_them, tmp_path: Path
) -> None:
    """The command that writes the page comes to what the repository has."""
    arguments = [
        "--file",
        "tests/nix",
        "--page",
        str(tmp_path / "page.md"),
        "--together",
        str(tmp_path / "together.json"),
    ]
    site = ("--argstr", "hostSite", nix.site)
    done = subprocess.run(
        [sys.executable, str(SET / "table"), *arguments, "--", *all_of_them, *site, *nix.options],
        cwd=nix.tree,
        env=os.environ | nix.environment,
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if os.environ.get("UPDATE_EXPECTED"):
        PAGE.write_text((tmp_path / "page.md").read_text())
        (SET / "together.json").write_text((tmp_path / "together.json").read_text())
    assert (tmp_path / "together.json").read_text() == (SET / "together.json").read_text()
    assert (tmp_path / "page.md").read_text() == PAGE.read_text()
