"""A plugin with every fault that must stay its own."""

import ctypes
import os

KEPT = []


def _leave(args, **_):
    os._exit(3)


def _crash(args, **_):
    return ctypes.string_at(0)


def _hold(args, **_):
    return str(ctypes.PyDLL(None).pause())  # PyDLL holds the interpreter's lock during the call


def _leak(args, **_):
    while True:
        KEPT.append(bytearray(b"x") * 2**24)


def _spin(args, **_):
    while True:
        pass


def _add(args, **_):
    return str(args["a"] + args["b"])


def register(ctx):
    for name, handler in (("leave", _leave), ("crash", _crash), ("hold", _hold), ("leak", _leak), ("spin", _spin)):
        ctx.register_tool(name, None, {"name": name, "parameters": {"type": "object", "properties": {}}}, handler)
    numbers = {name: {"type": "integer"} for name in "ab"}
    ctx.register_tool("add", None, {"name": "add", "parameters": {"type": "object", "properties": numbers}}, _add)
