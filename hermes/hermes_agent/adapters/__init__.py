"""SDK for authors of platform adapters.

A platform is a chat service through which users reach the agent. A plugin registers a `PlatformEntry`; its adapter
inherits from `BasePlatformAdapter`. Source: plugin contract §8.2, §7.3, §11.
"""
