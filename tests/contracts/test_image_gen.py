"""Image generation (docs/plugins/kinds/image_gen.md): the suite, the helpers, and who is selected."""

from __future__ import annotations

import base64
import http.server
import inspect
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hermes_agent.contracts import image_video
from hermes_agent.contracts.image_video import ImageGenProvider, choose_image_gen
from hermes_agent.media.service import generate_image

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


class InMemory(ImageGenProvider):
    """Draws into the answer."""

    def __init__(self, name: str = "memory", *, available: bool = True) -> None:
        self._name, self._available = name, available

    @property
    def name(self) -> str:
        return self._name

    def is_available(self) -> bool:
        return self._available

    def generate(self, prompt: str, aspect_ratio: str = "landscape", **kwargs: Any) -> dict[str, Any]:
        about = {"provider": self.name, "model": "m", "prompt": prompt, "aspect_ratio": aspect_ratio}
        if not prompt.strip():
            return image_video.image_error_response(error="empty", **about)
        return image_video.image_success_response(image="data:image/png;base64,AA==", **about)


@pytest.fixture(params=["in memory", "example plugin"])
def provider(request: pytest.FixtureRequest, example: Callable[[str], Any]) -> ImageGenProvider:
    """Every implementation."""
    made = InMemory() if request.param == "in memory" else example("image_gen")
    assert isinstance(made, ImageGenProvider)
    return made


def test_it_says_who_it_is(provider: ImageGenProvider) -> None:
    assert provider.name and provider.display_name
    assert {"name", "badge", "tag", "env_vars"} <= set(provider.get_setup_schema())
    assert {"modalities", "max_reference_images"} <= set(provider.capabilities())
    assert provider.default_model() == next((m["id"] for m in provider.list_models()), None)


@pytest.mark.parametrize("ratio", image_video.VALID_ASPECT_RATIOS)
def test_a_picture_is_drawn_in_each_aspect_ratio(provider: ImageGenProvider, ratio: str) -> None:
    answer = generate_image(provider, "an otter", ratio)

    assert {"model", "modality"} <= set(answer)
    assert [answer[k] for k in ("success", "prompt", "aspect_ratio", "provider")] == [
        True,
        "an otter",
        ratio,
        provider.name,
    ]
    assert answer["image"].startswith("data:") or Path(answer["image"]).is_file()


def test_pictures_to_look_at_are_accepted_or_left_out(provider: ImageGenProvider) -> None:
    answer = generate_image(provider, "x", image_url="https://example.org/a", reference_image_urls=["b", " "])

    assert answer["success"] is True


def test_a_failure_is_an_answer_with_its_reason(provider: ImageGenProvider) -> None:
    answer = generate_image(provider, " ")

    assert (answer["success"], answer["image"]) == (False, None)
    assert answer["error"] and answer["error_type"]


def make(generate: Any) -> ImageGenProvider:
    return type("Made", (ImageGenProvider,), {"name": "made", "generate": generate})()


def test_the_guide_s_provider_that_returns_a_path_draws() -> None:
    answer = generate_image(make(lambda self, prompt, *a, **kw: "/tmp/a.png"), "x", "Square", model="m")

    assert answer == {
        "success": True,
        "image": "/tmp/a.png",
        "model": "m",
        "prompt": "x",
        "aspect_ratio": "square",
        "modality": "text",
        "provider": "made",
    }
    assert generate_image(make(lambda self, *a, **kw: Path("/tmp/a.png")), "x")["image"] == "/tmp/a.png"
    nothing = generate_image(make(lambda self, *a, **kw: None), "x")
    assert (nothing["success"], nothing["error"]) == (False, "generate() returned None: expected a dict")


def test_one_that_takes_no_pictures_is_called_once_more_without_them() -> None:
    calls: list[str] = []

    def narrow(self: Any, prompt: str, aspect_ratio: str) -> str:
        calls.append(prompt)
        return "a.png"

    assert generate_image(make(narrow), "x", image_url="u")["success"] is True
    assert calls == ["x"]


def test_one_that_raises_makes_an_error_of_it() -> None:
    def broken(self: Any, prompt: str, aspect_ratio: str, **kwargs: Any) -> None:
        raise TypeError("inside")

    answer = generate_image(make(broken), "x", image_url="u")

    assert (answer["error"], answer["error_type"]) == ("TypeError: inside", "provider_error")


