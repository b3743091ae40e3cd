"""Video generation (docs/plugins/kinds/video_gen.md): the suite, the helpers, and who is selected."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.contracts import image_video
from hermes_agent.contracts.image_video import VideoGenProvider, choose_video_gen


class InMemory(VideoGenProvider):
    """Films into the cache."""

    def __init__(self, name: str = "memory", *, available: bool = True) -> None:
        self._name, self._available = name, available

    @property
    def name(self) -> str:
        return self._name

    def is_available(self) -> bool:
        return self._available

    def generate(self, prompt: str, *, duration: int | None = None, **kwargs: Any) -> dict[str, Any]:
        if not prompt.strip():
            return image_video.video_error_response(error="empty", provider=self.name)
        video = str(image_video.save_bytes_video(b"film"))
        return image_video.video_success_response(
            video=video, model="m", prompt=prompt, duration=duration or 0, provider=self.name
        )


@pytest.fixture(params=["in memory", "example plugin"])
def provider(request: pytest.FixtureRequest, example: Callable[[str], Any], home: Path) -> VideoGenProvider:
    """Every implementation."""
    made = InMemory() if request.param == "in memory" else example("video_gen")
    assert isinstance(made, VideoGenProvider)
    return made


def test_it_says_who_it_is_and_what_it_can_do(provider: VideoGenProvider) -> None:
    assert provider.name and provider.display_name
    able = provider.capabilities()
    assert set(able) >= {
        "modalities",
        "aspect_ratios",
        "resolutions",
        "max_duration",
        "min_duration",
        "supports_audio",
        "supports_negative_prompt",
        "max_reference_images",
    }
    assert 0 < able["min_duration"] <= able["max_duration"]


def test_a_film_is_made_with_every_argument_of_the_contract(provider: VideoGenProvider) -> None:
    answer = provider.generate(
        "an otter",
        model=None,
        image_url=None,
        reference_image_urls=None,
        duration=3,
        aspect_ratio="9:16",
        resolution="1080p",
        negative_prompt="fish",
        audio=False,
        seed=1,
    )

    assert [answer[k] for k in ("success", "prompt", "duration", "provider")] == [True, "an otter", 3, provider.name]
    assert Path(answer["video"]).stat().st_size > 0


def test_a_failure_is_an_answer_with_its_reason(provider: VideoGenProvider) -> None:
    answer = provider.generate(" ")

    assert (answer["success"], answer["video"]) == (False, None)
    assert answer["error"] and answer["error_type"]


def test_the_config_selects() -> None:
    one, two = InMemory("one"), InMemory("two")
    off = InMemory("off", available=False)

    assert choose_video_gen({"one": one, "off": off}, {})[0] is one
    assert choose_video_gen({"one": one, "two": two}, {}) == (
        None,
        "several are available (one, two); set video_gen.provider",
    )
    assert choose_video_gen({"one": one, "off": off}, {"video_gen": {"provider": "off"}})[0] is off
    assert choose_video_gen({}, {"video_gen": {"provider": "X"}})[1].startswith("video_gen.provider='X' is set but no")


def test_the_helpers_write_below_the_home_and_answer_in_shape(home: Path) -> None:
    paths = [image_video.save_bytes_video(b"abc"), image_video.save_b64_video(base64.b64encode(b"abc").decode())]

    assert [(p.parent, p.suffix, p.read_bytes()) for p in paths] == [(home / "cache" / "videos", ".mp4", b"abc")] * 2
    with pytest.raises(ValueError, match="expected http"):
        image_video.save_url_video("ftp://example.org/a.mp4")
    assert image_video.video_error_response(error="e") == {
        "success": False,
        "video": None,
        "error": "e",
        "error_type": "provider_error",
        "model": "",
        "prompt": "",
        "aspect_ratio": "",
        "provider": "",
    }
    assert image_video.video_success_response(video="v", model="m", prompt="p", provider="x", extra={"id": 1}) == {
        "success": True,
        "video": "v",
        "model": "m",
        "prompt": "p",
        "modality": "text",
        "aspect_ratio": "",
        "duration": 0,
        "provider": "x",
        "id": 1,
    }


def test_the_upstream_name_is_this(served: None) -> None:
    from agent import video_gen_provider

    assert video_gen_provider.VideoGenProvider is VideoGenProvider
    assert not hasattr(video_gen_provider, "OpenAICompatibleVideoGenProvider")
