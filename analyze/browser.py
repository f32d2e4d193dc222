"""Open pages in the user's browser."""

from __future__ import annotations

import os
import sys
import webbrowser


def has_browser() -> bool:
    """Return whether this machine can show a page: it has a display and a browser."""
    if sys.platform not in ("win32", "darwin") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False  # webbrowser would start a text browser in this terminal
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def open_page(address: str) -> bool:
    """Open a page in the browser, if there is one; return whether it was opened."""
    return has_browser() and webbrowser.open(address)
