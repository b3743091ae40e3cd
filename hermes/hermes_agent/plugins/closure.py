"""Refuse a set of Python packages in which two of them fight for one name, or one is missing.

The Nix build runs this file with a plain interpreter, before the environment is linked together, so it
uses the standard library alone:

    python3 closure.py SPEC.json OUT.json

SPEC is `{"site": "lib/python3.13/site-packages", "roots": [store path, …]}`. The packages that a root wants are
read from its `nix-support/propagated-build-inputs`. OUT becomes `{name: {"version": …, "path": …}}`.
A path that is reached twice is one package: that is how plugins share a dependency with the agent.
"""

from __future__ import annotations

import json
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import distributions
from pathlib import Path

__all__ = ["Closure", "Package", "Problem", "canonical", "find_problems", "main", "read_closure"]

_SHIPPED_APART = ("tkinter", "_tkinter", "idlelib", "turtle", "turtledemo")
"""Of the standard library, but packages of their own in some builds of Python, nixpkgs' among them."""

_HASH = re.compile(r"^[0-9a-z]{32}-")
_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


@dataclass(frozen=True)
class Package:
    """One distribution in one store path."""

    name: str
    """Canonical name, as `canonical` makes it."""
    version: str
    path: Path
    """Store path, without the site directory."""
    requires: tuple[str, ...]
    """Canonical names of the requirements that hold on every platform and for no extra."""


@dataclass(frozen=True)
class Closure:
    """Every store path that the roots want, and what lies in it."""

    site: str
    """Where packages lie below a store path, such as `lib/python3.13/site-packages`."""
    chains: Mapping[Path, tuple[Path, ...]]
    """Store path to the way there: a root first, the path itself last; nearest paths first."""
    packages: tuple[Package, ...]

    def wanted_by(self, path: Path) -> str:
        """Say how `path` came in, as `weather-1.0 -> leaf-2.0`."""
        return " -> ".join(_label(step) for step in self.chains[path])

    def is_root(self, path: Path) -> bool:
        return len(self.chains[path]) == 1


@dataclass(frozen=True)
class Problem:
    """Why this set cannot be built: what is wrong, with the paths, and what to do."""

    text: str
    hint: str


