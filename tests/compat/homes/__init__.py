"""Homes made by the published program in several versions."""
