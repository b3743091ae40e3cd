"""Files as they were before the agent changed them, in git repositories of our own."""

from hermes_agent.workspace.checkpoints.git import Trouble
from hermes_agent.workspace.checkpoints.keeping import Checkpoints, Limits, chosen_of
from hermes_agent.workspace.checkpoints.telling import listed, told

__all__ = ["Checkpoints", "Limits", "Trouble", "chosen_of", "listed", "told"]
