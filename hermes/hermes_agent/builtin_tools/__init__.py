"""Tools without a subsystem of their own, from `delegate_task` to `web_extract`."""

from __future__ import annotations
