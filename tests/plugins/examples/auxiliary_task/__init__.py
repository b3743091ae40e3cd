"""A slash command whose model the operator chooses: `auxiliary.example_headline`."""

from agent.auxiliary_client import call_llm, extract_content_or_reasoning

TASK = "example_headline"


def headline(raw_args):
    """/headline TEXT"""
    answer = call_llm(TASK, messages=[{"role": "user", "content": f"A headline for: {raw_args}"}], max_tokens=30)
    return extract_content_or_reasoning(answer)


def register(ctx):
    ctx.register_auxiliary_task(
        TASK,
        display_name="Headlines",
        description="Writes a headline for a text",
        defaults={"timeout": 20, "extra_body": {"top_p": 0.5}},
    )
    ctx.register_command("headline", headline, description="Write a headline", args_hint="<text>")
