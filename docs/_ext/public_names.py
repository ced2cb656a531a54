"""The reference, written from docstrings, and links to it from every page.

    :::{names} twolayer.escape            all public names of a namespace
    :::{names} twolayer                   those listed in the body
    Problem SGD Overlaps
    :::
    :::{summary}                          a table of all of them with their first
        sentences
    :::{parts}                            classes that stand in signatures,
        with their first sentences
    twolayer.task.clocks.Clocks
    :::

A public name in backticks, `tl.solve` or `Chain(dim)`, becomes a link to its entry.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import twolayer as tl

HANDMADE = {
    "d": (
        "The dimension d in scaling laws: ``0.2 / d``, ``2 * d**1.5``. It is a"
        " `Scaling` itself."
    )
}
"""Names whose docstring is that of their class."""


def members_of(module: str) -> list[str]:
    """Public names of a namespace that are no namespaces themselves, and that do not
    stand at the top level too.
    """
    space = importlib.import_module(module)
    names = [n for n in space.__all__ if not inspect.ismodule(getattr(space, n))]
    if module != "twolayer":
        top = {id(getattr(tl, n)) for n in tl.__all__}
        names = [n for n in names if id(getattr(space, n)) not in top]
    return sorted(names, key=str.lower)


@functools.cache
def every_name() -> list[str]:
    """All public names with their module: `twolayer.solve` and
    `twolayer.escape.Passage`.

    Names that stand at the top level and in a namespace have their entry at the top.
    """
    spaces = ["twolayer", *(f"twolayer.{space}" for space in tl.NAMESPACES)]
    return [f"{space}.{name}" for space in spaces for name in members_of(space)]


def object_of(name: str) -> Any:
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def first_sentence(name: str) -> str:
    text = (
        HANDMADE.get(name.removeprefix("twolayer."))
        or inspect.getdoc(object_of(name))
        or ""
    )
    return " ".join(text.split("\n\n")[0].split())


def entry(name: str) -> list[str]:
    """The directive that documents a name, as reStructuredText."""
    value = object_of(name)
    words = HANDMADE.get(name.removeprefix("twolayer."))
    if words:
        return [f".. py:data:: {name}", "", f"   {words}", ""]
    if inspect.isclass(value):
        kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
        # nobody makes a result by hand: its entry is shown without arguments
        brackets = "()" if name.startswith("twolayer.types.") else ""
        return [f".. {kind}:: {name}{brackets}", "   :members:", *plumbing(value), ""]
    return [f".. autofunction:: {name}", ""]


def plumbing(value: type) -> list[str]:
    """What every method has is told once, by `Method`: nobody who uses one calls it."""
    if not issubclass(value, tl.extend.Method) or value is tl.extend.Method:
        return []
    own = [name for name in vars(tl.extend.Method) if not name.startswith("_")]
    return [f"   :exclude-members: {', '.join([*own, 'prepare_stack'])}"]


class Rst(SphinxDirective):
    """A directive that writes reStructuredText into a page of Markdown."""

    def parsed(self, lines: list[str]) -> list[nodes.Node]:
        block = ["````{eval-rst}", *lines, "````"]
        holder = nodes.Element()
        self.state.nested_parse(StringList(block, self.env.docname), 0, holder)
        return holder.children


class Names(Rst):
    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        module = self.arguments[0]
        names = " ".join(self.content).split() or members_of(module)
        lines = [f".. py:currentmodule:: {module}", ""]
        for name in names:
            lines += entry(f"{module}.{name}")
        return self.parsed(lines)


class Parts(Rst):
    has_content = True

    def run(self) -> list[nodes.Node]:
        lines = []
        for name in self.content:
            lines += [
                f".. py:class:: {name}",
                "",
                f"   {without_bars(first_sentence(name))}",
                "",
            ]
        return [nodes.container("", *self.parsed(lines), classes=["returned"])]


class Summary(Rst):
    def run(self) -> list[nodes.Node]:
        lines = [
            ".. list-table::",
            "   :header-rows: 1",
            "   :widths: 34 66",
            "",
            "   * - name",
            "     - what it is",
        ]
        for name in every_name():
            shown = name.replace("twolayer.", "tl.")
            lines += [
                f"   * - :py:obj:`{shown} <{name}>`",
                f"     - {without_bars(first_sentence(name))}",
            ]
        return self.parsed(lines)


def referred(
    role: str, rawtext: str, text: str, *_: Any, **__: Any
) -> tuple[list[nodes.Node], list[Any]]:
    """`Overlaps` in a docstring: code that `link_names` makes a link if the name is
    public.
    """
    return [nodes.literal(rawtext, text, classes=["name"])], []


def meant(literal: nodes.literal, listed: dict[str, str]) -> str | None:
    """The public name that code stands for, if it is one without doubt."""
    found = re.fullmatch(r"(tl\.)?([A-Za-z_.]+)(\(.*\))?", literal.astext())
    if found is None:
        return None
    name = found[2]
    if "name" in literal["classes"]:
        elsewhere = [
            whole for short, whole in listed.items() if short.rpartition(".")[2] == name
        ]
        return listed.get(name) or (elsewhere[0] if len(elsewhere) == 1 else None)
    # in prose a word such as `save` may be anything
    return listed.get(name) if found[1] or name[0].isupper() else None


def link_names(app: Sphinx, doctree: nodes.document) -> None:
    """Code that is a public name, with or without arguments, leads to its entry."""
    listed = {name.removeprefix("twolayer."): name for name in every_name()}
    for literal in list(doctree.findall(nodes.literal)):
        name = meant(literal, listed)
        if name is None or isinstance(
            literal.parent, pending_xref | nodes.reference | nodes.title
        ):
            continue
        target = pending_xref(
            "",
            refdomain="py",
            reftype="obj",
            reftarget=name,
            refdoc=app.env.docname,
            refwarn=True,
        )
        literal.replace_self(target)
        target += literal


def link_papers(app: Sphinx, doctree: nodes.document) -> None:
    """arXiv:2305.18502 leads to the paper."""
    for text in list(doctree.findall(nodes.Text)):
        parts = re.split(r"(arXiv:\d{4}\.\d{4,5})", text.astext())
        if len(parts) == 1 or any(
            isinstance(
                above,
                nodes.reference | nodes.title | nodes.literal | nodes.literal_block,
            )
            for above in (text.parent, text.parent.parent)
        ):
            continue
        made: list[nodes.Node] = []
        for part in parts:
            found = part.startswith("arXiv:")
            address = f"https://arxiv.org/abs/{part.removeprefix('arXiv:')}"
            made.append(
                nodes.reference("", part, refuri=address) if found else nodes.Text(part)
            )
        text.parent.replace(text, made)


def find_short(
    app: Sphinx, env: Any, node: pending_xref, shown: nodes.Node
) -> nodes.Node | None:
    """The entry of a type: signatures say `Clocks`, the entry is that of
    `twolayer.task.clocks.Clocks`.
    """
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or (
        "." in target and not target.startswith("twolayer.")
    ):
        return None
    domain, last = env.get_domain("py"), target.rpartition(".")[2]
    found = {
        known.node_id: name
        for name, known in domain.objects.items()
        if name.rpartition(".")[2] == last
    }
    if len(found) != 1:
        return None
    name = next(iter(found.values()))
    return domain.resolve_xref(
        env, node["refdoc"], app.builder, "obj", name, node, shown
    )


def keep_colons(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """The sentence of a property is no ``type: description``, for which napoleon takes
    it unless the type is empty.
    """
    if what in ("attribute", "property") and lines:
        lines[0] = f":{lines[0]}"


def escape_bars(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """|g| is a norm here, and would be a substitution there."""
    lines[:] = [without_bars(line) for line in lines]


def without_bars(line: str) -> str:
    return "".join(
        part if part.startswith("``") else part.replace("|", r"\|")
        for part in re.split("(``.*?``)", line)
    )


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("names", Names)
    app.add_directive("summary", Summary)
    app.add_directive("parts", Parts)
    app.connect("doctree-read", link_names)
    app.connect("doctree-read", link_papers)
    # napoleon listens at the default priority, 500, and would have torn the sentence in
    # two before it came here
    app.connect("autodoc-process-docstring", keep_colons, priority=400)
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("missing-reference", find_short)
    app.add_role("name", referred)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
