"""Upstream's constants, and functions with one answer on every machine that this program supports.

Numbers are upstream's where plugins compare with them or use them as a default of their own. Source: plugin contract
§11.2, §11.3.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Union

from hermes_agent.compat.config import (
    fast_safe_load,
    get_max_bytes,
    get_max_line_length,
    get_max_lines,
    load_config_readonly,
)
from hermes_agent.compat.environment import find_node_executable
from hermes_agent.compat.estimates import get_model_context_length
from hermes_agent.config import hermes_home
from hermes_agent.plugins.discovery import BUNDLED, plugin_roots
from hermes_agent.plugins.llm_types import PluginLlmImageInput, PluginLlmTextInput
from hermes_agent.skills.library import bundled_folders

OPENROUTER_BASE_URL = "https://openrouter.ai/api/v1"
OPENROUTER_MODELS_URL = f"{OPENROUTER_BASE_URL}/models"
FINISH_REASON_LENGTH = "length"
ASPECT_RATIOS = ("16:9", "9:16", "1:1", "4:3", "3:4", "3:2", "2:3")
"""Proportions of a video that providers commonly offer."""
RESOLUTIONS = ("480p", "540p", "720p", "1080p")
"""Sizes of a video that providers commonly offer."""
DEFAULT_ASPECT_RATIO = "16:9"
DEFAULT_RESOLUTION = "720p"
MAX_BYTES, MAX_LINES, MAX_LINE_LENGTH = 50_000, 2_000, 2_000
"""Defaults of `tool_output`."""
DEFAULT_LANGUAGE = "en"
ENTRY_DELIMITER = "\n§\n"
"""Text between two entries of a file of memories."""
IS_WINDOWS = False
REQUIRED_VARIABLES: dict[str, dict[str, Any]] = {}
"""Variables that every home needs: none."""
PluginLlmInput = Union[PluginLlmTextInput, PluginLlmImageInput]  # noqa: UP007 - upstream's kind of type
"""A part of the input of `ctx.llm`."""
_BASE64_IMAGE = re.compile(r"!\[([^\]]*)\]\(data:image/[^;)]+;base64,[^)]*\)|data:image/[^;\s]+;base64,[A-Za-z0-9+/=]+")
_NEW_MODELS = re.compile(r"(?:gpt-4o|gpt-4\.1|gpt-5|o1|o3|o4)(?:[-.].*)?")


def get_tool_output_limits() -> dict[str, int]:
    """Return the limits of `tool_output`: `max_bytes`, `max_lines`, `max_line_length`."""
    return {"max_bytes": get_max_bytes(), "max_lines": get_max_lines(), "max_line_length": get_max_line_length()}


async def get_model_context_length_async(*args: Any, **kwargs: Any) -> int:
    """Return the context window of a model in tokens, as `get_model_context_length` does."""
    return get_model_context_length(*args, **kwargs)


def bundled_skills_directory(default: Path | None = None) -> Path:
    """Return the directory of the skills that come with the agent, else `default`, else that of the home."""
    folder = next(iter(bundled_folders(os.environ)), None)
    return folder or default or hermes_home() / "skills"


def bundled_plugins_directory() -> Path:
    """Return the directory of the plugins that come with the agent."""
    return plugin_roots(hermes_home(), os.environ, Path.cwd())[BUNDLED][0].path


def is_linux() -> bool:
    """Return whether this is Linux."""
    return sys.platform.startswith("linux")


def is_macos() -> bool:
    """Return whether this is macOS."""
    return sys.platform == "darwin"


def is_windows() -> bool:
    """Return False: this program does not run on Windows."""
    return IS_WINDOWS


def is_interactive_stdin() -> bool:
    """Return whether standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def is_color_wanted() -> bool:
    """Return whether standard output is a terminal for which colours are not turned off."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and sys.stdout.isatty()


def resolve_node_command(name: str, argv: Sequence[str]) -> list[str]:
    """Return the arguments that run `node`, `npm`, … with `argv`, beginning with the program's path."""
    return [find_node_executable(name) or name, *argv]


def windows_detach_flags() -> int:
    """Return 0: the flags are of Windows alone."""
    return 0


def forget_variables() -> None:
    """Do nothing: `.env` is read at each use."""


def website_blocklist(config_path: Path | None = None) -> dict[str, Any]:
    """Return `security.website_blocklist` of the config, or of the file `config_path`."""
    values = load_config_readonly() if config_path is None else fast_safe_load(config_path.read_text("utf-8")) or {}
    return dict((values.get("security") or {}).get("website_blocklist") or {})


def model_forces_max_completion_tokens(model: str) -> bool:
    """Return whether OpenAI's API takes `max_completion_tokens` in place of `max_tokens` for a model."""
    return _NEW_MODELS.fullmatch((model or "").strip().lower().rpartition("/")[2]) is not None


def convert_base64_images_to_links(text: str) -> str:
    """Return a text with `[IMAGE: …]` in place of images that are written out in it."""
    return _BASE64_IMAGE.sub(lambda found: f"[IMAGE: {(found[1] or '').strip() or 'embedded image'}]", text)
