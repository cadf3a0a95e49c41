"""JSON over HTTP as an upstream of kblockd, with requests and the meaning of answers defined by configuration.

``settings`` the frozen model of an upstream's settings · ``request`` templates to requests · ``classify`` answers to
outcomes · ``adapter`` the exchange itself. Nothing here retries, follows redirects, caches or keeps state.
"""

from __future__ import annotations

from typing import Literal

from kblockd.upstream.adapter import AdapterContext
from kblockd_http.adapter import HttpAdapter
from kblockd_http.settings import Settings


class HttpPlugin:
    """The entry point ``http`` of group kblockd.adapters."""

    api_version: Literal[2] = 2
    settings_model = Settings

    def open(self, context: AdapterContext) -> HttpAdapter:
        """The adapter of one upstream; no I/O."""
        return HttpAdapter(context)


ADAPTER = HttpPlugin()
