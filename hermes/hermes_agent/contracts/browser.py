"""Browser: a service that runs a browser elsewhere, reached over CDP. Source: plugin contract §8.9.

Selected by `browser.cloud_provider`.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

from hermes_agent.contracts.kind import Kind
from hermes_agent.contracts.provider import (
    Provider,
    SelectedProvider,
    is_provider_available,
    read_setting,
    select_by_name,
)

__all__ = ["BROWSER", "LOCAL_BROWSER", "BROWSER_PREFERENCE", "BrowserProvider", "choose_browser"]

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
