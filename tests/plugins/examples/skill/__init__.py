"""Two skills about tea, registered as the guide does it."""

from pathlib import Path


def register(ctx):
    for child in sorted((Path(__file__).parent / "skills").iterdir()):
        skill_md = child / "SKILL.md"
        if child.is_dir() and skill_md.exists():
            ctx.register_skill(child.name, skill_md)
