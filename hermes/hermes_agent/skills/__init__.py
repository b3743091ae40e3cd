"""Skills: finding them, showing them to the model, and using them as slash commands. Source: plugin contract §6."""

from hermes_agent.skills.library import PluginSkills, SkillLibrary

__all__ = ["PluginSkills", "SkillLibrary"]
