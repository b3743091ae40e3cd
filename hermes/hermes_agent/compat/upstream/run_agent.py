"""An agent to talk to. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.ai_agent import AIAgent as AIAgent
