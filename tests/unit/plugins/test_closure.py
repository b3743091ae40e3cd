"""`hermes_agent.plugins.closure`: which sets of Python packages are refused, and in which words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from hermes_agent.plugins import closure
from hermes_agent.plugins.closure import satisfies

SITE = "lib/python3.11/site-packages"


def install(
    store: Path,
    name: str,
    version: str = "1.0",
    *,
    modules: dict[str, str] | None = None,
    requires: list[str] | None = None,
    wants: list[Path] | None = None,
    site: str = SITE,
) -> Path:
    """Lay out one store path as a Python package is laid out there."""
    path = store / f"{'0' * 32}-{name}-{version}"
    info = path / site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires or []]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    for file, text in (modules if modules is not None else {f"{name.replace('-', '_')}.py": ""}).items():
        (path / site / file).parent.mkdir(parents=True, exist_ok=True)
        (path / site / file).write_text(text)
    if wants:
        (path / "nix-support").mkdir()
        (path / "nix-support" / "propagated-build-inputs").write_text(" ".join(map(str, wants)) + "\n")
    return path


def problems(*roots: Path) -> list[closure.PackageConflict]:
    return closure.find_problems(closure.read_closure(SITE, roots))


def test_a_path_wanted_twice_is_one_package(tmp_path: Path) -> None:
    leaf = install(tmp_path, "leaf")
    core = install(tmp_path, "core", wants=[leaf])
    assert problems(core, install(tmp_path, "weather", wants=[leaf]), leaf) == []


def test_two_versions_of_one_package_are_refused_with_both_ways_there(tmp_path: Path) -> None:
    old = install(tmp_path, "leaf-dep", "1.0")
    new = install(tmp_path, "Leaf_Dep", "2.0", modules={"leaf_dep.py": ""})
    core = install(tmp_path, "core", wants=[old])
    weather = install(tmp_path, "weather", wants=[new])
    (problem,) = problems(core, weather)
    assert problem.text == (
        "the Python package `leaf-dep` is there 2 times:\n"
        f"    1.0  {old}\n        wanted by core-1.0 -> leaf-dep-1.0\n"
        f"    2.0  {new}\n        wanted by weather-1.0 -> Leaf_Dep-2.0"
    )
    assert problem.hint.startswith("take all of them from one set")


def test_two_packages_with_one_import_name_are_refused(tmp_path: Path) -> None:
    core = install(tmp_path, "core", modules={"core/__init__.py": ""})
    fork = install(tmp_path, "core-fork", modules={"core/__init__.py": ""})
    (problem,) = problems(core, fork)
    assert problem.text.startswith("the import name `core` belongs to 2 packages:\n")
    assert str(core) in problem.text and str(fork) in problem.text


def test_packages_may_share_a_namespace_but_not_a_module_in_it(tmp_path: Path) -> None:
    one = install(tmp_path, "one", modules={"space/one/__init__.py": ""})
    two = install(tmp_path, "two", modules={"space/two.py": ""})
    assert problems(one, two) == []
    (problem,) = problems(one, two, install(tmp_path, "three", modules={"space/two/__init__.py": ""}))
    assert problem.text.startswith("the import name `space.two` belongs to 2 packages:")


def test_a_module_of_the_standard_library_is_not_to_be_hidden(tmp_path: Path) -> None:
    (problem,) = problems(install(tmp_path, "enum34", modules={"enum/__init__.py": ""}))
    assert problem.text.startswith("the import name `enum` is a module of the standard library:")


def test_a_part_of_the_standard_library_may_be_a_package_of_its_own(tmp_path: Path) -> None:
    assert problems(install(tmp_path, "tkinter", modules={"tkinter/__init__.py": "", "_tkinter.py": ""})) == []


def test_a_package_of_another_interpreter_is_refused_wherever_it_comes_in(tmp_path: Path) -> None:
    leaf = install(tmp_path, "leaf", site="lib/python3.12/site-packages")
    (problem,) = problems(install(tmp_path, "weather", wants=[leaf]))
    assert problem.text == (
        "a Python package was built for python3.12, hermes-agent runs python3.11:\n"
        f"    {leaf}\n    wanted by weather-1.0 -> leaf-1.0"
    )


def test_an_interpreter_among_the_propagated_inputs_is_no_package(tmp_path: Path) -> None:
    python = tmp_path / f"{'0' * 32}-python3-3.12"
    (python / "lib/python3.12/site-packages").mkdir(parents=True)
    (python / "bin").mkdir()
    (python / "bin/python3.12").touch()
    assert problems(install(tmp_path, "weather", wants=[python])) == []


def test_a_closure_of_another_interpreter_is_told_apart_from_what_it_lacks(tmp_path: Path) -> None:
    foreign = install(tmp_path, "leaf", site="lib/python3.12/site-packages")
    (problem,) = problems(install(tmp_path, "weather", requires=["leaf"], wants=[foreign]))
    assert problem.text.startswith("a Python package was built for python3.12")


def test_a_requirement_that_nobody_brings_is_refused(tmp_path: Path) -> None:
    weather = install(
        tmp_path, "weather", requires=["Leaf_Dep>=1", "pywin32; sys_platform == 'win32'", "docs; extra == 'x'"]
    )
    (problem,) = problems(weather)
    assert problem.text == (
        f"the Python package `weather` requires `leaf-dep`, which no package provides:\n    1.0  {weather}"
    )
    assert problems(weather, install(tmp_path, "leaf-dep")) == []


def test_a_package_of_the_set_may_lack_what_its_metadata_names(tmp_path: Path) -> None:
    leaf = install(tmp_path, "leaf", requires=["renamed-by-the-set"])
    assert problems(install(tmp_path, "weather", wants=[leaf])) == []


def test_as_a_script_it_writes_what_it_found_or_says_why_not(tmp_path: Path) -> None:
    leaf = install(tmp_path, "leaf")
    spec, out = tmp_path / "spec.json", tmp_path / "out.json"
    script = [sys.executable, "-I", "-S", closure.__file__, str(spec), str(out)]

    spec.write_text(json.dumps({"site": SITE, "roots": [str(leaf)]}))
    assert subprocess.run(script, check=False, timeout=60).returncode == 0
    assert json.loads(out.read_text()) == {"leaf": {"version": "1.0", "path": str(leaf)}}

    out.unlink()
    enum = install(tmp_path, "enum34", modules={"enum/__init__.py": ""})
    spec.write_text(json.dumps({"site": SITE, "roots": [str(enum)]}))
    refused = subprocess.run(script, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: hermes-agent: the import name `enum`")
    assert not out.exists()


VERSIONS = [
    "0.9",
    "1.0",
    "1.0.0",
    "1.0.1",
    "1.1",
    "1.10",
    "1.0a1",
    "1.0rc2",
    "1.0.dev3",
    "1.0.post1",
    "2.0",
    "2!1.0",
    "0.66b2",
    "1.0+local",
]
RANGES = [
    "==1.0",
    ">=1.0",
    "<=1.0",
    "<1.0",
    ">1.0",
    "!=1.0",
    "~=1.0",
    "~=1.0.0",
    "==1.*",
    "!=1.0.*",
    ">=0.66b0",
    "<2,>=1",
    "===1.0",
    "<1.0rc3",
    "<1.0.post2",
    ">1.0a0",
]


@pytest.mark.parametrize("wanted", RANGES)
def test_a_version_is_in_a_range_when_the_standard_says_so_and_a_prerelease_counts(wanted: str) -> None:
    range_ = SpecifierSet(wanted, prereleases=True)
    assert {v: satisfies(v, wanted) for v in VERSIONS} == {v: range_.contains(v) for v in VERSIONS}


def test_a_version_outside_of_the_range_that_a_plugin_wants_is_refused_with_both(tmp_path: Path) -> None:
    leaf = install(tmp_path, "leaf", requires=[])
    (problem,) = problems(install(tmp_path, "weather", requires=["leaf[fast]>=2"], wants=[leaf]))
    assert problem.text.startswith("the Python package `weather` requires `leaf` >=2, and 1.0 is there:")
    assert "pythonRelaxDeps" in problem.hint
    assert problems(install(tmp_path / "other", "weather", requires=["leaf>=1.0b1"], wants=[leaf])) == []
