"""Web search and browsers.

A web search provider searches the web, reads pages, or both. `web.search_backend` and `web.extract_backend` select it,
or `web.backend`, or the first available provider is used. Source: plugin contract §8.8.

A browser provider runs browsers that are reached over CDP; `browser.cloud_provider` selects it. Published plugins
register such providers. This release lists and selects them and starts no browser (`Kind.is_used`). Source: plugin
contract §8.9.
"""

from __future__ import annotations

import abc
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hermes_agent.contracts.kind import (
    Kind,
    Provider,
    SelectedProvider,
    describe_unregistered,
    is_provider_available,
    read_setting,
    select_by_name,
)

__all__ = [
    "BROWSER",
    "BROWSER_PREFERENCE",
    "BrowserProvider",
    "ComputerUseProvider",
    "LOCAL_BROWSER",
    "SEARCH_PREFERENCE",
    "WEB_SEARCH",
    "WebSearchProvider",
    "choose_browser",
    "choose_web_search",
    "extracted_pages",
    "search_result",
]


logger = logging.getLogger(__name__)

WEB_SEARCH = Kind("web_search", "register_web_search_provider", "web search provider", is_used=True)

SEARCH_PREFERENCE = ("firecrawl", "parallel", "tavily", "exa", "searxng", "brave-free", "ddgs")
"""Order in which providers are tried if the config names none."""


class WebSearchProvider(Provider):
    """A provider that searches the web, reads pages, or both."""

    @abc.abstractmethod
    def is_available(self) -> bool:
        """Return whether it can be used now, without a network request."""

    def is_keyless_available(self) -> bool:
        """Return whether it can be used now without a key; it is then selected where no other provider is."""
        return False

    def supports_search(self) -> bool:
        """Return whether `search` is supported."""
        return True

    def supports_extract(self) -> bool:
        """Return whether `extract` is supported."""
        return False

    def service_addresses(self) -> Sequence[str]:
        """Extension: return the addresses of its service for the host rules; empty if unknown."""
        return ()

    def search(self, query: str, limit: int = 5) -> dict[str, Any]:
        """Search the web.

        Returns:
            `{"success": True, "data": {"web": [{"title", "url", "description", "position"}]}}`, or
            `{"success": False, "error": text}`.
        """
        raise NotImplementedError(f"web search provider '{self.name}' does not support search")

    def extract(self, urls: list[str], **kwargs: Any) -> Any:
        """Read pages; may be a coroutine function.

        Returns:
            A list with `{"url", "title", "content", "raw_content", "metadata"?, "error"?}` for each address, or
            `{"success": True, "data": <that list>}`.
        """
        raise NotImplementedError(f"web search provider '{self.name}' does not support extract")


def search_result(results: Iterable[tuple[Any, Any, Any]]) -> dict[str, Any]:
    """Return the answer of `search` for results of (title, address, description).

    Results without an address are omitted.
    """
    web = [
        {"title": str(title or ""), "url": str(url), "description": str(text or ""), "position": position}
        for position, (title, url, text) in enumerate((r for r in results if r[1]), 1)
    ]
    return {"success": True, "data": {"web": web}}


def choose_web_search(
    providers: Mapping[str, WebSearchProvider], values: Mapping[str, Any], *, extract: bool = False
) -> SelectedProvider[WebSearchProvider]:
    """Return the provider for search, or with `extract` the provider that reads pages.

    An unavailable provider that the config names is returned, so that its own error is shown.
    """
    able = {n: p for n, p in providers.items() if (p.supports_extract() if extract else p.supports_search())}
    for path in ("web.extract_backend" if extract else "web.search_backend", "web.backend"):
        name = read_setting(values, path)
        if name in able:
            return SelectedProvider(able[name], f"{path} names it")
        if name in providers:
            return SelectedProvider(
                None, f"{path} names `{name}`, which does not {'read pages' if extract else 'search'}"
            )
        if name:
            return SelectedProvider(None, describe_unregistered(path, name, "web"))
    for name in (*SEARCH_PREFERENCE, *able):
        if name in able and is_provider_available(able[name]):
            return SelectedProvider(able[name], "web.backend is not set; the first available provider is used")
    for provider in able.values():
        if _is_keyless(provider):
            return SelectedProvider(provider, "web.backend is not set; the first provider that needs no key is used")
    return SelectedProvider(None, "none is available")


def _is_keyless(provider: WebSearchProvider) -> bool:
    try:
        return bool(provider.is_keyless_available())
    except Exception as exc:  # noqa: BLE001 - a plugin's provider
        logger.warning("web search provider '%s': is_keyless_available failed: %r", provider.name, exc)
        return False


def extracted_pages(answer: Any, urls: Sequence[str]) -> list[dict[str, Any]]:
    """Return the pages that `extract` returned, in either of its two forms.

    Raises:
        TypeError: the value has neither form.
    """
    if isinstance(answer, Mapping):
        if not answer.get("success"):
            error = str(answer.get("error") or "the provider gave no reason")
            return [{"url": url, "title": "", "content": "", "raw_content": "", "error": error} for url in urls]
        answer = answer.get("data")
    if not isinstance(answer, list) or not all(isinstance(page, dict) for page in answer):
        raise TypeError(f"extract() returned {type(answer).__name__}: expected a list of pages")
    return answer


BROWSER = Kind("browser", "register_browser_provider", "browser provider")


class ComputerUseProvider(Provider):
    """A provider that operates a desktop. None is registered: no tool here uses a desktop."""

    @abc.abstractmethod
    def create_backend(self, *, permission_mode: str = "standard") -> Any:
        """Return what operates the desktop, with the mode `standard`, `bounded` or `unrestricted`."""

    def doctor(self) -> Any:
        """Return what a check of the provider found."""
        return None


LOCAL_BROWSER = "local"
"""Value of `browser.cloud_provider` for a browser on this machine."""
BROWSER_PREFERENCE = ("browser-use", "browserbase")
"""Order in which providers are tried if the config names none; no other provider is used then."""


class BrowserProvider(Provider):
    """A provider that runs browsers as a service; a session is a browser."""

    @abc.abstractmethod
    def is_available(self) -> bool:
        """Return whether it can be used now, without a network request."""

    @abc.abstractmethod
    def create_session(self, task_id: str) -> dict[str, Any]:
        """Start a browser.

        Returns:
            `{"session_name", "bb_session_id", "cdp_url", "features"}`; `close_session` gets the second.
        """

    @abc.abstractmethod
    def close_session(self, session_id: str) -> bool:
        """Close a browser; return whether it closed."""

    @abc.abstractmethod
    def emergency_cleanup(self, session_id: str) -> None:
        """Close a browser while the process ends: quickly, without raising."""

    def is_configured(self) -> bool:
        """Return `is_available()`."""
        return self.is_available()

    def provider_name(self) -> str:
        """Return `display_name`."""
        return self.display_name


def choose_browser(
    providers: Mapping[str, BrowserProvider], values: Mapping[str, Any]
) -> SelectedProvider[BrowserProvider]:
    """Return the provider of the browser; none for a browser on this machine."""
    path = "browser.cloud_provider"
    if read_setting(values, path) == LOCAL_BROWSER:
        return SelectedProvider(None, f"{path} selects a browser on this machine")
    if chosen := select_by_name(providers, values, path, "browser"):
        return chosen
    for name in BROWSER_PREFERENCE:
        if name in providers and is_provider_available(providers[name]):
            return SelectedProvider(providers[name], f"{path} is not set; the first available provider is used")
    return SelectedProvider(None, f"{path} is not set: a browser on this machine")
