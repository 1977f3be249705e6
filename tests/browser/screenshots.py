"""Takes the pictures of the page for the README, from a running gateway: `scripts/screenshots URL FOLDER`."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from PIL import Image

from .chromium import READY, chromium, find_chromium, tab

PICTURES = {"light": "page.png", "dark": "page-dark.png"}
WIDTH, HEIGHT, PIXEL_RATIO = 1080, 838, 1.5
TEXTS = (
    "Hello! You hear this while I am still typing, and each word lights up when it is spoken. ",
    "Press Escape, and you get back what was not",
)


async def take_pictures(url: str, folder: Path, executable: str, profile: Path) -> None:
    """Write page.png and page-dark.png to `folder`, in mid-speech."""
    async with chromium(profile, executable) as devtools_port:
        for scheme, name in PICTURES.items():
            async with tab(devtools_port) as page:
                media = [{"name": "prefers-color-scheme", "value": scheme}]
                await page.call("Emulation.setEmulatedMedia", features=media)
                size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": PIXEL_RATIO, "mobile": False}
                await page.call("Emulation.setDeviceMetricsOverride", **size)
                await page.open(url)
                await page.until(READY)
                await page.evaluate("document.getElementById('text').focus()")
                for text in TEXTS:
                    await page.type(text)
                await page.until("voxgate.speech.player.played_ms > 2400")
                await page.until("document.getElementById('highlight-word').textContent.trim().length > 3")
                await page.screenshot(folder / name)
                shrink(folder / name)
                await page.press("Escape")


def shrink(picture: Path) -> None:
    """Write the PNG with its 256 most frequent colours, in less than half the bytes."""
    colours = Image.open(picture).convert("RGB").quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    colours.save(picture, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="address of a gateway with a real voice")
    parser.add_argument("folder", type=Path, help="where page.png and page-dark.png go")
    options = parser.parse_args()
    executable = find_chromium()
    if executable is None:
        parser.error("no Chromium found")
    with tempfile.TemporaryDirectory() as profile:
        asyncio.run(take_pictures(options.url, options.folder, executable, Path(profile)))


if __name__ == "__main__":
    main()
