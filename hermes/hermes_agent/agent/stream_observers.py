"""Hooks that observe the stream of an answer."""

from __future__ import annotations

from typing import Any

from hermes_agent.contracts.model_client import ModelAnswer, ModelDelta, ReasoningPart
from hermes_agent.hooks import HookBus


class StreamObservers:
    """Reports the stream of an answer to observers, without waiting for them."""

    def __init__(self, hooks: HookBus, keywords: dict[str, Any]) -> None:
        self._hooks = hooks
        self._keywords = keywords
        self._pieces: list[str] = []
        self._count = 0
        self._finish_reason = ""
        self._begun = self._ended = False

    def add(self, item: ModelDelta) -> None:
        """Report one item of the stream."""
        if isinstance(item, ReasoningPart) and not self._hooks.streams_reasoning:
            return
        if not self._begun:
            self._begun = True
            self._post("on_stream_start")
        if isinstance(item, ModelAnswer):
            self._finish_reason, self._ended = item.finish_reason, True
            self.end()
            return
        kind = "reasoning" if isinstance(item, ReasoningPart) else "text"
        self._post("on_stream_delta", delta=item.text, kind=kind, index=self._count)
        self._count += 1
        if kind == "text":
            self._pieces.append(item.text)

    def end(self) -> None:
        """Report the end once, if the stream had begun."""
        if self._begun:
            self._begun = False
            text = "".join(self._pieces)
            self._post(
                "on_stream_end",
                final_text=text,
                finished=self._ended,
                error=None if self._ended else "the stream ended before the answer was complete",
                chars=len(text),
                finish_reason=self._finish_reason,
                completed=self._ended,
            )

    def _post(self, hook: str, **more: Any) -> None:
        if self._hooks.has(hook):
            self._hooks.post(hook, **self._keywords, **more)
