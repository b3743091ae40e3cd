"""Texts in other languages: layers of plugins over the user's files over the shipped texts.

`ctx.register_locale` adds a layer; the last one that has a key wins. Below are `HOME/locales/<lang>.yaml` and the texts
that the agent ships, which are English. `display.language` selects the language. Source: plugin contract of 0.23 §6.2.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.config.yaml_reader import read_file
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.registry import ListenerStore

logger = logging.getLogger(__name__)

SURFACES = ("core", "tui", "desktop")
DEFAULT_LANGUAGE = "en"
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z0-9]{2,8})*")
_FILE = re.compile(r"(?P<lang>[A-Za-z0-9_-]+)(?:\.(?P<surface>tui|desktop))?\.ya?ml")


class LocaleLayer(LazyNamedTuple):
    """The texts of one plugin for one language and surface."""

    owner: str
    texts: Mapping[str, str]
    """By dotted key."""
    endonym: str
    """The name of the language in itself, for a list; "" if unknown."""
    rtl: bool


def language_id(lang: object) -> str:
    """Return the id of a language in its usual form: lower case, with hyphens.

    Raises:
        ValueError: this is no id of a language.
    """
    found = lang.strip().lower().replace("_", "-") if isinstance(lang, str) else ""
    if _LANGUAGE.fullmatch(found) is None:
        raise ValueError(f"language {lang!r} is not usable: expected an id such as `de` or `pt-br`")
    return found


def read_texts(source: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of a mapping or of a YAML file, by dotted key.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is no mapping of texts.
    """
    if isinstance(source, Mapping):
        return _flat(source)
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"there is no locale file {path}")
    document = read_file(path)
    if document.findings:
        raise ValueError(f"the locale file cannot be read: {document.findings[0]}")
    return _flat(document.value)


def _flat(values: Any, prefix: str = "") -> dict[str, str]:
    if not isinstance(values, Mapping):
        raise ValueError(f"a locale is {type(values).__name__}: expected a mapping from keys to texts")
    found: dict[str, str] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= _flat(value, f"{name}.")
        elif isinstance(value, str):
            found[name] = value
    return found


def locale_files(folder: Path) -> list[tuple[str, str, Path]]:
    """Return language, surface and path of each locale file of a folder, sorted by name."""
    found = []
    for path in sorted(folder.glob("*.y*ml")):
        name = _FILE.fullmatch(path.name)
        if name is not None:
            found.append((name["lang"], name["surface"] or "core", path))
    return found


class LocaleCatalog:
    """The texts of a host.

    Args:
        layers: returns the layers of plugins, by `language/surface`.
        home: returns the agent's home.
        language: returns `display.language`.
    """

    def __init__(
        self, layers: Callable[[], ListenerStore[LocaleLayer]], home: Callable[[], Path], language: Callable[[], str]
    ) -> None:
        self._layers, self._home, self._language = layers, home, language
        self._files: dict[Path, tuple[tuple[int, int], dict[str, str]]] = {}
        self._shipped: dict[str, str] = {}

    def ship(self, texts: Mapping[str, str]) -> None:
        """Add English texts of the agent."""
        self._shipped.update(texts)

    def language(self) -> str:
        """Return the language in use: `HERMES_LANGUAGE`, `display.language`, else English."""
        for wanted in (os.environ.get("HERMES_LANGUAGE"), self._language()):
            if wanted:
                try:
                    return language_id(wanted)
                except ValueError as exc:
                    logger.debug("%s", exc)
        return DEFAULT_LANGUAGE

    def find(self, key: str, lang: str | None = None, surface: str = "core") -> str | None:
        """Return the text of a key, or None; an unknown language is looked up in English."""
        wanted = self.language() if lang is None else _usable(lang)
        for each in dict.fromkeys((wanted, wanted.partition("-")[0], DEFAULT_LANGUAGE)):
            for layer in reversed(self._layers().listeners_for(f"{each}/{surface}")):
                if key in layer.texts:
                    return layer.texts[key]
            if (own := self._own(each, surface).get(key)) is not None:
                return own
        return self._shipped.get(key) if surface == "core" else None

    def translate(self, key: str, lang: str | None = None, **values: Any) -> str:
        """Return the text of a key with its values filled in; the key itself if it has no text."""
        text = self.find(key, lang)
        if text is None:
            return key
        try:
            return text.format(**values) if values else text
        except (KeyError, IndexError, ValueError) as exc:
            logger.warning("text %s of language %s: %s: %s", key, lang or self.language(), type(exc).__name__, exc)
            return text

    def _own(self, lang: str, surface: str) -> dict[str, str]:
        path = self._home() / "locales" / (f"{lang}.yaml" if surface == "core" else f"{lang}.{surface}.yaml")
        try:
            found = path.stat()
        except OSError:
            return {}
        stamp = (int(found.st_mtime * 1000), found.st_size)
        known = self._files.get(path)
        if known is None or known[0] != stamp:
            try:
                texts = read_texts(path)
            except (ValueError, OSError) as exc:
                logger.warning("%s", exc)
                texts = {}
            known = self._files[path] = (stamp, texts)
        return known[1]


def _usable(lang: str) -> str:
    try:
        return language_id(lang)
    except ValueError:
        return DEFAULT_LANGUAGE
