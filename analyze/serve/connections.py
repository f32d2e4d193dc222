"""Limits on connections: idle ones are closed, and the number per client is limited."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol

SILENT_S = 5.0
"""Close a new connection without a complete request header after this time."""
MOST_OF_A_CLIENT = 64
"""Simultaneous connections of one address; a browser opens six."""


def limited() -> type[H11Protocol]:
    """Return Uvicorn's protocol for HTTP with these limits."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Limited(H11Protocol):
        open_by_client: ClassVar[Counter[str]] = Counter()

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._address = self.client[0] if self.client else ""
            self.open_by_client[self._address] += 1
            self._silent = self.loop.call_later(SILENT_S, self._close_if_silent)
            if self.open_by_client[self._address] > MOST_OF_A_CLIENT:
                transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            self._silent.cancel()
            self.open_by_client[self._address] -= 1
            super().connection_lost(exc)

        def _close_if_silent(self) -> None:
            if self.cycle is None:  # no request has begun
                self.transport.close()

    return Limited
