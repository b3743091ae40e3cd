"""Skills as slash commands. Source: plugin contract §11.2."""

from hermes_agent.compat.skill_names import (
    extract_user_instruction_from_skill_message as extract_user_instruction_from_skill_message,
)
from hermes_agent.compat.skill_names import get_skill_commands as get_skill_commands
