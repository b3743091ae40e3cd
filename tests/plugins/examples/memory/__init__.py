"""Remembers every turn until the process ends."""

import json

from agent.memory_provider import MemoryProvider

RECALL = {
    "name": "example_recall",
    "description": "Return what was said about a word.",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
}


class Notebook(MemoryProvider):
    """A list of turns."""

    def __init__(self):
        self.turns = []

    @property
    def name(self):
        return "example-notebook"

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        self.session_id = session_id

    def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
        self.turns.append(f"{user_content} / {assistant_content}")

    def prefetch(self, query, *, session_id=""):
        words = {word.strip("?!.,").lower() for word in query.split()}
        return "\n".join(turn for turn in self.turns if words & set(turn.lower().split()))

    def get_tool_schemas(self):
        return [RECALL]

    def handle_tool_call(self, tool_name, args, **kwargs):
        return json.dumps({"turns": [turn for turn in self.turns if args["word"].lower() in turn.lower()]})


def register(ctx):
    ctx.register_memory_provider(Notebook())
