"""Upstream's import names, served without anything of theirs on disk: `import_hook.install()` before plugins load."""

__all__: list[str] = []
