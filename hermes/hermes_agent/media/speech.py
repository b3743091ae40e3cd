"""Programs for speech (`tts.providers`, `stt.providers`), and speech while it is made.

Source: plugin contract §9.5; contract of 0.23 §9.6.
"""

from __future__ import annotations

import logging
import re
import shlex
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from hermes_agent.contracts.speech import (
    DEFAULT_OUTPUT_FORMAT,
    OUTPUT_FORMATS,
    STREAMING_PROVIDERS,
    AudioFormat,
    StreamingTTSProvider,
    TranscriptionProvider,
    TTSProvider,
)
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.media.speech_guard import SpeechVerdict
from hermes_agent.system import processes

logger = logging.getLogger(__name__)

SENTENCE_BYTES = 16 * 1024 * 1024
"""Most sound of one sentence; the rest of it is dropped."""
_SENTENCE_END = re.compile(r"(?<=[.!?…。！？])\s+|\n+")

OUTPUT_BYTES = 20_000
MAX_TEXT = 5_000

_PLACE = re.compile(r"\{\{|\}\}|\{([a-z_]+)\}")


def fill_command(template: str, values: Mapping[str, str]) -> str:
    """Return a command line with a value for each `{name}`, quoted to fit its place; `{{` is a brace.

    Raises:
        UserError: a name has no value.
    """
    done: list[str] = []
    quote, at = "", 0
    for match in _PLACE.finditer(template):
        between = template[at : match.start()]
        quote = _quote_after(between, quote)
        done.append(between)
        at = match.end()
        name = match[1]
        if name is None:
            done.append(match[0][0])
        elif name in values:
            done.append(_quoted(values[name], quote))
        else:
            raise UserError(f"the command has {{{name}}}, which has no value", hint=f"It may have {', '.join(values)}.")
    return "".join(done) + template[at:]


def _quote_after(text: str, quote: str) -> str:
    """Return the quote that is open after `text`, or ""."""
    skip = False
    for char in text:
        if skip:
            skip = False
        elif char == "\\" and quote != "'":
            skip = True
        elif char == quote:
            quote = ""
        elif char in "'\"" and not quote:
            quote = char
    return quote


def _quoted(value: str, quote: str) -> str:
    if quote == "'":
        return value.replace("'", "'\\''")
    if quote == '"':
        return re.sub(r'([\\"$`])', r"\\\1", value)
    return shlex.quote(value)


