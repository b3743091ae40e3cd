"""Who sends a request. Source: plugin contract §11.1."""

from hermes_agent.compat.portal import nous_portal_tags as nous_portal_tags
