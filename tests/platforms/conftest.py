"""The bundled platforms, each made by a real host from a config, against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.adapters.base import BasePlatformAdapter
from hermes_agent.adapters.config import Platform
from hermes_agent.adapters.events import MessageEvent
from hermes_agent.adapters.registry import gateway_config
from hermes_agent.compat import import_hook
from hermes_agent.host import Host

WAIT_S = 60.0
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)

Make = Callable[..., Any]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_host: None) -> Iterator[Make]:
    """Return `make(name, **settings)`: the adapter that the config `platforms.<name>: settings` gives."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HERMES_HOME", str(home))
    monkeypatch.setenv("HERMES_GATEWAY_LOCK_DIR", str(tmp_path / "locks"))
    for name in ("HERMES_BUNDLED_PLUGINS", "HERMES_DECLARED_CONFIG", "HERMES_SAFE_MODE", "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    import_hook.install()
    host = Host.build(home)
    host.plugins.discover_and_load()

    def adapter(platform: str, **settings: Any) -> Any:
        values = {"platforms": {platform: {"enabled": True, **settings}}}
        config = gateway_config(values, host.platforms).platforms[Platform(platform)]
        made = host.platforms.create_adapter(platform, config)
        assert made is not None
        return made

    adapter.host = host  # type: ignore[attr-defined]
    yield adapter
    host.bridge.close()
    import_hook.uninstall()


def attempted(make: Make, adapter: Any) -> str:
    """Try to connect with an adapter's config as setup does; return why that fails, empty when it does not."""
    entry = make.host.platforms.get(adapter.platform.value)  # type: ignore[attr-defined]
    try:
        asyncio.run(asyncio.wait_for(entry.attempt_fn(adapter.config), WAIT_S))
    except Exception as exc:
        return f"{exc}" or type(exc).__name__
    return ""


class Inbox:
    """What an adapter hands in.

    Args:
        through: it goes on to the adapter's handler, too.
    """

    def __init__(self, adapter: BasePlatformAdapter, *, through: bool = False) -> None:
        self._events: asyncio.Queue[MessageEvent] = asyncio.Queue()
        taken = adapter.handle_message

        async def take(event: MessageEvent) -> None:
            if through:
                await taken(event)
            self._events.put_nowait(event)

        adapter.handle_message = take  # type: ignore[method-assign]

    async def next(self) -> MessageEvent:
        """Return the next message."""
        async with asyncio.timeout(WAIT_S):
            return await self._events.get()

    @property
    def is_empty(self) -> bool:
        return self._events.empty()


def at(bot: Any, steps: Callable[[Any, Inbox], Any]) -> Any:
    """Run `steps(adapter, inbox)` while the adapter is connected."""

    async def run() -> Any:
        inbox = Inbox(bot)
        assert await bot.connect(is_reconnect=False), bot.fatal_error_message
        try:
            return await asyncio.wait_for(steps(bot, inbox), WAIT_S)
        finally:
            await bot.disconnect()

    return asyncio.run(run())


async def do(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call something that blocks, beside the loop."""
    return await asyncio.to_thread(call, *args, **kwargs)
