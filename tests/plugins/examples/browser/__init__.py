"""Browsers that exist on paper alone."""

from agent.browser_provider import BrowserProvider


class Paper(BrowserProvider):
    """Counts its browsers."""

    def __init__(self):
        self.open = {}

    @property
    def name(self):
        return "example-paper"

    def is_available(self):
        return True

    def create_session(self, task_id):
        number = f"paper-{len(self.open) + 1}"
        self.open[number] = task_id
        return {
            "session_name": f"hermes-{task_id}",
            "bb_session_id": number,
            "cdp_url": f"ws://127.0.0.1:9/{number}",
            "features": {"local": True},
        }

    def close_session(self, session_id):
        return self.open.pop(session_id, None) is not None

    def emergency_cleanup(self, session_id):
        self.open.pop(session_id, None)


def register(ctx):
    ctx.register_browser_provider(Paper())
