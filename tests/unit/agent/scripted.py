"""A model that answers from a script: a second implementation of `ModelClient`, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from hermes_agent.contracts.model_client import ModelAnswer, ModelDelta, ModelRequest, TextPart
from hermes_agent.core.errors import ModelError
from hermes_agent.core.messages import Message, ToolCall, Usage

Step = str | list[ToolCall] | ModelError | asyncio.Event


class ScriptedModel:
    """Answers request N with step N: a text, tool calls, an error, or text that waits for an event to go on."""

    provider = "scripted"
    base_url = url = ""
    api_mode = "chat_completions"
    fits_within = 0

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = list(steps)
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        self.requests.append(request)
        step = self.steps[len(self.requests) - 1]
        if isinstance(step, ModelError):
            raise step
        usage = Usage(10, 2)
        if isinstance(step, list):
            yield ModelAnswer(Message("assistant", "", tuple(step)), "tool_calls", usage, "scripted-1")
            return
        if isinstance(step, asyncio.Event):
            yield TextPart("started")
            await step.wait()
            yield ModelAnswer(Message("assistant", "started"), "stop", usage, "scripted-1")
            return
        for word in step.split(" "):
            yield TextPart(word if step.startswith(word) else " " + word)
        yield ModelAnswer(Message("assistant", step), "stop", usage, "scripted-1")

    def is_priced(self, model: str) -> bool:
        return False

    def warm_up(self) -> None:
        pass

    async def aclose(self) -> None:
        pass
