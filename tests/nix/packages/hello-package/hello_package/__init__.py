"""A package whose plugin has the name of a directory plugin."""


def register(ctx):
    ctx.register_command("hello-package", lambda arguments: "hello")
