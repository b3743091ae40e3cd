"""Web search: a service that searches the web, reads pages, or both. Source: plugin contract §8.8.

Selected by `web.search_backend` and `web.extract_backend`, else `web.backend`, else the first that is available.

Browser: a service that runs a browser elsewhere, reached over CDP. Source: plugin contract §8.9.

Selected by `browser.cloud_provider`.
"""

from __future__ import annotations

import abc
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
    "LOCAL_BROWSER",
    "SEARCH_PREFERENCE",
    "WEB_SEARCH",
    "WebSearchProvider",
    "choose_browser",
    "choose_web_search",
    "extracted_pages",
    "search_result",
]


WEB_SEARCH = Kind("web_search", "register_web_search_provider", "web search provider", is_used=True)

SEARCH_PREFERENCE = ("firecrawl", "parallel", "tavily", "exa", "searxng", "brave-free", "ddgs")
"""Who is taken first when the config names nobody."""


class WebSearchProvider(Provider):
    """Searches the web, reads pages, or both."""

    @abc.abstractmethod
    def is_available(self) -> bool:
        """Say whether it could be used now; without asking the network."""

    def supports_search(self) -> bool:
        """Say whether `search` works."""
        return True

    def supports_extract(self) -> bool:
        """Say whether `extract` works."""
        return False

    def service_addresses(self) -> Sequence[str]:
        """Ours: return the addresses of the service, for the table of hosts; none where it does not say."""
        return ()

    def search(self, query: str, limit: int = 5) -> dict[str, Any]:
        """Search the web.

        Returns:
            `{"success": True, "data": {"web": [{"title", "url", "description", "position"}]}}`, or
            `{"success": False, "error": text}`.
        """
        raise NotImplementedError(f"web search provider '{self.name}' does not search")

    def extract(self, urls: list[str], **kwargs: Any) -> Any:
        """Read pages; may be a coroutine function.

        Returns:
            A list with `{"url", "title", "content", "raw_content", "metadata"?, "error"?}` for each address, or
            `{"success": True, "data": that list}`.
        """
        raise NotImplementedError(f"web search provider '{self.name}' does not read pages")


def search_result(results: Iterable[tuple[Any, Any, Any]]) -> dict[str, Any]:
    """Return what `search` answers, of (title, address, description) each; one without an address is left out."""
    web = [
        {"title": str(title or ""), "url": str(url), "description": str(text or ""), "position": position}
        for position, (title, url, text) in enumerate((r for r in results if r[1]), 1)
    ]
    return {"success": True, "data": {"web": web}}


def choose_web_search(
    providers: Mapping[str, WebSearchProvider], values: Mapping[str, Any], *, extract: bool = False
) -> SelectedProvider[WebSearchProvider]:
    """Return who searches, or with `extract` who reads pages.

    A provider that the config names is returned even when it is not available, so that its own error is seen.
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
            return SelectedProvider(able[name], "web.backend is not set; it is the first that is available")
    return SelectedProvider(None, "none is available")


def extracted_pages(answer: Any, urls: Sequence[str]) -> list[dict[str, Any]]:
    """Return what `extract` answered as a list of pages, whichever of the two shapes it has.

    Raises:
        TypeError: it has neither.
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

LOCAL_BROWSER = "local"
"""The setting for a browser on this machine: no provider."""
BROWSER_PREFERENCE = ("browser-use", "browserbase")
"""Who is taken when the config names nobody; nobody else is."""


class BrowserProvider(Provider):
    """Runs browsers elsewhere; one session is one browser."""

    @abc.abstractmethod
    def is_available(self) -> bool:
        """Say whether it could be used now; without asking the network."""

    @abc.abstractmethod
    def create_session(self, task_id: str) -> dict[str, Any]:
        """Start a browser.

        Returns:
            `session_name`, `bb_session_id` (what `close_session` takes), `cdp_url`, `features`.
        """

    @abc.abstractmethod
    def close_session(self, session_id: str) -> bool:
        """End a browser; false when it could not be ended."""

    @abc.abstractmethod
    def emergency_cleanup(self, session_id: str) -> None:
        """End a browser while the process ends: quick, and without an exception."""

    def is_configured(self) -> bool:
        """Return `is_available()`."""
        return self.is_available()

    def provider_name(self) -> str:
        """Return `display_name`."""
        return self.display_name


def choose_browser(
    providers: Mapping[str, BrowserProvider], values: Mapping[str, Any]
) -> SelectedProvider[BrowserProvider]:
    """Return who runs the browser; none means one on this machine."""
    path = "browser.cloud_provider"
    if read_setting(values, path) == LOCAL_BROWSER:
        return SelectedProvider(None, f"{path} asks for a browser on this machine")
    if chosen := select_by_name(providers, values, path, "browser"):
        return chosen
    for name in BROWSER_PREFERENCE:
        if name in providers and is_provider_available(providers[name]):
            return SelectedProvider(providers[name], f"{path} is not set; it is the first that is available")
    return SelectedProvider(None, f"{path} is not set: a browser on this machine")
