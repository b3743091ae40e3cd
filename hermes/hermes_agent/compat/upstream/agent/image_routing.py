"""What kind of picture it is. Source: plugin contract §11.2, §11.3."""

from hermes_agent.media.picture_types import image_type as _real_image_type

_sniff_mime_from_bytes = _real_image_type
