"""Formulas as MathML, which browsers draw themselves, in a font that comes along:
nothing is loaded from elsewhere.
"""

from __future__ import annotations

import logging
from importlib.resources import files
from pathlib import Path
from typing import Any

from docutils import nodes
from fontTools.subset import Options, Subsetter, load_font, save_font
from latex2mathml.converter import convert
from sphinx.application import Sphinx

FONT = files("ziamath") / "fonts" / "STIXTwoMath-Regular.ttf"
BLOCKS = (
    (0x20, 0x17F),
    (0x2B0, 0x3FF),
    (0x2000, 0x22FF),
    (0x27E0, 0x27EF),
    (0x2900, 0x2BFF),
    (0x1D400, 0x1D7FF),
)
"""Letters and signs of mathematics in Unicode."""


def inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def display(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(
        f'<div class="math">{convert(node.astext(), display="block")}</div>'
    )
    raise nodes.SkipNode


def write_font(app: Sphinx, error: Exception | None) -> None:
    """The part of the font that formulas may need, compressed."""
    logging.getLogger("fontTools").setLevel(logging.WARNING)
    place = Path(app.outdir) / "_static" / "math.woff"
    if error is not None or app.builder.format != "html" or place.exists():
        return
    options = Options()
    options.flavor = "woff"
    options.layout_features = ["ssty", "dtls", "flac"]  # what MathML asks for
    font = load_font(str(FONT), options)
    part = Subsetter(options)
    part.populate(
        unicodes=[code for first, last in BLOCKS for code in range(first, last + 1)]
    )
    part.subset(font)
    save_font(font, str(place), options)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    app.config.html_math_renderer = "mathml"
    app.connect("build-finished", write_font)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
