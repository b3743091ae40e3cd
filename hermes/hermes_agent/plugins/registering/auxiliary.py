"""`ctx.register_auxiliary_task`. Source: plugin contract §2.5."""

from __future__ import annotations

from hermes_agent.contracts.auxiliary_task import AUXILIARY_TASK, AuxiliaryTask
from hermes_agent.core.registry import Conflict, describe_owner
from hermes_agent.plugins.registering.registrant import Registrant

__all__ = ["register_auxiliary_task"]


def register_auxiliary_task(by: Registrant, task: AuxiliaryTask) -> None:
    """Register a task; the same plugin may do so again.

    Raises:
        ValueError: another plugin has the key.
    """
    try:
        by.ground.auxiliary_tasks.add(task.key, task, owner=by.key)
    except Conflict as exc:
        raise ValueError(f"auxiliary task '{task.key}' is already registered by {describe_owner(exc.owner)}") from None
    by.registered(AUXILIARY_TASK, task.key)
