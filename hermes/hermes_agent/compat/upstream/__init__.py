"""The shims: `upstream/a/b.py` is what `import a.b` gives. They hold names; what is behind them is elsewhere."""
