"""Files as they were before the agent changed them, in git repositories of our own."""

from hermes_agent.workspace.checkpoints.git import GitError
from hermes_agent.workspace.checkpoints.keeping import CheckpointLimits, Checkpoints, choose_checkpoint
from hermes_agent.workspace.checkpoints.telling import checkpoint_rows, restore_text

__all__ = ["Checkpoints", "CheckpointLimits", "GitError", "choose_checkpoint", "checkpoint_rows", "restore_text"]
