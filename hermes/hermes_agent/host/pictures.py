"""What `media` is made of: who looks at pictures, what may be opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.host.people import file_reader
from hermes_agent.media.service import MediaService
from hermes_agent.tools import current_scope
from hermes_agent.workspace.guarding import open_readable, secret_reason
from hermes_agent.workspace.steering import steering_reason

if TYPE_CHECKING:
    from hermes_agent.host.graph import Host

__all__ = ["can_describe_images", "make_media", "supports_images"]


def make_media(host: Host) -> MediaService:
    """Return what looks, draws, speaks and listens for a host."""

    def look(question: str, picture: dict[str, Any]) -> str:
        from hermes_agent.plugins.llm.auxiliary import (  # 20 ms that a start does not need
            AuxiliaryCall,
            call_auxiliary,
            response_text,
        )

        content = [{"type": "text", "text": question}, picture]
        return response_text(call_auxiliary(host, AuxiliaryCall("vision", [{"role": "user", "content": content}], {})))

    def cwd() -> Path:
        scope = current_scope.get()
        return host.working_directory if scope is None else scope.cwd

    def added() -> list[str]:
        return list(host.config.get("terminal.sandbox_paths") or ())

    def fetch(url: str) -> bytes:
        from hermes_agent.contracts.platform.media_fetch import cache_image_from_url  # as above

        return Path(host.bridge.wait_core(cache_image_from_url(url))).read_bytes()

    return MediaService(
        host.home,
        lambda: host.config.values,
        lambda kind: dict(host.providers[kind].items()),
        lambda name: host.credentials.get(name) or "",
        ask_vision_model=look,
        fetch=fetch,
        open_file=lambda path: open_readable(path, host.home, cwd(), file_reader(host), added()),
        secret_reason=lambda path: secret_reason(path, host.home, cwd(), file_reader(host)),
        controlled_place=lambda path: steering_reason(path, str(Path.home())),
    )


def can_describe_images(host: Host) -> bool:
    """Say whether a model that sees can be asked."""
    vision = host.config.get("auxiliary.vision") or {}
    named = vision.get("model") or vision.get("base_url") or vision.get("provider") not in ("", "auto", "main", None)
    return bool(named) or supports_images(host, host.select_model().provider)


def supports_images(host: Host, provider: str) -> bool:
    """Say whether the models of a provider look at pictures."""
    profile = host.model_providers.profile(provider)
    return profile is not None and profile.supports_vision
