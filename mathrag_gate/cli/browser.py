"""Make a PDF or a picture of a local page with an installed Chromium or Chrome."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from mathrag.client.errors import Failed
from mathrag.errors import NotInstalled

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
"""Names of the program, in the order of the search."""
TIMEOUT_S = 120
WIDTH, HEIGHT = 1400, 900
"""Size of a picture in pixels of the page."""
OPTIONS = (
    "--headless", "--disable-gpu", "--disable-background-networking", "--disable-extensions", "--no-first-run",
    "--hide-scrollbars", "--no-pdf-header-footer",
)  # fmt: skip


def find_browser() -> str:
    """Return the path of an installed Chromium or Chrome.

    Raises:
        NotInstalled: no browser is installed.
    """
    for name in NAMES:
        if found := shutil.which(name):
            return found
    raise NotInstalled(
        f"--pdf and --png need Chromium or Chrome, but no {', '.join(NAMES)} was found on the PATH",
        hint="install one, for example apt install chromium, or omit --pdf and --png",
    )


def print_pdf(browser: str, page: Path, file: Path, place: str = "") -> None:
    """Print a page, opened at the element with the id `place`, into `file`.

    Raises:
        Failed: the browser wrote no file.
    """
    _run(browser, page, file, place, f"--print-to-pdf={file.absolute()}")


def take_picture(browser: str, page: Path, file: Path, place: str = "", *, height: int = HEIGHT) -> None:
    """Draw a page in a window of `WIDTH` x `height`, at twice as many pixels, into the PNG `file`.

    Raises:
        Failed: the browser wrote no file.
    """
    size = f"--window-size={WIDTH},{height}"
    _run(browser, page, file, place, size, "--force-device-scale-factor=2", f"--screenshot={file.absolute()}")


def _run(browser: str, page: Path, file: Path, place: str, *options: str) -> None:
    file.unlink(missing_ok=True)
    # Chromium's sandbox does not work for root. The page was written by this command, and loads and runs nothing else.
    sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    address = f"{page.absolute().as_uri()}#{place}"
    # Use a separate profile, because a running browser would take over the command and write nothing.
    with tempfile.TemporaryDirectory(prefix="mathrag-browser-", ignore_cleanup_errors=True) as profile:
        command = [browser, *OPTIONS, *sandbox, f"--user-data-dir={profile}", *options, address]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)  # noqa: S603
            said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        except (OSError, subprocess.TimeoutExpired) as error:
            said = str(error)[:200]
    if not file.is_file():
        hint = f"the pages of the report are complete: open {page} in a browser and print it there"
        raise Failed("internal", f"{browser} did not write {file}: {said}", hint=hint)
