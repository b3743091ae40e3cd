"""No keys of the environment, as in the unit tests of the model client."""

from unit.models.conftest import clean_environment

__all__ = ["clean_environment"]
