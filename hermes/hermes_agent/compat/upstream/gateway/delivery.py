"""Where messages are delivered: plugins look whether it has a name, and find none, since nothing is routed here."""


def __getattr__(name: str) -> object:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}: this release has no gateway that delivers")
