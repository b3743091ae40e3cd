"""Every keyword that a hook's callbacks are given, with a value that a test can live with.

The names are those of the table of hooks.
"""

from __future__ import annotations

import time
import tomllib
from pathlib import Path
from typing import Any

from hermes_agent.config.nearness import nearest_name
from hermes_agent.hooks import HOOKS

__all__ = ["hook_keywords"]


def hook_keywords(hook: str, given: dict[str, Any], **known: Any) -> dict[str, Any]:
    """Return what a callback of `hook` is called with: `given`, `known`, and a value for every other keyword.

    Args:
        known: keywords of the host at hand (`session_id`, `model`, …), used where the hook has them.

    Raises:
        ValueError: there is no such hook; the nearest name is in the text.
    """
    known_hook = HOOKS.get(hook)
    if known_hook is None:
        near = nearest_name(hook, tuple(HOOKS))
        raise ValueError(f"there is no hook {hook!r}" + (f"; did you mean {near!r}?" if near else ""))
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    values: dict[str, Any] = {
        **table["values"],
        **{name: None for name in table["nothing"]},
        **{name: {} for name in table["objects"]},
        **{name: [] for name in table["lists"]},
        **{name: time.time() for name in table["times"]},
    }
    return {name: known.get(name, values.get(name, "")) for name in known_hook.keywords} | given
