"""What a message that was not sent looks like. Source: plugin contract §11.2, §11.3."""


def _error(message: str) -> dict[str, object]:
    """Return the result of a message that could not be sent."""
    return {"success": False, "error": str(message)}
