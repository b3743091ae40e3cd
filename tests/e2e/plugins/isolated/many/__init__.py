"""A plugin that registers one of each kind, and asks the host for everything."""

import asyncio
import json
import os
from pathlib import Path

from agent.context_engine import ContextEngine
from agent.image_gen_provider import ImageGenProvider
from agent.web_search_provider import WebSearchProvider
from tools.registry import registry


def schema(name):
    return {"name": name, "description": name, "parameters": {"type": "object", "properties": {"x": {}}}}


class Search(WebSearchProvider):
    name = "many-search"
    display_name = "Many"

    def is_available(self):
        return True

    def search(self, query, limit=5):
        return {"success": True, "data": {"web": [{"title": query, "url": "https://example.org", "description": ""}]}}


class Painter(ImageGenProvider):
    name = "many-image"

    def is_available(self):
        return True

    def generate(self, prompt, **kwargs):
        return {"success": True, "image": f"/tmp/{prompt}.png", "provider": self.name}


class Engine(ContextEngine):
    name = "many-engine"

    def should_compress(self, prompt_tokens=None):
        return (prompt_tokens or 0) > self.threshold_tokens

    def compress(self, messages, current_tokens=None, focus_topic=None, **kwargs):
        self.compression_count += 1
        return messages[-1:]


class Reference:
    prefix = "ticket"

    async def expand(self, value):
        await asyncio.sleep(0)
        return f"ticket {value}"


def register(ctx):
    def look(args, **_):
        return json.dumps(
            {
                "environment": dict(os.environ),
                "files": {path: os.path.exists(path) for path in args["x"]},
                "sockets": sorted(os.listdir("/run")),
            }
        )

    def ask(args, **_):
        member, *names = args["x"][0].split(".")
        value = getattr(ctx, member)
        for name in names:
            value = getattr(value, name)
        try:
            return json.dumps({"answer": repr(value(*args["x"][1:]))})
        except Exception as exc:
            return json.dumps({"raised": f"{type(exc).__name__}: {exc}"})

    def chain(args, **_):
        return ctx.dispatch_tool("later", {"x": args["x"]})

    async def later(args, **_):
        await asyncio.sleep(0)
        return f"later {args['x']}"

    ctx.register_tool("look", None, schema("look"), look)
    ctx.register_tool("ask", None, schema("ask"), ask, check_fn=lambda: True)
    ctx.register_tool("later", None, schema("later"), later, is_async=True)
    ctx.register_tool("chain", None, schema("chain"), chain)
    registry.register("direct", "many", schema("direct"), lambda args, **_: "direct")

    def guard(tool_name, args, **_):
        return {"action": "block", "message": "not today"} if args.get("x") == "forbidden" else None

    def wrap(next_call, args, **_):
        return next_call(args)

    ctx.register_hook("pre_tool_call", guard)
    ctx.register_hook("post_tool_call", lambda **_: None)
    ctx.register_middleware("tool_execution", wrap)
    ctx.register_command("fold", lambda ctx, raw: f"{ctx.plugin_id} folds {raw}", "folds", "WHAT")
    ctx.register_command("unfold", lambda raw: f"unfolds {raw}")
    ctx.register_skill("fold", Path(__file__).parent / "skill" / "SKILL.md")
    ctx.register_web_search_provider(Search())
    ctx.register_image_gen_provider(Painter())
    ctx.register_context_engine(Engine())
    ctx.register_context_reference(Reference())
    ctx.register_auxiliary_task("many_task", display_name="Many", description="A task")
    ctx.register_system_prompt_section("many", lambda info: f"seen by {info['platform']}")
    ctx.register_locale("de", {"many": {"hello": "Hallo"}})
    ctx.subscribe("many:done", lambda **payload: ctx.state.set("done", payload))
