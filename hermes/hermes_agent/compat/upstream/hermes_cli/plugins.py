"""The plugin manager and its names. Source: plugin contract §1.11."""

from hermes_agent.compat.plugin_names import discover_plugins as discover_plugins
from hermes_agent.compat.plugin_names import get_plugin_auxiliary_tasks as get_plugin_auxiliary_tasks
from hermes_agent.compat.plugin_names import get_plugin_command_handler as get_plugin_command_handler
from hermes_agent.compat.plugin_names import get_plugin_commands as get_plugin_commands
from hermes_agent.compat.plugin_names import get_plugin_manager as get_plugin_manager
from hermes_agent.compat.plugin_names import get_plugin_toolsets as get_plugin_toolsets
from hermes_agent.compat.plugin_names import has_hook as has_hook
from hermes_agent.compat.plugin_names import has_middleware as has_middleware
from hermes_agent.compat.plugin_names import invoke_hook as invoke_hook
from hermes_agent.compat.plugin_names import invoke_middleware as invoke_middleware
from hermes_agent.compat.plugin_names import resolve_plugin_command_result as resolve_plugin_command_result
from hermes_agent.contracts.middleware import VALID_MIDDLEWARE as _VALID_MIDDLEWARE
from hermes_agent.hooks import VALID_HOOKS as _VALID_HOOKS
from hermes_agent.plugins.context import PluginContext as PluginContext
from hermes_agent.plugins.entry_points import GROUP as ENTRY_POINTS_GROUP
from hermes_agent.plugins.manager import PluginManager as PluginManager
from hermes_agent.plugins.manifest import PluginManifest as PluginManifest
from hermes_agent.plugins.record import LoadedPlugin as LoadedPlugin
from hermes_agent.plugins.registering.tools import PluginToolOverrideError as PluginToolOverrideError

VALID_HOOKS = set(_VALID_HOOKS)
VALID_MIDDLEWARE = set(_VALID_MIDDLEWARE)
ENTRY_POINTS_GROUP = ENTRY_POINTS_GROUP
