"""Image generation. Source: plugin contract §8.5, §11.2."""

from hermes_agent.contracts.image_gen import DEFAULT_ASPECT_RATIO as DEFAULT_ASPECT_RATIO
from hermes_agent.contracts.image_gen import VALID_ASPECT_RATIOS as VALID_ASPECT_RATIOS
from hermes_agent.contracts.image_gen import ImageGenProvider as ImageGenProvider
from hermes_agent.contracts.image_gen import error_response as error_response
from hermes_agent.contracts.image_gen import normalize_reference_images as normalize_reference_images
from hermes_agent.contracts.image_gen import resolve_aspect_ratio as resolve_aspect_ratio
from hermes_agent.contracts.image_gen import save_b64_image as save_b64_image
from hermes_agent.contracts.image_gen import save_url_image as save_url_image
from hermes_agent.contracts.image_gen import success_response as success_response
