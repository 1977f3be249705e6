"""Every dialect there is."""

from __future__ import annotations

from . import native
from .endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (native.ENDPOINT,)
