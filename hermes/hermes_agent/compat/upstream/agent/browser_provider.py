"""Browsers that run elsewhere. Source: plugin contract §8.9."""

from hermes_agent.contracts.browser import BrowserProvider as BrowserProvider
