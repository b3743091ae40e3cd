"""Whether the embedded model can answer on this machine, and what is missing if it cannot."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_agent.contracts.kind import install_hint
from hermes_agent.contracts.model_client import ModelCheck, SetupHint

from .gguf import GgufError, GgufMetadata, SystemPlace, read_metadata
from .weights import DEFAULT, PINS, find_pin, format_bytes, installed_weights, weights_path

CGROUP_LIMITS = ("memory.max", "memory.high")


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """Memory in bytes: the smaller of the machine's and of the limit of this process's control group."""

    total: int
    available: int


def read_memory(
    meminfo: Path = Path("/proc/meminfo"), cgroup_root: Path = Path("/sys/fs/cgroup")
) -> MachineMemory | None:
    """Return the memory that this process can use, or None if the system does not report it."""
    try:
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        total = int(fields["MemTotal"].split()[0]) * 1024
        available = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    limit, used = _cgroup_limit(cgroup_root)
    if limit is not None and limit < total:
        return MachineMemory(limit, min(available, max(0, limit - used)))
    return MachineMemory(total, available)


def _cgroup_limit(root: Path, membership: Path = Path("/proc/self/cgroup")) -> tuple[int | None, int]:
    """Return the smallest limit of the control group (v2) and its parents, and the use of that group."""
    try:
        relative = next(line[3:] for line in membership.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return None, 0
    smallest: tuple[int | None, int] = (None, 0)
    group = root / relative.lstrip("/")
    while group.is_relative_to(root):
        for name in CGROUP_LIMITS:
            limit = _read_number(group / name)
            if limit is not None and (smallest[0] is None or limit < smallest[0]):
                smallest = (limit, _read_number(group / "memory.current") or 0)
        if group == root:
            break
        group = group.parent
    return smallest


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # missing, or "max"
        return None


def free_disk(path: Path) -> int:
    """Return the free bytes on the disk of `path`, which need not exist."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


RUNTIME = "xllamacpp"
"""The module that runs the weights; the extra `local` installs it."""
OWN_OVERHEAD = 700_000_000
"""Bytes of memory that a file of the user's own is expected to need in addition to its size."""


@dataclass(frozen=True, slots=True)
class LocalModelAvailability:
    """What is installed of the embedded model."""

    model: str
    """Name of the pinned weights, or name of the user's file without `.gguf`."""
    path: Path
    """Path of the weights, whether they are installed or not."""
    weights: bool
    """Whether the weights are installed."""
    own_file: bool
    """Whether `model.local.path` names the file."""
    runtime: bool
    """Whether the extra `local` is installed; it is not imported for this."""
    memory_needed: int
    """Bytes."""
    memory: MachineMemory | None
    """None if the system does not report it."""

    @property
    def has_enough_memory(self) -> bool:
        """Whether the machine has the memory, free or in use."""
        return self.memory is None or self.memory.total >= self.memory_needed

    @property
    def is_usable(self) -> bool:
        """Whether the model can be started."""
        return self.weights and self.runtime and self.has_enough_memory


def check_availability(
    local: Mapping[str, Any] | None = None, model: str = "", *, environ: Mapping[str, str] | None = None
) -> LocalModelAvailability:
    """Return what is installed; nothing is loaded.

    Args:
        local: the block `model.local` of the config; only `path` is read.
        model: name of pinned weights. "" or an unknown name takes the first that are installed, else the default.
    """
    runtime = importlib.util.find_spec(RUNTIME) is not None
    if own := str((local or {}).get("path") or ""):
        path = Path(own).expanduser()
        is_file = path.is_file()
        needed = (path.stat().st_size if is_file else 0) + OWN_OVERHEAD
        return LocalModelAvailability(path.stem, path, is_file, True, runtime, needed, read_memory())
    installed = installed_weights(environ)
    weights = find_pin(model) if model in PINS else (installed[0] if installed else find_pin(DEFAULT))
    return LocalModelAvailability(
        model=weights.name,
        path=weights_path(weights, environ),
        weights=weights in installed,
        own_file=False,
        runtime=runtime,
        memory_needed=weights.memory,
        memory=read_memory(),
    )


