"""Upstream's registries of providers for pictures, videos, speech, the web and browsers.

Each function works on the host's own registry. A provider that is registered here belongs to the plugin that loads.

Source: plugin contract §8.5, §8.6, §8.7, §8.9, §11.2.
"""

from __future__ import annotations

from typing import Any

from hermes_agent.compat.agent import host
from hermes_agent.contracts.web import choose_web_search
from hermes_agent.core.registry import current_owner, staged_store


class ProviderTable:
    """Functions of upstream's registry of one kind.

    Args:
        kind: name of the kind in `Host.providers`.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def register(self, provider: Any) -> None:
        """Register a provider.

        Raises:
            WrongProviderType: it is not of this kind.
            ValueError: it has no usable name.
            Conflict: another owner has the name.
        """
        staged_store(host().providers).add(self._kind, provider, owner=current_owner().key)

    def all(self) -> list[Any]:
        """Return the providers, sorted by name."""
        return [provider for _, provider in sorted(self._registry().items())]

    def get(self, name: str) -> Any:
        """Return the provider of a name, or None."""
        return self._registry().get(name.strip()) if isinstance(name, str) else None

    def active(self) -> Any:
        """Return the provider that the config selects, or None."""
        ours = host()
        return ours.providers.choose(self._kind, ours.config.values).provider

    def _registry(self) -> Any:
        return staged_store(host().providers)[self._kind]


class WebProviderTable(ProviderTable):
    """The registry of web search, which selects for two purposes."""

    def active_search(self) -> Any:
        """Return the provider that searches, or None."""
        return self._chosen(extract=False)

    def active_extract(self) -> Any:
        """Return the provider that reads pages, or None."""
        return self._chosen(extract=True)

    def _chosen(self, *, extract: bool) -> Any:
        return choose_web_search(dict(self._registry().items()), host().config.values, extract=extract).provider


_image, _video = ProviderTable("image_gen"), ProviderTable("video_gen")
_speech, _transcription = ProviderTable("tts"), ProviderTable("transcription")
_web, _browser = WebProviderTable("web_search"), ProviderTable("browser")
register_image_gen, list_image_gen, get_image_gen = _image.register, _image.all, _image.get
register_video_gen, list_video_gen, get_video_gen = _video.register, _video.all, _video.get
register_tts, list_tts, get_tts = _speech.register, _speech.all, _speech.get
register_transcription, list_transcription = _transcription.register, _transcription.all
get_transcription = _transcription.get
register_web_search, list_web_search, get_web_search = _web.register, _web.all, _web.get
register_browser, list_browser, get_browser = _browser.register, _browser.all, _browser.get
active_image_gen, active_video_gen = _image.active, _video.active
active_search, active_extract = _web.active_search, _web.active_extract
