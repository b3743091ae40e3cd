"""The hook `pre_tts_synthesis`, which judges texts before they are spoken.

Source: contract of 0.23 §7.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.hooks import HookResult

HOOK = "pre_tts_synthesis"


class SpeechVerdict(LazyNamedTuple):
    """The text to speak, or why nothing is spoken."""

    text: str
    refusal: str = ""


def judge_speech(
    fire: Callable[..., Sequence[HookResult]],
    text: str,
    provider: str,
    *,
    required: Iterable[str] = (),
    listening: Collection[str] = (),
) -> SpeechVerdict:
    """Return what the plugins let be spoken; failed, late and unknown answers refuse.

    A rewritten text is judged once more by all plugins, and must then stay as it is.

    Args:
        required: keys of plugins that must have the hook, else nothing is spoken.
        listening: keys of the plugins that have the hook.
    """
    if missing := sorted(set(required) - set(listening)):
        return SpeechVerdict(text, f"tts.pre_synthesis.required_plugins: {', '.join(missing)} does not judge texts")
    spoken, refusal = _judge_once(fire, text, provider)
    if refusal or spoken == text:
        return SpeechVerdict(text, refusal)
    again, refusal = _judge_once(fire, spoken, provider)
    if not refusal and again != spoken:
        refusal = "plugins do not agree on the text to speak"
    return SpeechVerdict(spoken, refusal)


def _judge_once(fire: Callable[..., Sequence[HookResult]], text: str, provider: str) -> tuple[str, str]:
    """Return the text after the first rewrite, and the first refusal."""
    spoken = text
    for result in fire(HOOK, text=text, provider=provider):
        if result.error is not None:
            return text, f"plugin {result.plugin} did not judge the text: {result.error}"
        answer: Any = result.value
        if answer is None:
            continue
        if isinstance(answer, dict) and answer.get("action") == "block":
            return text, f"plugin {result.plugin} refuses it: {answer.get('message') or 'without a reason'}"
        rewritten = answer.get("text") if isinstance(answer, dict) and "action" not in answer else None
        if not isinstance(rewritten, str) or not rewritten.strip():
            return text, f"plugin {result.plugin} answered {HOOK} with {answer!r:.80}"
        spoken = rewritten if spoken == text else spoken
    return spoken, ""
