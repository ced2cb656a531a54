"""All published set-ups, paper by paper, each with where it stands there and how many
numbers it holds.

:::{zoo}
:::
"""

from __future__ import annotations

from docutils import nodes
from public_names import Rst, without_bars
from sphinx.application import Sphinx

from twolayer.files.papers import PAPERS
from twolayer.files.zoo import zoo


class Zoo(Rst):
    def run(self) -> list[nodes.Node]:
        lines: list[str] = []
        paper = ""
        for name, setup in zoo().items():
            if setup.papers[0] != paper:
                paper = setup.papers[0]
                lines += ["", f"*{without_bars(str(PAPERS[paper]))}*", ""]
            numbers = (
                f"{len(setup.reference)}"
                f" number{'s' if len(setup.reference) > 1 else ''}"
            )
            lines += [
                f"- ``{name}``: {without_bars(setup.title)}."
                f" {without_bars(setup.place)}; {numbers}."
            ]
        return self.parsed(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("zoo", Zoo)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
