"""Can the embedded model answer here, with the memory and the disk that there are, and if not, what would help."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_agent.core.errors import EXIT_USAGE, UserError
from hermes_agent.io.installation import install_hint
from hermes_agent.models.embedded.progress import format_bytes
from hermes_agent.models.embedded.weights import DEFAULT, PINS, find_pin, installed_weights, weights_path

__all__ = [
    "LocalModelAvailability",
    "MachineMemory",
    "RUNTIME",
    "check_availability",
    "free_disk",
    "read_memory",
    "missing_model_error",
]

CGROUP_LIMITS = ("memory.max", "memory.high")


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """Bytes; the smaller of what the machine and what the control group of this process has."""

    total: int
    available: int


def read_memory(
    meminfo: Path = Path("/proc/meminfo"), cgroup_root: Path = Path("/sys/fs/cgroup")
) -> MachineMemory | None:
    """Return the memory that this process may count on; None when the system does not say."""
    try:
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        total = int(fields["MemTotal"].split()[0]) * 1024
        available = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    limit, used = _cgroup(cgroup_root)
    if limit is not None and limit < total:
        return MachineMemory(limit, min(available, max(0, limit - used)))
    return MachineMemory(total, available)


def _cgroup(root: Path, membership: Path = Path("/proc/self/cgroup")) -> tuple[int | None, int]:
    """Return the smallest limit on the way up from our control group (v2), and what that group uses."""
    try:
        relative = next(line[3:] for line in membership.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return None, 0
    best: tuple[int | None, int] = (None, 0)
    group = root / relative.lstrip("/")
    while group.is_relative_to(root):
        for name in CGROUP_LIMITS:
            limit = _number(group / name)
            if limit is not None and (best[0] is None or limit < best[0]):
                best = (limit, _number(group / "memory.current") or 0)
        if group == root:
            break
        group = group.parent
    return best


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None


def free_disk(path: Path) -> int:
    """Return the free bytes where `path` is, or would be made."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


RUNTIME = "xllamacpp"
"""The module that runs the weights; it comes with the extra `local`."""
OWN_OVERHEAD = 700_000_000
"""Bytes beside the weights that a file of the user's own is thought to take."""


@dataclass(frozen=True, slots=True)
class LocalModelAvailability:
    """What there is of the embedded model."""

    model: str
    """Its name: of the pinned weights, or the file's name without `.gguf`."""
    path: Path
    """Where the weights are, or would be."""
    weights: bool
    """They are there."""
    own_file: bool
    """`model.local.path` names the file."""
    runtime: bool
    """The extra `local` is installed. It is looked for, not imported."""
    memory_needed: int
    """Bytes."""
    memory: MachineMemory | None
    """None when the system does not say."""

    @property
    def has_enough_memory(self) -> bool:
        """The machine has the memory, whether or not it is free now."""
        return self.memory is None or self.memory.total >= self.memory_needed

    @property
    def is_usable(self) -> bool:
        """It can be started."""
        return self.weights and self.runtime and self.has_enough_memory


def check_availability(
    local: Mapping[str, Any] | None = None, model: str = "", *, environ: Mapping[str, str] | None = None
) -> LocalModelAvailability:
    """Look what is there; nothing is loaded.

    Args:
        local: the block `model.local` of the configuration; only `path` is read.
        model: name of pinned weights; empty (or an unknown name) takes the first that were pulled, else the default.
    """
    env = os.environ if environ is None else environ
    runtime = importlib.util.find_spec(RUNTIME) is not None
    if own := str((local or {}).get("path") or ""):
        path = Path(own).expanduser()
        there = path.is_file()
        needed = (path.stat().st_size if there else 0) + OWN_OVERHEAD
        return LocalModelAvailability(path.stem, path, there, True, runtime, needed, read_memory())
    there_are = installed_weights(env)
    weights = find_pin(model) if model in PINS else (there_are[0] if there_are else find_pin(DEFAULT))
    return LocalModelAvailability(
        model=weights.name,
        path=weights_path(weights, env),
        weights=weights in there_are,
        own_file=False,
        runtime=runtime,
        memory_needed=weights.memory,
        memory=read_memory(),
    )


def missing_model_error(there: LocalModelAvailability, *, wanted: str = "") -> UserError:
    """Return the error, ready to be raised, that lists every way to a model from where this machine is.

    Args:
        wanted: the model that was named, which no provider that is set up can have; empty when none was.
    """
    what = (
        f"The model {wanted!r} is named, but no provider that could have it is set up."
        if wanted
        else "There is no model."
    )
    ways = [
        "A provider with a key:\n     hermes config set model.provider openrouter\n"
        "     hermes config set model.default NAME\n"
        "     and OPENROUTER_API_KEY=… in the environment, a credential or $HERMES_HOME/.env",
        "A server of your own (Ollama, llama.cpp, vLLM):\n"
        "     hermes config set model.base_url http://127.0.0.1:11434/v1\n     hermes config set model.default NAME",
        f"The embedded model, on this machine and without a key{_ways_for_local_model(there)}",
    ]
    hint = "Ways to get one:\n" + "\n".join(f"  {n}. {way}" for n, way in enumerate(ways, 1))
    on_nix = (
        "\nOn NixOS set `services.hermes-agent.settings.model` (a key goes into `credentials`); the embedded model "
        "takes `settings.model.local.path` and the runtime in `extraPythonPackages`."
    )
    return UserError(what, hint=hint + on_nix, exit_status=EXIT_USAGE)


def _ways_for_local_model(there: LocalModelAvailability) -> str:
    if there.is_usable:
        return ": it is there; choose it with\n     hermes config set model.provider local"
    lines = []
    if not there.runtime:
        lines.append(install_hint("local").strip("`"))
    if not there.weights:
        if there.own_file:
            lines.append(f"model.local.path is {str(there.path)!r}, where no file is: put it there or correct the path")
        else:
            weights = PINS[there.model]
            lines.append(f"hermes model pull        ({format_bytes(weights.size)} to {there.path.parent})")
    if not there.has_enough_memory:
        assert there.memory is not None
        lines.append(
            f"it takes {format_bytes(there.memory_needed)} of memory and this machine gives {format_bytes(there.memory.total)}: "
            "`hermes model list` has smaller ones"
        )
    return ":" + "".join(f"\n     {line}" for line in lines)