def canonical(name: str) -> str:
    """Normalise a distribution's name as package indexes compare them: `Leaf_Dep` is `leaf-dep`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_closure(site: str, roots: Iterable[Path]) -> Closure:
    """Follow the propagated inputs of `roots` and read what is installed in each path."""
    chains: dict[Path, tuple[Path, ...]] = {}
    waiting: deque[tuple[Path, tuple[Path, ...]]] = deque((root, (root,)) for root in roots)
    while waiting:
        path, chain = waiting.popleft()
        if path in chains:
            continue
        chains[path] = chain
        waiting.extend((wanted, (*chain, wanted)) for wanted in _propagated(path))
    packages = [package for path in chains for package in _packages(path, site)]
    return Closure(site, chains, tuple(packages))


def find_problems(closure: Closure) -> list[Problem]:
    """Return every reason to refuse `closure`, in a stable order; empty when there is none."""
    foreign = list(_wrong_interpreter(closure))
    if foreign:
        return foreign  # their packages are out of sight, so that nothing else can be told
    duplicated, clashing = _duplicated(closure)
    return [
        *duplicated,
        *_import_names(closure, ignore=clashing),
        *_missing(closure),
    ]


def main(argv: Sequence[str]) -> int:
    """Run the check on `[SPEC, OUT]`; 0 and OUT written, or 1 and the problems on stderr."""
    spec_file, out_file = argv
    spec = json.loads(Path(spec_file).read_text(encoding="utf-8"))
    closure = read_closure(spec["site"], [Path(root) for root in spec["roots"]])
    problems = find_problems(closure)
    for problem in problems:
        print(f"error: hermes-agent: {problem.text}\nhint: {problem.hint}", file=sys.stderr)
    if problems:
        return 1
    found = {p.name: {"version": p.version, "path": str(p.path)} for p in closure.packages}
    Path(out_file).write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


def _label(path: Path) -> str:
    return _HASH.sub("", path.name)


def _propagated(path: Path) -> list[Path]:
    listed = path / "nix-support" / "propagated-build-inputs"
    return [Path(word) for word in listed.read_text(encoding="utf-8").split()] if listed.is_file() else []


def _packages(path: Path, site: str) -> Iterator[Package]:
    for found in distributions(path=[str(path / site)]):
        name = found.metadata["Name"]
        if name:
            requires = tuple(_unconditional(found.requires or []))
            yield Package(canonical(name), found.version, path, requires)


def _unconditional(requirements: Iterable[str]) -> Iterator[str]:
    # A marker needs an evaluator, which the standard library lacks; the import check sees what those bring.
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match and ";" not in requirement:
            yield canonical(match[1])


def _wrong_interpreter(closure: Closure) -> Iterator[Problem]:
    ours = closure.site.split("/")[1]
    for path in closure.chains:
        theirs = sorted(site.parent.name for site in path.glob("lib/python3.*/site-packages") if site.is_dir())
        # An interpreter has a site directory of its own and is wanted by every package; it carries no package.
        if not theirs or ours in theirs or (path / "bin" / theirs[0]).exists():
            continue
        yield Problem(
            f"a Python package was built for {', '.join(theirs)}, hermes-agent runs {ours}:\n"
            f"    {path}\n    wanted by {closure.wanted_by(path)}",
            "take it from the package set that `extraPythonPackages = ps: [ … ]` is given.",
        )


def _duplicated(closure: Closure) -> tuple[list[Problem], set[Path]]:
    where: dict[str, dict[Path, Package]] = {}
    for package in closure.packages:
        where.setdefault(package.name, {})[package.path] = package
    problems: list[Problem] = []
    clashing: set[Path] = set()
    for name, found in sorted(where.items()):
        if len(found) < 2:
            continue
        clashing.update(found)
        lines = [
            f"    {package.version}  {path}\n        wanted by {closure.wanted_by(path)}"
            for path, package in found.items()
        ]
        problems.append(
            Problem(
                f"the Python package `{name}` is there {len(found)} times:\n" + "\n".join(lines),
                "take all of them from one set, `extraPythonPackages = ps: [ … ]`, or drop what hermes-agent has.",
            )
        )
    return problems, clashing


def _import_names(closure: Closure, *, ignore: set[Path]) -> Iterator[Problem]:
    owners: dict[str, list[Path]] = {}
    for path in closure.chains:
        for name in _importable(path / closure.site):
            owners.setdefault(name, []).append(path)
    for name, paths in sorted(owners.items()):
        if len(paths) > 1 and not ignore.issuperset(paths):
            lines = "\n".join(f"    {path}\n        wanted by {closure.wanted_by(path)}" for path in paths)
            yield Problem(
                f"the import name `{name}` belongs to {len(paths)} packages:\n{lines}",
                "only one of them could be imported; drop one from extraPythonPackages, or rename its module.",
            )
        elif name in sys.stdlib_module_names and name not in _SHIPPED_APART:
            yield Problem(
                f"the import name `{name}` is a module of the standard library:\n"
                f"    {paths[0]}\n        wanted by {closure.wanted_by(paths[0])}",
                "one of the two would hide the other; drop the package from extraPythonPackages.",
            )


def _importable(directory: Path, prefix: str = "") -> Iterator[str]:
    """Yield the names to import below `directory`; those of a namespace package are dotted."""
    for entry in sorted(directory.iterdir()) if directory.is_dir() else []:
        name = _module_name(entry)
        if not name.isidentifier() or name == "__pycache__":
            continue
        if entry.is_dir() and not any((entry / f"__init__{s}").exists() for s in (".py", *EXTENSION_SUFFIXES)):
            yield from _importable(entry, f"{prefix}{name}.")
        else:
            yield prefix + name


def _module_name(entry: Path) -> str:
    if entry.is_dir():
        return entry.name
    for suffix in (".py", *EXTENSION_SUFFIXES):
        if entry.name.endswith(suffix):
            return entry.name.removesuffix(suffix)
    return ""


def _missing(closure: Closure) -> Iterator[Problem]:
    there = {package.name for package in closure.packages}
    for package in closure.packages:
        lacking = sorted(set(package.requires) - there)
        # What a root wants is its author's to declare; a package of the set may rename what it wants.
        if lacking and closure.is_root(package.path):
            yield Problem(
                f"the Python package `{package.name}` requires {_and(lacking)}, which nobody brings:\n"
                f"    {package.version}  {package.path}",
                f"add {_and(lacking)} to its `dependencies`, or to services.hermes-agent.extraPythonPackages.",
            )


def _and(names: Sequence[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
