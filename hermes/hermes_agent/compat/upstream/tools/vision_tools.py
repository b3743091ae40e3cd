"""What is on a picture. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.media_calls import vision_analyze_tool as vision_analyze_tool
