"""Workplaces, as in the unit tests of the workspace."""

from unit.workspace.conftest import boxed, place_with, workplace

__all__ = ["boxed", "place_with", "workplace"]
