"""Real Nix for the tests: no nixpkgs, no network, the host's own Python as the package set."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from peers.fixture import scripted

__all__ = ["scripted"]

REPOSITORY = Path(__file__).parents[2]
STAND_IN = REPOSITORY / "tests" / "nix" / "nixpkgs"

collect_ignore_glob = ["plugins/*"]
"""Tests of plugins that are fixtures here: `buildHermesPlugin` runs them."""

NOISE = re.compile(
    r"building '|these \d+ derivations will be built|this derivation will be built|  /\S+\.drv$|copying path "
    r"|warning: error: SQLite database '"
    r"|warning: you did not specify '--add-root'|waiting for |error \(ignored\)|\(use '--show-trace'|trace: "
    r"|warning: hermes-agent: services\.hermes-agent\.settings: no model is configured"  # of a check beside it
    r"|hermes-agent \d+\.\d+\.\d+$"  # of the library, when it is built first
)
DEPENDENT = re.compile(
    r"(?m)^error: \d+ dependencies of derivation '.*' failed to build\n(?=error: \d+ dependencies of )"
)


@dataclass(frozen=True)
class Built:
    """How one command of Nix ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def path(self) -> Path:
        """The store path that was built last."""
        assert self.status == 0, self.stderr
        return Path(self.stdout.split()[-1])


@dataclass(frozen=True)
class Nix:
    """The commands that the tests use, in `tree`."""

    tree: Path
    environment: dict[str, str]
    options: tuple[str, ...]
    site: str
    """The site directory that stands in for a Python package set."""
    done: dict[tuple[str, ...], Built] = field(default_factory=dict)
    """What was built or evaluated in this tree: it comes to the same again."""

    def build(self, attribute: str, *arguments: str) -> Built:
        command = ("nix-build", "tests/nix", "--no-out-link", "-A", attribute, *self._site(), *arguments)
        return self._run(*command) if "--check" in arguments else self._once(*command)

    def derivation(self, attribute: str, *arguments: str) -> str:
        """Return the path of the derivation: it changes when anything that goes into the build does."""
        done = self._run("nix-instantiate", "tests/nix", "-A", attribute, *self._site(), *arguments)
        assert done.status == 0, done.stderr
        return done.stdout.strip()

    def evaluate(self, attribute: str) -> Any:
        done = self._once(
            "nix-instantiate",
            "--eval",
            "--read-write-mode",
            "--strict",
            "--json",
            "tests/nix",
            "-A",
            attribute,
            *self._site(),
        )
        assert done.status == 0, done.stderr
        return json.loads(done.stdout)

    def parse(self, *files: Path) -> Built:
        return self._run("nix-instantiate", "--parse", *map(str, files))

    def flake(self, *arguments: str, offline_nixpkgs: Path | None = None) -> Built:
        """Run `nix` with flakes; `offline_nixpkgs` takes the place of the one input."""
        override = ("--override-input", "nixpkgs", f"path:{offline_nixpkgs}", "--no-write-lock-file")
        features = ("--extra-experimental-features", "nix-command flakes", "--offline")
        # What comes after `--` is the program's.
        end = arguments.index("--") if "--" in arguments else len(arguments)
        inputs = override if offline_nixpkgs else ()
        return self._run("nix", *features, *arguments[:end], *inputs, *arguments[end:])

    def shown(self, built: Built) -> str:
        """Return what a user reads on stderr: no progress, no excerpts of ours, hashes, versions, lists by name.

        Of the derivations that depend on what failed the last one is kept: Nix names any of several first.
        """
        text = re.split(r"\n\n? +at (?:/\S+|«\S+):\d+:\d+", built.stderr)[0]
        text = "\n".join(line for line in text.splitlines() if not NOISE.match(line)).strip("\n")
        text = DEPENDENT.sub("", text)
        text = re.sub(rf"{self._store()}/[0-9a-z]{{32}}-", "/nix/store/<hash>-", text)
        version = "{}.{}".format(*sys.version_info)
        text = text.replace(f"ython{version}", "ython<version>").replace(f"ython {version}", "ython <version>")
        text = text.replace(f"python3-{version}", "python3-<version>").replace(str(self.tree), "<tree>")
        text = re.sub(r"there are acp, [^.]+\.", "there are <groups>.", text)
        return re.sub(r"hermes-agent-((?:unchecked-)?)\d+\.\d+\.\d+", r"hermes-agent-\1<version>", text) + "\n"

    def in_tree(self, tree: Path) -> Nix:
        return Nix(tree, self.environment, self.options, self.site)

    def _store(self) -> str:
        return self.environment.get("NIX_STORE_DIR", "/nix/store")

    def _site(self) -> tuple[str, ...]:
        return ("--argstr", "hostSite", self.site)

    def _once(self, *command: str) -> Built:
        if command not in self.done:
            self.done[command] = self._run(*command)
        return self.done[command]

    def _run(self, *command: str) -> Built:
        program, *arguments = command
        done = subprocess.run(
            [program, *(self.options if "--parse" not in command else ()), *arguments],
            cwd=self.tree,
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        return Built(done.returncode, done.stdout, done.stderr)


def private_store(root: Path) -> dict[str, str]:
    """Return the variables for a store of one's own, for people who are not root and have no daemon."""
    parts = {"STORE": "store", "STATE": "var/nix", "LOG": "var/log/nix", "CONF": "etc/nix"}
    return {f"NIX_{name}_DIR": str(root / directory) for name, directory in parts.items()}


@pytest.fixture(scope="session")
def nix() -> Nix:
    """Real Nix in this repository; the test is skipped where there is none."""
    if shutil.which("nix-build") is None:
        pytest.skip("nix-build is not installed (Debian: apt-get install nix-bin)")
    # Builders read the site directory, which may lie in a home: they run as whoever runs the tests.
    options = ["--option", "substitute", "false", "--option", "sandbox", "false", "--option", "build-users-group", ""]
    own = os.getuid() == 0 or os.access("/nix/var/nix/db", os.W_OK)
    environment = {} if own else private_store(REPOSITORY / ".cache" / "nix")
    return Nix(REPOSITORY, environment, tuple(options), sysconfig.get_path("purelib"))


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a clone has: no virtual environment, no caches, no version control."""
    copy = tmp_path_factory.mktemp("clone")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (REPOSITORY / name).is_file() or (REPOSITORY / name).is_symlink():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, copy / name, follow_symlinks=False)
    return copy


@pytest.fixture(scope="session")
def nixpkgs(nix: Nix, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in for nixpkgs as a flake, with a description of this machine."""
    copy = tmp_path_factory.mktemp("nixpkgs") / "nixpkgs"
    shutil.copytree(STAND_IN, copy, ignore=shutil.ignore_patterns("__pycache__"))
    describe = [sys.executable, str(STAND_IN / "host.py"), sys.executable, nix.site]
    with (copy / "host.json").open("w") as file:
        subprocess.run(describe, stdout=file, check=True, timeout=60)
    return copy
