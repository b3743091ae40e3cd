"""What `ctx.llm` is, takes and gives. Source: plugin contract §5."""

from hermes_agent.plugins.llm.client import PluginLlm as PluginLlm
from hermes_agent.plugins.llm.trust import PluginLlmTrustError as PluginLlmTrustError
from hermes_agent.plugins.llm.values import PluginLlmCompleteResult as PluginLlmCompleteResult
from hermes_agent.plugins.llm.values import PluginLlmImageInput as PluginLlmImageInput
from hermes_agent.plugins.llm.values import PluginLlmStructuredResult as PluginLlmStructuredResult
from hermes_agent.plugins.llm.values import PluginLlmTextInput as PluginLlmTextInput
from hermes_agent.plugins.llm.values import PluginLlmUsage as PluginLlmUsage
