"""Upstream's `tools.lazy_deps`: a feature that needs packages which may be missing. Nothing is installed at run time.

Source: plugin contract §11.2, §11.3; docs/architecture.md, "where nothing is installed".
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from typing import Any

__all__ = [
    "FEATURES",
    "FeatureUnavailable",
    "ensure",
    "ensure_and_bind",
    "feature_missing",
    "how_to_add",
    "pip_install",
]

logger = logging.getLogger(__name__)

FEATURES: dict[str, dict[str, str]] = {
    "memory.honcho": {"honcho": "honcho-ai"},
    "memory.mem0": {"mem0": "mem0ai"},
    "platform.discord": {"discord": "discord.py"},
    "platform.matrix": {"nio": "matrix-nio"},
    "platform.slack": {"slack_bolt": "slack-bolt", "slack_sdk": "slack-sdk"},
    "platform.telegram": {"telegram": "python-telegram-bot"},
    "provider.anthropic": {"anthropic": "anthropic"},
    "provider.bedrock": {"boto3": "boto3"},
    "search.exa": {"exa_py": "exa-py"},
    "search.firecrawl": {"firecrawl": "firecrawl-py"},
    "search.parallel": {"parallel": "parallel-web"},
    "stt.faster_whisper": {"faster_whisper": "faster-whisper"},
    "tts.edge": {"edge_tts": "edge-tts"},
    "tts.elevenlabs": {"elevenlabs": "elevenlabs"},
}
"""Import names with the distributions that bring them, by feature."""


class FeatureUnavailable(RuntimeError):
    """A feature's packages are missing; the text says how to add them."""

    def __init__(self, feature: str, missing: tuple[str, ...], reason: str) -> None:
        super().__init__(f"{feature} is not available: {reason}")
        self.feature, self.missing, self.reason = feature, missing, reason


def feature_missing(feature: str) -> tuple[str, ...]:
    """Return the distributions that a feature lacks; none for one that is complete.

    Raises:
        FeatureUnavailable: nobody knows the feature.
    """
    needed = FEATURES.get(feature)
    if needed is None:
        raise FeatureUnavailable(feature, (), f"it is unknown; known are {', '.join(sorted(FEATURES))}")
    return tuple(dist for module, dist in needed.items() if PathFinder.find_spec(module) is None)


def ensure(feature: str, *, prompt: bool = True) -> None:
    """Return when a feature's packages are there.

    Args:
        prompt: upstream offers to install them; nothing is installed at run time here, and nobody is asked.

    Raises:
        FeatureUnavailable: they are not; `reason` says how to add them.
    """
    missing = feature_missing(feature)
    if missing:
        raise FeatureUnavailable(feature, missing, how_to_add(missing))


def ensure_and_bind(
    feature: str, importer: Callable[[], dict[str, Any]], target_globals: dict[str, Any], *, prompt: bool = False
) -> bool:
    """Put what `importer` imports into `target_globals` and return True; False, with a line in the log, without it."""
    try:
        ensure(feature, prompt=prompt)
        target_globals.update(importer())
    except (FeatureUnavailable, ImportError) as exc:
        logger.warning("%s", exc)
        return False
    return True


def pip_install(
    args: Sequence[str], *, timeout: int = 300, capture_output: bool = True
) -> subprocess.CompletedProcess[str]:
    """Install nothing, and say how to: the result of a command that failed, with the advice as its error output."""
    packages = [arg for arg in args if not arg.startswith("-")]
    text = how_to_add(packages) + "\n"
    if not capture_output:
        print(text, end="")
    return subprocess.CompletedProcess(["pip", "install", *args], 1, "", text)


def how_to_add(packages: Sequence[str]) -> str:
    """Return what an operator does to have packages."""
    names = " ".join(packages)
    return (
        f"nothing is installed while the agent runs. Add {names or 'what is missing'} where hermes-agent is installed"
        f" (`{sys.executable} -m pip install {names}`; on NixOS services.hermes-agent.extraPythonPackages)"
        " and start it again"
    )
