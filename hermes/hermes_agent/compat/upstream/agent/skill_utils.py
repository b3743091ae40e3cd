"""Reading skills."""

from hermes_agent.compat.skill_names import get_disabled_skill_names as get_disabled_skill_names
from hermes_agent.compat.skill_names import get_external_skills_dirs as get_external_skills_dirs
from hermes_agent.compat.skill_names import is_valid_namespace as is_valid_namespace
from hermes_agent.compat.skill_names import parse_frontmatter as parse_frontmatter
from hermes_agent.compat.skill_names import parse_qualified_name as parse_qualified_name
from hermes_agent.compat.skill_names import skill_matches_platform as skill_matches_platform