DEFAULT_CONTEXT = 8192
"""Tokens of context for a file that does not say for how many it was trained, and where memory is short."""
SMALLEST_CONTEXT = 512
SMALLEST_WITH_OWN_CALLS = 1_500_000_000
"""Bytes of a file below which its model is too small to write tool calls without the adapter's grammar."""


def choose_context(found: LocalModelAvailability, requested: int) -> int:
    """Return the tokens of context: the requested ones, else all for which the model was trained, as memory allows.

    The cache of the context may take half of the memory that is free beside the weights.
    """
    if requested:
        return max(requested, SMALLEST_CONTEXT)
    metadata = _read_metadata(found.path)
    if metadata is None or metadata.context_length <= DEFAULT_CONTEXT:
        return metadata.context_length or DEFAULT_CONTEXT if metadata is not None else DEFAULT_CONTEXT
    if found.memory is None or not metadata.cache_bytes_per_token:
        return DEFAULT_CONTEXT
    free = (found.memory.available - found.memory_needed) // 2
    more = max(0, free) // metadata.cache_bytes_per_token // 1024 * 1024
    return min(metadata.context_length, DEFAULT_CONTEXT + more)


def writes_tool_calls(found: LocalModelAvailability, form: str) -> bool:
    """Return whether the model writes tool calls in the form of its own template.

    Args:
        form: `model.local.tool_calls`: `template`, `grammar`, or `auto`, which decides by template and size.
    """
    if form != "auto":
        return form == "template"
    if not found.own_file or not found.weights or found.path.stat().st_size < SMALLEST_WITH_OWN_CALLS:
        return False
    metadata = _read_metadata(found.path)
    # a template may render calls and describe no tools (DeepSeek-R1's distillations): the model would not know them
    return (
        metadata is not None
        and metadata.writes_tool_calls
        and re.search(r"\btools\b", metadata.chat_template) is not None
    )


def system_place(found: LocalModelAvailability) -> SystemPlace:
    """Return where the template of the model takes the system prompt."""
    metadata = _read_metadata(found.path) if found.own_file else None
    return "anywhere" if metadata is None else metadata.system_place


def _read_metadata(path: Path) -> GgufMetadata | None:
    """Return the metadata of the file, or None if it cannot be read; the runtime then says what is wrong with it."""
    try:
        return read_metadata(path)
    except (OSError, GgufError):
        return None


def describe_setup(found: LocalModelAvailability) -> SetupHint:
    """Return the steps that are missing until the embedded model answers."""
    return SetupHint(
        f"The embedded model, on this machine and without a key{_missing_steps(found)}",
        "the embedded model takes `settings.model.local.path` and the runtime in `extraPythonPackages`",
    )


def _missing_steps(found: LocalModelAvailability) -> str:
    if found.is_usable:
        return ": it is there; choose it with\n     hermes config set model.provider local"
    lines = []
    if not found.runtime:
        lines.append(install_hint("local").strip("`"))
    if not found.weights:
        if found.own_file:
            lines.append(f"model.local.path is {str(found.path)!r}, where no file is: put it there or correct the path")
        else:
            weights = PINS[found.model]
            lines.append(f"hermes model pull        ({format_bytes(weights.size)} to {found.path.parent})")
    if not found.has_enough_memory:
        assert found.memory is not None
        lines.append(
            f"it takes {format_bytes(found.memory_needed)} of memory "
            f"and this machine gives {format_bytes(found.memory.total)}: `hermes model list` has smaller ones"
        )
    return ":" + "".join(f"\n     {line}" for line in lines)


def find_faults(found: LocalModelAvailability, *, is_selected: bool) -> Iterator[ModelCheck]:
    """Yield what half an installation lacks; an absent runtime with absent weights is no fault."""
    if found.weights and not found.runtime:
        text = f"the weights of {found.model} are there ({found.path}), and the runtime {RUNTIME} is not installed"
        yield ModelCheck(text, f"{install_hint('local')} installs it.")
    elif found.runtime and not found.weights and is_selected:
        text = f"the runtime {RUNTIME} is installed, and the weights of {found.model} are not there ({found.path})"
        yield ModelCheck(text, "Correct model.local.path." if found.own_file else "`hermes model pull`")
