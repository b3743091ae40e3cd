"""The tools for skills, and where the home's are."""

from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.compat.skill_names import skill_view as skill_view
from hermes_agent.compat.skill_names import skills_directory
from hermes_agent.compat.skill_names import skills_list as skills_list

if TYPE_CHECKING:
    SKILLS_DIR: Path


def __getattr__(name: str) -> Path:
    if name == "SKILLS_DIR":  # read at each use: the home may be another one by then
        return skills_directory()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
