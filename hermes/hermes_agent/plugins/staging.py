"""Load a plugin beside the one that serves: it registers into forks of the stores, which are adopted in one step."""

from __future__ import annotations

from typing import Any

from hermes_agent.plugins.ground import Ground, Store

__all__ = ["Staging"]


class Staging:
    """The host as a plugin sees it that is loaded while others, or its own older version, serve.

    Every store is a fork until `commit`; everything else is the host's. A plugin that is never committed leaves no
    trace, however late its threads register something.

    Args:
        owner: key of the plugin; the forks do not have what it registered before.
    """

    def __init__(self, ground: Ground, owner: str) -> None:
        self._ground = ground
        self._owner = owner
        self._forks: dict[int, tuple[Store, Any]] = {id(store): (store, store.fork(owner)) for store in ground.stores}
        self._live = False

    def __getattr__(self, name: str) -> Any:
        return self.stand_in(getattr(self._ground, name))

    @property
    def stores(self) -> tuple[Store, ...]:
        """The forks, or after `commit` the host's stores."""
        return tuple(self.stand_in(store) for store in self._ground.stores)

    def stand_in(self, store: Any) -> Any:
        """Return the fork that stands for `store`; anything else, and everything after `commit`, is itself."""
        if self._live:
            return store
        known = self._forks.get(id(store))
        return store if known is None else known[1]

    def commit(self) -> None:
        """Replace what the plugin had registered by what it has registered now."""
        for store, fork in self._forks.values():
            store.adopt(self._owner, fork)
        self._live = True
