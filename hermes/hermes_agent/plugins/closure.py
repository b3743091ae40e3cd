"""Conflict check for a set of Python packages: import names, versions, missing requirements.

The Nix build runs this file with a plain interpreter, before the environment is linked together. It therefore uses only
the standard library:

    python3 closure.py SPEC.json OUT.json

SPEC is `{"site": "lib/python3.13/site-packages", "roots": [store path, …]}`. The packages that a root requires are read
from its `nix-support/propagated-build-inputs`. OUT becomes `{name: {"version": …, "path": …}}`. A path that is reached
twice is one package: in this way plugins share a dependency with the agent.
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

_SHIPPED_APART = ("tkinter", "_tkinter", "idlelib", "turtle", "turtledemo")
"""Modules of the standard library that are separate packages in some builds of Python, for example in nixpkgs."""

_MAX_SHOWN = 1
"""Number of duplicate packages that are shown with their paths: `nix build` shows only ten lines."""
_HASH = re.compile(r"^[0-9a-z]{32}-")
_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^]]*\])?\s*\(?([^;@)]*)")
_VERSION = re.compile(
    r"v?(?:(\d+)!)?(\d+(?:\.\d+)*)(?:[-_.]?(a|b|c|rc|alpha|beta|pre|preview)[-_.]?(\d*))?"
    r"(?:[-_.]?(?:post|rev|r)[-_.]?(\d*)|-(\d+))?(?:[-_.]?dev[-_.]?(\d*))?(?:\+[a-z0-9._-]+)?"
)
_CLAUSE = re.compile(r"(===|~=|==|!=|<=|>=|<|>)\s*([^\s,*]+?)(\.\*)?$")


@dataclass(frozen=True)
class Package:
    """One distribution in one store path."""

    name: str
    """Canonical name, as returned by `canonical`."""
    version: str
    path: Path
    """Store path, without the site directory."""
    requires: Mapping[str, str]
    """Version ranges by canonical name of the requirement; only unconditional requirements, without markers and extras.
    """


@dataclass(frozen=True)
class Closure:
    """Every store path that the roots require, and the packages in it."""

    site: str
    """Package directory relative to a store path, such as `lib/python3.13/site-packages`."""
    chains: Mapping[Path, tuple[Path, ...]]
    """For each store path the chain that leads to it: a root first, the path itself last; shortest chains first."""
    packages: tuple[Package, ...]

    def wanted_by(self, path: Path) -> str:
        """Return the chain that requires `path`, such as `weather-1.0 -> leaf-2.0`."""
        return " -> ".join(_label(step) for step in self.chains[path])

    def is_root(self, path: Path) -> bool:
        return len(self.chains[path]) == 1


@dataclass(frozen=True)
class PackageConflict:
    """A reason why this set cannot be built: the problem with its paths, and a hint for its solution."""

    text: str
    hint: str


def canonical(name: str) -> str:
    """Return a distribution's name as package indexes compare it: "Leaf_Dep" becomes "leaf-dep"."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement(text: str) -> tuple[str, str]:
    """Return the canonical name and the version range of a requirement such as `httpx[http2]>=0.27,<1`.

    An empty range allows any version.
    """
    match = _REQUIREMENT.match(text)
    return (canonical(match[1]), match[2].strip()) if match else ("", "")


def satisfies(version: str, wanted: str) -> bool:
    """Return whether `version` is in the range `wanted` of PEP 440; an unreadable clause excludes nothing.

    A pre-release counts like any other version, because the set is given and there is no other candidate.
    """
    return all(_clause_holds(version, clause.strip()) for clause in wanted.split(",") if clause.strip())


