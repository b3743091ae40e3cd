"""Labels of model providers. Source: plugin contract §11.2."""

from hermes_agent.compat.model_providers import get_label as get_label
