"""What stickers show. Source: plugin contract §11.1."""

from hermes_agent.contracts.platform.stickers import STICKER_VISION_PROMPT as STICKER_VISION_PROMPT
from hermes_agent.contracts.platform.stickers import (
    build_animated_sticker_injection as build_animated_sticker_injection,
)
from hermes_agent.contracts.platform.stickers import build_sticker_injection as build_sticker_injection
from hermes_agent.contracts.platform.stickers import cache_sticker_description as cache_sticker_description
from hermes_agent.contracts.platform.stickers import get_cached_description as get_cached_description
