"""Skills: the library, the tools of the model, and the slash commands. Source: plugin contract §6."""

from hermes_agent.skills.library import PluginSkills, SkillLibrary

__all__ = ["PluginSkills", "SkillLibrary"]
