"""Platform: a chat service that people reach the agent through. Source: plugin contract §8.2, §7.3, §11.

`entry` is what a plugin registers, `registry` who has registered, `adapter` the class that an adapter inherits from,
`messages`, `source` and `results` what passes through it, `settings` and `enabling` what the config says of it.
"""