def test_the_config_selects() -> None:
    one, off = InMemory("one"), InMemory("off", available=False)

    def choose(name: str, *providers: InMemory) -> tuple[Any, str]:
        return choose_image_gen({p.name: p for p in providers}, {"image_gen": {"provider": name}})

    assert choose("off", one, off)[0] is off
    assert choose("", one, off) == (one, "`one` is the only one available")
    assert choose("", one, InMemory("two")) == (
        None,
        "several are available (one, two); set image_gen.provider",
    )
    assert choose("", one, InMemory("fal"))[0].name == "fal"
    assert choose("", off) == (None, "none is available")
    assert choose("X", one) == (
        None,
        "image_gen.provider='X' is set but no plugin registered that name. Run `hermes plugins list` to see available "
        "image gen backends.",
    )


def test_aspect_ratios_and_reference_images_are_put_in_order() -> None:
    assert [image_video.resolve_aspect_ratio(v) for v in (" Square ", "portrait", "4:3", None)] == [
        "square",
        "portrait",
        "landscape",
        "landscape",
    ]
    assert image_video.normalize_reference_images(" a ") == ["a"]
    assert image_video.normalize_reference_images(("a", "", None, 3, "b ")) == ["a", "b"]
    assert [image_video.normalize_reference_images(v) for v in (None, "", [], {}, 3)] == [None] * 5


def test_the_answers_have_the_contract_s_keys() -> None:
    extra = {"seed": 4, "success": False}
    good = image_video.image_success_response(
        image="i", model="m", prompt="p", aspect_ratio="square", provider="x", modality="image", extra=extra
    )
    assert good == {
        "success": True,
        "image": "i",
        "model": "m",
        "prompt": "p",
        "aspect_ratio": "square",
        "modality": "image",
        "provider": "x",
        "seed": 4,
    }
    assert image_video.image_error_response(error="e") == {
        "success": False,
        "image": None,
        "error": "e",
        "error_type": "provider_error",
        "model": "",
        "prompt": "",
        "aspect_ratio": "landscape",
        "provider": "",
    }


def test_base64_becomes_a_private_file_below_the_home(home: Path) -> None:
    text = base64.b64encode(PNG).decode()

    path = image_video.save_b64_image(text, prefix="../../x", extension="/jpg")
    again = image_video.save_b64_image(f"data:image/png;base64,{text[:8]}\n{text[8:]}")

    assert path.read_bytes() == again.read_bytes() == PNG
    assert {path.parent, again.parent} == {home / "cache" / "images"}
    assert (path.name[:2], path.suffix, again.name[:6], again.suffix) == ("x_", ".jpg", "image_", ".png")
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ValueError, match="not base64"):
        image_video.save_b64_image("%%%")
    with pytest.raises(ValueError, match="empty file"):
        image_video.save_b64_image("")


@pytest.fixture
def site() -> Iterator[str]:
    """A server with pictures."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("Location", "/a.webp")
                self.end_headers()
                return
            self.send_response(404 if self.path == "/gone" else 200)
            if self.path == "/typed":
                self.send_header("Content-Type", "image/jpeg; charset=x")
            self.end_headers()
            self.wfile.write(PNG)

        def log_message(self, *args: Any) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_address_becomes_a_file(home: Path, site: str) -> None:
    saved = [image_video.save_url_image(f"{site}{path}") for path in ("/typed", "/moved", "/plain", "/b.webp?x=1")]

    assert [path.read_bytes() for path in saved] == [PNG] * 4
    assert [path.suffix for path in saved] == [".jpg", ".png", ".png", ".webp"]
    with pytest.raises(ValueError, match="limit of 10 bytes"):
        image_video.save_url_image(f"{site}/typed", max_bytes=10)
    with pytest.raises(httpx.HTTPStatusError):
        image_video.save_url_image(f"{site}/gone")
    with pytest.raises(ValueError, match="expected http"):
        image_video.save_url_image("file:///etc/passwd")
    assert len(list((home / "cache" / "images").iterdir())) == 4


def test_a_fetch_has_one_deadline_for_the_whole_of_it() -> None:
    with pytest.raises(TimeoutError, match="was not fetched in time: 1 bytes so far"):
        image_video._read(iter([b"x", b"y"]), "http://example.org", end=0.0, max_bytes=100)


def test_the_upstream_names_have_the_contract_s_signatures(served: None) -> None:
    from agent import image_gen_provider as upstream

    assert upstream.ImageGenProvider is ImageGenProvider
    assert str(inspect.signature(upstream.save_url_image)).startswith(
        "(url: 'str', *, prefix: 'str' = 'image', timeout: 'float' = 60.0, max_bytes: 'int' = 26214400)"
    )