def _clause_holds(version: str, clause: str) -> bool:
    match = _CLAUSE.match(clause)
    if match is None:
        return True
    sign, bound, prefix = match[1], match[2], bool(match[3])
    mine, theirs = _order(version), _order(bound)
    if sign == "===" or mine is None or theirs is None:
        return sign != "===" or version == bound
    length = len(_release(bound))
    starts = mine[0] == theirs[0] and _release(version, length) == _release(bound)
    plain = theirs[2] == _FINAL and theirs[3] < 0
    compatible = mine[0] == theirs[0] and _release(version, length - 1) == _release(bound)[:-1]
    return {
        "==": starts if prefix else mine == theirs,
        "!=": not (starts if prefix else mine == theirs),
        "~=": mine >= theirs and compatible,
        ">=": mine >= theirs,
        "<=": mine <= theirs,
        # `<` of a final release excludes its pre-releases, `>` its post-releases
        "<": mine < theirs and not (starts and mine[2] != _FINAL and plain),
        ">": mine > theirs and not (starts and mine[3] >= 0 and plain),
    }[sign]


_FINAL = (4, 0)


def _order(text: str) -> tuple[int, tuple[int, ...], tuple[int, int], int, float] | None:
    """Return the sort key of a version: epoch, release, stage (dev, a, b, rc, final), post, dev."""
    match = _VERSION.fullmatch(text.lower())
    if match is None:
        return None
    epoch, release, stage, number, post, post_too, dev = match.groups()
    parts = [int(part) for part in release.split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    after = -1 if post is None and post_too is None else int(post or post_too or 0)
    developed = float("inf") if dev is None else int(dev or 0)
    rank = (
        {"a": 1, "alpha": 1, "b": 2, "beta": 2}.get(stage, 3) if stage else (0 if dev is not None and after < 0 else 4)
    )
    return int(epoch or 0), tuple(parts), (rank, int(number or 0)), after, developed


def _release(text: str, length: int | None = None) -> tuple[int, ...]:
    match = _VERSION.fullmatch(text.lower())
    parts = [int(part) for part in match[2].split(".")] if match else []
    return tuple(parts if length is None else (parts + [0] * length)[:length])


def read_closure(site: str, roots: Iterable[Path]) -> Closure:
    """Follow the propagated inputs of `roots` and read the packages installed in each path."""
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


def find_problems(closure: Closure) -> list[PackageConflict]:
    """Return every reason to refuse `closure`, in a stable order; empty if there is none."""
    foreign = list(_wrong_interpreter(closure))
    if foreign:
        return foreign  # packages for another interpreter cannot be read, so no other check is meaningful
    duplicated, clashing = _duplicated(closure)
    return [
        *duplicated,
        *_import_names(closure, ignore=clashing),
        *_missing(closure),
        *_out_of_range(closure),
    ]


def main(argv: Sequence[str]) -> int:
    """Check `[SPEC, OUT]`; return 0 after writing OUT, or 1 with the problems on stderr."""
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
            requires = dict(map(requirement, filter(_is_unconditional, found.requires or [])))
            yield Package(canonical(name), found.version, path, requires)


def _is_unconditional(text: str) -> bool:
    # Evaluating a marker needs more than the standard library; the import check finds what such requirements lack.
    return ";" not in text and _REQUIREMENT.match(text) is not None


def _wrong_interpreter(closure: Closure) -> Iterator[PackageConflict]:
    ours = closure.site.split("/")[1]
    for path in closure.chains:
        theirs = sorted(site.parent.name for site in path.glob("lib/python3.*/site-packages") if site.is_dir())
        # An interpreter has a site directory of its own and every package requires it; it carries no package.
        if not theirs or ours in theirs or (path / "bin" / theirs[0]).exists():
            continue
        yield PackageConflict(
            f"a Python package was built for {', '.join(theirs)}, hermes-agent runs {ours}:\n"
            f"    {path}\n    wanted by {closure.wanted_by(path)}",
            "take it from the package set that `extraPythonPackages = ps: [ … ]` is given.",
        )


def _duplicated(closure: Closure) -> tuple[list[PackageConflict], set[Path]]:
    where: dict[str, dict[Path, Package]] = {}
    for package in closure.packages:
        where.setdefault(package.name, {})[package.path] = package
    twice = {name: found for name, found in where.items() if len(found) > 1}
    clashing = {path for found in twice.values() for path in found}
    # In two mixed sets nearly every package is a duplicate: show the nearest one and only name the rest.
    nearest = sorted(twice, key=lambda name: (max(len(closure.chains[path]) for path in twice[name]), name))
    problems: list[PackageConflict] = []
    for name in nearest[:_MAX_SHOWN]:
        lines = [
            f"    {package.version}  {path}\n        wanted by {closure.wanted_by(path)}"
            for path, package in twice[name].items()
        ]
        problems.append(
            PackageConflict(
                f"the Python package `{name}` is there {len(lines)} times:\n" + "\n".join(lines),
                "take all of them from one set, `extraPythonPackages = ps: [ … ]`, or drop what hermes-agent has.",
            )
        )
    if more := nearest[_MAX_SHOWN:]:
        last = problems.pop()
        problems.append(PackageConflict(f"{last.text}\n  and so are {_and(more)}", last.hint))
    return problems, clashing


def _import_names(closure: Closure, *, ignore: set[Path]) -> Iterator[PackageConflict]:
    owners: dict[str, list[Path]] = {}
    for path in closure.chains:
        for name in _importable(path / closure.site):
            owners.setdefault(name, []).append(path)
    for name, paths in sorted(owners.items()):
        if len(paths) > 1 and not ignore.issuperset(paths):
            lines = "\n".join(f"    {path}\n        wanted by {closure.wanted_by(path)}" for path in paths)
            yield PackageConflict(
                f"the import name `{name}` belongs to {len(paths)} packages:\n{lines}",
                "only one of them could be imported; drop one from extraPythonPackages, or rename its module.",
            )
        elif name in sys.stdlib_module_names and name not in _SHIPPED_APART:
            yield PackageConflict(
                f"the import name `{name}` is a module of the standard library:\n"
                f"    {paths[0]}\n        wanted by {closure.wanted_by(paths[0])}",
                "one of the two would hide the other; drop the package from extraPythonPackages.",
            )


def _importable(directory: Path, prefix: str = "") -> Iterator[str]:
    """Yield the importable names below `directory`; names in a namespace package are dotted."""
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


def _missing(closure: Closure) -> Iterator[PackageConflict]:
    there = {package.name for package in closure.packages}
    for package in closure.packages:
        lacking = sorted(package.requires.keys() - there)
        # The author of a root declares what it requires; a package of the set may rename a requirement.
        if lacking and closure.is_root(package.path):
            yield PackageConflict(
                f"the Python package `{package.name}` requires {_and(lacking)}, which no package provides:\n"
                f"    {package.version}  {package.path}",
                f"add {_and(lacking)} to its `dependencies`, or to services.hermes-agent.extraPythonPackages.",
            )


def _out_of_range(closure: Closure) -> Iterator[PackageConflict]:
    versions = {package.name: package for package in closure.packages}
    for package in closure.packages if len(versions) == len(closure.packages) else ():
        for name, wanted in sorted(package.requires.items()) if closure.is_root(package.path) else ():
            there = versions.get(name)
            # The agent is exempt: the version of its contract differs from the version of the package.
            if there is not None and name != "hermes-agent" and not satisfies(there.version, wanted):
                yield PackageConflict(
                    f"the Python package `{package.name}` requires `{name}` {wanted}, and {there.version} is there:\n"
                    f"    {package.version}  {package.path}\n    {there.version}  {there.path}",
                    "have both from a set in which they fit, or, if it works all the same, "
                    f'`pythonRelaxDeps = [ "{name}" ];` in {package.name}.',
                )


def _and(names: Sequence[str]) -> str:
    *some, last = (f"`{name}`" for name in names)
    return f"{', '.join(some)} and {last}" if some else last


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