class _Program:
    limit_s: ClassVar[float]

    def __init__(self, name: str, settings: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        self._name = name
        self._settings = settings
        self._environment = environment

    @property
    def name(self) -> str:
        """The name in the config."""
        return self._name

    def _run(self, **values: str) -> str:
        """Run the command and return its output, or raise UserError if it fails."""
        done = processes.run(
            fill_command(str(self._settings["command"]), values),
            cwd=Path.home(),
            env=self._environment,
            timeout_s=float(self._settings.get("timeout") or self.limit_s),
            output_limit_bytes=OUTPUT_BYTES,
            cancelled=threading.Event(),
        )
        output = (done.head + done.tail).decode("utf-8", errors="replace")
        if done.exit_code != 0:
            raise UserError(
                f"the program of `{self._name}` ended with status {done.exit_code}: {output[-500:].strip()}"
            )
        return output

    def _setting(self, name: str, given: object = None) -> str:
        return str(given if given is not None else self._settings.get(name) or "")


class SpeechProgram(_Program, TTSProvider):
    """A program that turns a text file into a recording."""

    limit_s = 120.0

    @property
    def output_format(self) -> str:
        """Format of its recordings."""
        configured = self._settings.get("output_format") or self._settings.get("format") or DEFAULT_OUTPUT_FORMAT
        return str(configured) if configured in OUTPUT_FORMATS else DEFAULT_OUTPUT_FORMAT

    @property
    def voice_compatible(self) -> bool:
        """Whether its recordings may be sent as voice messages."""
        return self._settings.get("voice_compatible") is True

    def synthesize(self, text: str, output_path: str, **wanted: Any) -> str:
        """Write a recording; raise UserError if the program fails or writes nothing."""
        longest = int(self._settings.get("max_text_length") or MAX_TEXT)
        if len(text) > longest:
            raise UserError(f"the text has {len(text):,} characters: `{self.name}` takes {longest:,}")
        with tempfile.TemporaryDirectory(prefix="hermes-speech-") as folder:
            source = Path(folder) / "text.txt"
            source.write_text(text, encoding="utf-8")
            self._run(
                input_path=str(source),
                text_path=str(source),
                output_path=output_path,
                format=self.output_format,
                voice=self._setting("voice", wanted.get("voice")),
                model=self._setting("model", wanted.get("model")),
                speed=self._setting("speed", wanted.get("speed")) or "1",
            )
        written = Path(output_path)
        if not written.is_file() or not written.stat().st_size:
            raise UserError(f"the program of `{self.name}` wrote nothing to {{output_path}}")
        return output_path


class TranscriptionProgram(_Program, TranscriptionProvider):
    """A program that transcribes a recording: to `{output_path}`, a `.txt` in `{output_dir}`, or stdout."""

    limit_s = 300.0

    def transcribe(
        self, file_path: str, *, model: str | None = None, language: str | None = None, **extra: Any
    ) -> dict[str, Any]:
        """Transcribe a recording; raise UserError if the program fails."""
        with tempfile.TemporaryDirectory(prefix="hermes-listening-") as folder:
            output = Path(folder) / "transcript.txt"
            output_text = self._run(
                input_path=file_path,
                output_path=str(output),
                output_dir=folder,
                format=self._setting("format") or "txt",
                language=self._setting("language", language),
                model=self._setting("model", model),
            )
            written = [output] if output.exists() else sorted(Path(folder).glob("*.txt"))
            text = written[0].read_text(encoding="utf-8", errors="replace") if written else output_text
        return {"success": True, "transcript": text.strip(), "provider": self.name}


class SpeechStream(LazyNamedTuple):
    """The speech of a text while it is made."""

    format: AudioFormat
    pieces: Iterator[bytes]
    """Raw sound; the next piece is made when it is asked for."""


class _Speaker(LazyNamedTuple):
    """What makes the sound of one sentence."""

    name: str
    format: AudioFormat
    stream: Callable[[str], Iterator[bytes]]


def streaming_provider(tts: Mapping[str, Any]) -> StreamingTTSProvider | None:
    """Return the registered speaker that `tts.provider` names while its `streaming` is true, or None."""
    name = str(tts.get("provider") or "")
    section = tts.get(name)
    kind = STREAMING_PROVIDERS.get(name)
    if kind is None or not isinstance(section, Mapping) or not section.get("streaming") or not kind.available():
        return None
    return kind(tts, section)


def stream_speech(
    text: str, tts: Mapping[str, Any], provider: TTSProvider | None, judge: Callable[[str, str], SpeechVerdict]
) -> SpeechStream | None:
    """Return the speech of a text, sentence by sentence; None if the provider makes files alone.

    Args:
        tts: the block `tts` of the config.
        judge: asks the plugins for their verdict, of a sentence and the name of the provider.
    """
    own = streaming_provider(tts)
    if own is not None:
        sound = AudioFormat(own.sample_rate, own.channels, own.sample_width)
        speaker = _Speaker(str(tts.get("provider")), sound, own.stream)
    elif provider is not None and getattr(provider, "streams_pcm", False) and provider.stream_sample_rate:
        speaker = _Speaker(provider.name, AudioFormat(int(provider.stream_sample_rate)), provider.stream)
    else:
        return None
    return SpeechStream(speaker.format, _spoken(split_sentences(text), speaker, judge))


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [sentence for part in _SENTENCE_END.split(text) if (sentence := part.strip())]


def _spoken(sentences: list[str], speaker: _Speaker, judge: Callable[[str, str], SpeechVerdict]) -> Iterator[bytes]:
    """Yield the sound of each sentence; a refused one ends the speech."""
    for sentence in sentences:
        verdict = judge(sentence, speaker.name)
        if verdict.refusal:
            logger.warning("speech of %s ended early: %s", speaker.name, verdict.refusal)
            return
        size = 0
        for piece in speaker.stream(verdict.text):
            size += len(piece)
            if size > SENTENCE_BYTES:
                logger.warning("speech of %s: a sentence has over %d MiB", speaker.name, SENTENCE_BYTES >> 20)
                break
            yield piece
