"""The playground goes along with the site, in a folder of its own, and pages lead to it
there.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from sphinx.application import Sphinx

import twolayer

ADDRESS = "play/playground.html"
HOME = Path(twolayer.__file__).parent / "explorer" / "static"
FILES = ("playground.html", "playground.css", "playground.js", "third-party.txt")


def lead_there(app: Sphinx, docname: str, source: list[str]) -> None:
    """The link of the page in the repository is to the file in the package."""
    if docname == "playground":
        link = "[The playground](../src/twolayer/explorer/static/playground.html)"
        source[0] = source[0].replace(link, f'<a href="{ADDRESS}">The playground</a>')


def bring_along(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        folder = Path(app.outdir) / Path(ADDRESS).parent
        folder.mkdir(exist_ok=True)
        for name in FILES:
            shutil.copy(HOME / name, folder / name)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", lead_there)
    app.connect("build-finished", bring_along)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
