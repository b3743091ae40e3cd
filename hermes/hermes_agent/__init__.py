"""An LLM agent that lives on a machine as a system service.

`docs/architecture.md` has the layers and the way of a message. Importing this package does nothing.
"""

__all__ = ["__version__"]

__version__ = "0.20.0"
