"""Side tasks ask the model. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.auxiliary_client import async_call_llm as async_call_llm
from hermes_agent.compat.auxiliary_client import call_llm as call_llm
from hermes_agent.compat.auxiliary_client import extract_content_or_reasoning as extract_content_or_reasoning
