"""Keeps the ends of a conversation."""

from agent.context_engine import ContextEngine


class Ends(ContextEngine):
    """Leaves out the middle."""

    @property
    def name(self):
        return "example-ends"

    def should_compress(self, prompt_tokens=None):
        return (prompt_tokens or self.last_prompt_tokens) > self.threshold_tokens

    def compress(self, messages, current_tokens=None, focus_topic=None, force=False, memory_context=""):
        first, last = self.protect_first_n, self.protect_last_n
        if len(messages) <= first + last:
            return messages
        self.compression_count += 1
        return messages[:first] + messages[-last:]


def register(ctx):
    ctx.register_context_engine(Ends())
