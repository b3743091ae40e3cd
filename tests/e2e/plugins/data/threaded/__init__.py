"""Starts a thread that raises, and keeps its context for later."""

import threading

kept = {}


def register(ctx):
    def background():
        ctx.register_tool("from_a_thread", schema={"name": "from_a_thread"}, handler=lambda args, **kw: "1")
        raise RuntimeError("nobody catches this")

    kept["thread"] = threading.Thread(target=background, daemon=True)
    kept["thread"].start()
    kept["thread"].join(5)
