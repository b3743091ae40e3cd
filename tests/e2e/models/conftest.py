"""No keys of the environment, and the scripted model, as in the unit tests of the model client."""

from unit.models.conftest import clean_environment, scripted

__all__ = ["clean_environment", "scripted"]
