"""Contracts of the extension kinds, a module each: the names and signatures that plugins implement."""
