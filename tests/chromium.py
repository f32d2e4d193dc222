"""The browser that pages and traces are opened in: Debian's headless Chromium, which does without what a window needs
and takes two thirds of the time, or the whole one."""

from __future__ import annotations

import os
import shutil

CHROMIUM = os.environ.get("TRACEQUARRY_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser"))), None
)
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
)  # fmt: skip
"""Arguments: nothing is asked of the network but by the page."""
