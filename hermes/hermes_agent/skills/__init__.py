"""Skills: finding them, showing them to the model, and using them as slash commands. Source: plugin contract §6."""

from hermes_agent.skills.library import SkillLibrary
from hermes_agent.skills.registry import PluginSkills

__all__ = ["PluginSkills", "SkillLibrary"]
