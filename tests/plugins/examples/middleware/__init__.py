"""One callback of each kind: a path is made tidy, calls are timed, answers come from a cache."""

import time

timings = []
answers = {}


def tidy_path(args, **kwargs):
    """`tool_request`: what is returned takes the place of the arguments."""
    path = args.get("path")
    if isinstance(path, str) and path != path.strip():
        return {"args": {**args, "path": path.strip()}, "source": "example", "reason": "blanks around a path"}
    return None


def timed(tool_name, next_call, **kwargs):
    """`tool_execution`: around the doing; what is returned is the tool's result."""
    began = time.monotonic()
    try:
        return next_call()
    finally:
        timings.append((tool_name, time.monotonic() - began))


def cooler(request, **kwargs):
    """`llm_request`: the keywords of the provider's call."""
    return {"request": {**request, "temperature": 0.0}, "source": "example"}


def cached(request, next_call, **kwargs):
    """`llm_execution`: what is returned is the model's response."""
    question = str(request["messages"])
    if question not in answers:
        answers[question] = next_call(request)
    return answers[question]


def register(ctx):
    ctx.register_middleware("tool_request", tidy_path)
    ctx.register_middleware("tool_execution", timed)
    ctx.register_middleware("llm_request", cooler)
    ctx.register_middleware("llm_execution", cached)
