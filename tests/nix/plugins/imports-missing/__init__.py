"""Imports what nobody brings."""

import flux_capacitor


def register(ctx):
    flux_capacitor.charge()
