"""The browser of the tests."""

import shutil

import pytest

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
"""The headless shell is the same engine without windows, and takes half the time."""
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
"""Chromium may run as root, and sends no requests by itself."""
NEEDS_CHROMIUM = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
