"""A provider of each kind that a process of its own may have."""

from pathlib import Path

from agent.browser_provider import BrowserProvider
from agent.context_engine import ContextEngine
from agent.image_gen_provider import ImageGenProvider
from agent.memory_provider import MemoryProvider
from agent.secret_sources.base import ErrorKind, FetchResult, SecretSource
from agent.terminal_env_provider import TerminalEnvironmentProvider
from agent.transcription_provider import TranscriptionProvider
from agent.tts_provider import TTSProvider
from agent.video_gen_provider import VideoGenProvider
from agent.web_search_provider import WebSearchProvider


class Named:
    name = "own"

    def is_available(self):
        return True


class Search(Named, WebSearchProvider):
    def search(self, query, limit=5):
        return {"success": True, "data": {"web": [{"title": query, "url": "https://example.org", "description": ""}]}}

    def supports_extract(self):
        return True

    def extract(self, urls, **kwargs):
        return [{"url": url, "title": "", "content": "page"} for url in urls]


class Speaker(Named, TTSProvider):
    def synthesize(self, text, output_path, **kwargs):
        made = Path(output_path).with_suffix(".md" if text == "notes" else Path(output_path).suffix)
        made.write_bytes(text.encode())
        return str(made)

    def list_voices(self):
        return [{"id": "alto"}]

    def stream(self, text, **kwargs):
        yield from (text[:2].encode(), text[2:].encode())


class Listener(Named, TranscriptionProvider):
    def transcribe(self, file_path, **kwargs):
        return {"success": True, "transcript": Path(file_path).read_text(), "provider": self.name}


class Painter(Named, ImageGenProvider):
    def generate(self, prompt, **kwargs):
        if prompt.startswith("/"):
            return {"success": True, "image": prompt}
        file, before = Path.home() / "picture.png", Path(kwargs["image_url"]).read_bytes()
        assert kwargs["reference_image_urls"] == ["https://example.org/x.png"]
        file.write_bytes(prompt.encode() + b" beside " + before)
        return {"success": True, "image": str(file), "provider": self.name}


class Filmer(Named, VideoGenProvider):
    def generate(self, prompt, **kwargs):
        return {"success": True, "video": f"https://example.org/{prompt}.mp4", "provider": self.name}


class Browser(Named, BrowserProvider):
    def create_session(self, task_id):
        return {"session_name": task_id, "cdp_url": "ws://example.org"}

    def close_session(self, session_id):
        return session_id == "s1"

    def emergency_cleanup(self, session_id):
        pass


class Environment:
    def __init__(self, cwd):
        self.cwd = cwd

    def execute(self, command, cwd="", **kwargs):
        return {"output": f"{command} in {cwd or self.cwd}", "returncode": 0}

    def cleanup(self):
        self.cwd = ""


class Terminal(Named, TerminalEnvironmentProvider):
    def create_environment(self, *, cwd, timeout, task_id="default", **kwargs):
        return Environment(cwd)


class Secrets(SecretSource):
    name = "own"
    label = "Own"

    def fetch(self, cfg, home_path):
        if cfg.get("fail"):
            return FetchResult.fail("locked", ErrorKind.NETWORK)
        return FetchResult(secrets={"OWN_TOKEN": cfg["value"]})


class Engine(Named, ContextEngine):
    def should_compress(self, prompt_tokens=None):
        return True

    def update_from_response(self, usage):
        self.last_prompt_tokens = usage["prompt_tokens"]

    def compress(self, messages, current_tokens=None, focus_topic=None, **kwargs):
        return messages[-1:]


class Memory(Named, MemoryProvider):
    def initialize(self, session_id, **kwargs):
        self.session = session_id

    def get_tool_schemas(self):
        return [{"name": "recall", "description": "recalls", "parameters": {"type": "object", "properties": {}}}]

    def handle_tool_call(self, tool_name, args, **kwargs):
        return f"{tool_name} of {self.session}"

    def prefetch(self, query, *, session_id=""):
        return f"about {query}"


def register(ctx):
    ctx.register_web_search_provider(Search())
    ctx.register_tts_provider(Speaker())
    ctx.register_transcription_provider(Listener())
    ctx.register_image_gen_provider(Painter())
    ctx.register_video_gen_provider(Filmer())
    ctx.register_browser_provider(Browser())
    ctx.register_terminal_environment_provider(Terminal())
    ctx.register_secret_source(Secrets())
    ctx.register_context_engine(Engine())
    ctx.register_memory_provider(Memory())
    ctx.register_redaction_patterns([r"own-[0-9]{6}"])
    ctx.register_automation_blueprint(
        "daily", title="Daily", description="d", schedule_template="0 9 * * *", prompt_template="Report."
    )
