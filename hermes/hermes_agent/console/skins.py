"""Skins: colour themes of the user's own, in `skins/NAME.yaml` of the home.

A skin names the theme that it changes (`extends`) and the looks of some styles (`styles`). The keys of upstream's
skins (`colors` with `ui_accent`, `banner_title`, ...) are understood as far as the console has such a style.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from hermes_agent.config.bounded_yaml import YamlRejected, read_yaml
from hermes_agent.console.styled import DEFAULT_THEME, THEMES, Theme, is_look
from hermes_agent.core.lazy_types import LazyNamedTuple

logger = logging.getLogger(__name__)

FOLDER = "skins"
_UPSTREAM = {
    "banner_title": "heading",
    "banner_accent": "marker",
    "banner_dim": "dim",
    "ui_accent": "code",
    "ui_label": "strong",
    "ui_ok": "ok",
    "ui_error": "error",
    "ui_warn": "warning",
    "prompt": "prompt",
    "input_rule": "rule",
    "response_border": "rule",
    "session_label": "status",
    "status_bar_text": "status",
}
"""Style of the console by key of upstream's `colors`."""


class Skin(LazyNamedTuple):
    """One theme or skin."""

    name: str
    description: str
    looks: Mapping[str, str]
    source: str
    """`builtin`, or the file."""
    problems: tuple[str, ...] = ()


def load_skins(home: Path) -> dict[str, Skin]:
    """Return themes and skins of a home by name; an unreadable file is logged and left out."""
    found = {name: Skin(name, "", looks, "builtin") for name, looks in THEMES.items()}
    for file in sorted((home / FOLDER).glob("*.yaml")):
        try:
            skin = _read(file)
        except (OSError, YamlRejected, UnicodeDecodeError) as exc:
            logger.warning("skin %s: not used: %s", file, exc)
            continue
        for problem in skin.problems:
            logger.warning("skin %s: %s", file, problem)
        if skin.name in THEMES:
            logger.warning("skin %s: not used: %s is a theme of the console", file, skin.name)
        else:
            found[skin.name] = skin
    return found


def make_theme(home: Path, configured: object, *, has_colour: bool = True) -> Theme:
    """Return the theme for the setting `display.skin`; an unknown name gives the default."""
    name = str(configured)
    if name in THEMES:
        return Theme(name, has_colour=has_colour)
    skin = load_skins(home).get(name) if name not in ("", "default", "None") else None
    if skin is None:
        return Theme(DEFAULT_THEME, has_colour=has_colour)
    return Theme(skin.name, has_colour=has_colour, looks=skin.looks)


def _read(file: Path) -> Skin:
    values = read_yaml(str(file), ("name", "description", "extends", "styles", "colors")).values
    problems = []
    base = str(values.get("extends") or DEFAULT_THEME)
    if base not in THEMES:
        problems.append(f"extends: {base!r} is no theme (there are {', '.join(THEMES)})")
        base = DEFAULT_THEME
    looks = dict(THEMES[base])
    colours = values.get("colors")
    if isinstance(colours, Mapping):
        given = {_UPSTREAM[key]: str(value) for key, value in colours.items() if key in _UPSTREAM}
        looks |= {style: look for style, look in given.items() if is_look(look)}
    styles = values.get("styles")
    for style, look in styles.items() if isinstance(styles, Mapping) else ():
        if style not in THEMES[DEFAULT_THEME]:
            problems.append(f"styles.{style}: there is no such style")
        elif not isinstance(look, str) or not is_look(look):
            problems.append(f"styles.{style}: {look!r} is no look: colours, bold, italic, underline, reverse, #rrggbb")
        else:
            looks[style] = look
    return Skin(
        str(values.get("name") or file.stem), str(values.get("description") or ""), looks, str(file), tuple(problems)
    )
