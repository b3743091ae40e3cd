"""Handlers of Slack's buttons that plugins registered; the Slack adapter binds them. Source: plugin contract §2.2."""

from __future__ import annotations

import copy
import re
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

from hermes_agent.contracts.platform.entry import SLACK_ACTION
from hermes_agent.core.registry import Registry, RegistryEntry

__all__ = ["SlackAction", "SlackActions", "callbacks_for"]

ActionId = str | re.Pattern[str] | Mapping[str, Any]
"""An id, a pattern of ids, or constraints: what `slack_bolt.App.action()` takes."""


class SlackAction(NamedTuple):
    """`await callback(ack, body, action)` when somebody uses the button."""

    action_id: ActionId
    callback: Callable[..., Any]
    plugin: str

    @property
    def display_id(self) -> str:
        """The id as people write it."""
        return self.action_id.pattern if isinstance(self.action_id, re.Pattern) else str(self.action_id)


_action_stores: weakref.WeakSet[SlackActions] = weakref.WeakSet()


def callbacks_for(action: Mapping[str, Any]) -> list[Callable[..., Any]]:
    """Return the handlers of a button that somebody pressed.

    Args:
        action: as Slack tells it, with `action_id`, `block_id` and `type`.
    """
    return [
        one.callback
        for known in tuple(_action_stores)
        for one in known.items()
        if _matches_action(one.action_id, action)
    ]


def _matches_action(wanted: Any, action: Mapping[str, Any]) -> bool:
    if not isinstance(wanted, Mapping):
        wanted = {"action_id": wanted}
    told = ((said, str(action.get(key) or "")) for key, said in wanted.items())
    return all(said.search(has) is not None if isinstance(said, re.Pattern) else said == has for said, has in told)


class SlackActions:
    """In order of registration; two plugins may handle one id."""

    def __init__(self) -> None:
        _action_stores.add(self)
        self._actions: Registry[SlackAction] = Registry(SLACK_ACTION.label)

    def add(self, action_id: Any, callback: Any, *, plugin: str) -> SlackAction:
        """Register a handler; the same plugin's handler for the same id is replaced.

        Raises:
            ValueError: there is no id, or the callback cannot be called.
        """
        if action_id is None or (isinstance(action_id, str) and not action_id.strip()) or action_id == {}:
            raise ValueError(f"a Slack action needs an id: {action_id!r} is none")
        if not isinstance(action_id, (str, re.Pattern, Mapping)):
            raise ValueError(f"a Slack action's id is a text, a compiled pattern or a dict: {action_id!r} is none")
        if not callable(callback):
            raise ValueError(f"the callback of the Slack action {action_id!r} cannot be called: {callback!r}")
        action = SlackAction(action_id, callback, plugin)
        self._actions.add(f"{plugin}: {action_id!r}", action, owner=plugin)
        return action

    def items(self) -> list[SlackAction]:
        """Return the handlers."""
        return [action for _, action in self._actions.items()]

    def snapshot(self) -> dict[str, RegistryEntry[SlackAction]]:
        """Return the state for `restore`."""
        return self._actions.snapshot()

    def restore(self, state: dict[str, RegistryEntry[SlackAction]]) -> None:
        """Go back to a `snapshot`."""
        self._actions.restore(state)

    def owned_by(self, owner: str) -> list[str]:
        """Return the ids that a plugin handles."""
        return [action.display_id for action in self.items() if action.plugin == owner]

    def remove_owner(self, owner: str) -> list[str]:
        """Forget the handlers of a plugin and return their ids."""
        names = self.owned_by(owner)
        self._actions.remove_owner(owner)
        return names

    def fork(self, without: str) -> Self:
        """Return handlers of their own with the same content, but for those of `without`."""
        fork = copy.copy(self)
        fork._actions = self._actions.fork(without)
        return fork

    def adopt(self, owner: str, fork: Self) -> None:
        """Replace, in one step, the handlers of `owner` by those that it has in `fork`."""
        self._actions.adopt(owner, fork._actions)
