"""What `media` is made of: who looks at pictures, what may be opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.host.people import reader
from hermes_agent.media.service import Media
from hermes_agent.tools import current_scope
from hermes_agent.workspace.guarding import opened, secret_reason
from hermes_agent.workspace.steering import reason

if TYPE_CHECKING:
    from hermes_agent.host.graph import Host

__all__ = ["can_look", "media_of", "sees"]


def media_of(host: Host) -> Media:
    """Return what looks, draws, speaks and listens for a host."""

    def look(question: str, picture: dict[str, Any]) -> str:
        from hermes_agent.plugins.llm.auxiliary import (  # 20 ms that a start does not need
            SideCall,
            ask_now,
            text_of_response,
        )

        content = [{"type": "text", "text": question}, picture]
        return text_of_response(ask_now(host, SideCall("vision", [{"role": "user", "content": content}], {})))

    def cwd() -> Path:
        scope = current_scope.get()
        return host.working_directory if scope is None else scope.cwd

    def added() -> list[str]:
        return list(host.config.get("terminal.sandbox_paths") or ())

    def fetch(url: str) -> bytes:
        from hermes_agent.contracts.platform.media_fetch import cache_image_from_url  # as above

        return Path(host.bridge.wait_core(cache_image_from_url(url))).read_bytes()

    return Media(
        host.home,
        lambda: host.config.values,
        lambda kind: dict(host.providers[kind].items()),
        lambda name: host.credentials.get(name) or "",
        look_at=look,
        fetch=fetch,
        opened=lambda path: opened(path, host.home, cwd(), reader(host), added()),
        secret_reason=lambda path: secret_reason(path, host.home, cwd(), reader(host)),
        steers=lambda path: reason(path, str(Path.home())),
    )


def can_look(host: Host) -> bool:
    """Say whether a model that sees can be asked."""
    vision = host.config.get("auxiliary.vision") or {}
    named = vision.get("model") or vision.get("base_url") or vision.get("provider") not in ("", "auto", "main", None)
    return bool(named) or sees(host, host.select_model().provider)


def sees(host: Host, provider: str) -> bool:
    """Say whether the models of a provider look at pictures."""
    profile = host.model_providers.profile(provider)
    return profile is not None and profile.supports_vision
