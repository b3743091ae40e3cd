"""Homes beside this one. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.profile_names import Profile as Profile
from hermes_agent.compat.profile_names import get_active_profile_name as get_active_profile_name
from hermes_agent.compat.profile_names import get_default_home as _real_get_default_home
from hermes_agent.compat.profile_names import list_profiles as list_profiles
from hermes_agent.compat.profile_names import resolve_profile_env as resolve_profile_env

_get_default_hermes_home = _real_get_default_home
