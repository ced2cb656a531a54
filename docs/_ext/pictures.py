"""The page of the gallery with its pictures: gallery.md is read, and what is stored
about each figure is put in.

A table of thumbnails comes first. Each section gets its picture with the verdict and
the version that it shows, its data, the commands that make it, open it in the explorer
and draw it again, its verdicts folded away check by check, and its settings and
versions.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from playground import ADDRESS
from sphinx.application import Sphinx

from twolayer.explorer.presets import catalogue
from twolayer.files.zoo import zoo
from twolayer.gallery.shared import pictures, records
from twolayer.gallery.shared.registry import GROUPS, figures

TITLES = {
    "escape": "Escaping mediocrity",
    "mean-field": "Wide networks",
    "recovery": "Recovery and the last mile",
    "phase-diagram": "Batch size, learning rate and loss",
    "giant-steps": "Giant steps and reused samples",
}

PACKAGES = ("twolayer", "jax", "numpy", "python")

ONE_NEURON = "p=1&gamma=0.1&noise=0.0001&start=random&time=4&dim=3000&seed=1&size=log"
COMMITTEE = (
    "activation=erf&k=2&a=2,2&teacher=2,2&gamma=1.5&noise=0&geometry=free"
    "&start=random&time=120&dim=500&runs=16"
)
PLAYGROUND = {
    "trajectories": ONE_NEURON,
    "stochasticity": ONE_NEURON,
    "escape-dimension": (
        "p=1&gamma=0.083&noise=0&start=random&time=4&dim=10000&seed=1&size=log"
    ),
    "escape-learning-rate": (
        "p=1&gamma=0.083&noise=0&start=random&time=4&dim=3000&seed=1&size=log"
    ),
    "escape-width": (
        "p=4&gamma=0.4&noise=0&start=random&time=4&dim=3000&seed=1&size=log"
    ),
    "second-layer": (
        "p=4&gamma=0.2&noise=0&start=random&trained=1&time=3&dim=1000&seed=1"
    ),
    "sgd-to-ode": COMMITTEE,
    "specialisation": COMMITTEE + "&x=m1&y=m2&scale=log",
    "overlap-animation": COMMITTEE + "&x=m1&y=m2",
    "schedules-plateau": COMMITTEE + "&scale=log",
    "last-mile": (
        "activation=relu&p=2&k=1&a=1,1&gamma=0.01&noise=0&geometry=free&start=random&time=60&scale=loglog"
    ),
}
"""States of the playground with the dynamics of a figure; it has up to four neurons,
erf, quadratic or ReLU.
"""


BADGES = {"agree": "success", "undecided": "warning", "differ": "danger"}


def badge(stored: dict[str, Any], version: str) -> str:
    """The verdict in a colour, and what the version took."""
    return (
        f"{{bdg-{BADGES[stored['outcome']]}}}`{stored['outcome']}` {version},"
        f" {stored['cost']}"
    )


def sentence(title: str) -> str:
    return f"{title[0].upper()}{title[1:]}."


def heading(group: str) -> str:
    return TITLES.get(group, group.replace("-", " ").capitalize())


def thumbnails(
    kept: dict[str, dict[str, Any]], verdicts: dict[str, dict[str, Any]]
) -> str:
    """All pictures, group by group: two in a row where there is room, with caption,
    verdict and time.
    """
    lines = []
    for group in GROUPS:
        names = [
            name
            for name, entry in figures().items()
            if entry.group == group and name in kept
        ]
        if not names:
            continue
        lines += [f"**{heading(group)}**", "", ":::::{grid} 1 1 2 2", ":gutter: 3", ""]
        for name in names:
            version = kept[name]["version"]
            lines += [
                f"::::{{grid-item-card}} {name}",
                f":img-top: images/gallery/{name}.webp",
            ]
            lines += [
                f":link: gallery-{name}",
                ":link-type: ref",
                ":class-card: thumbnail",
            ]
            lines += [
                f":img-alt: {figures()[name].title}",
                "",
                sentence(figures()[name].title),
            ]
            lines += [
                ":::{card-footer}",
                badge(verdicts[name][version], version),
                ":::",
                "::::",
            ]
        lines += [":::::", ""]
    missing = [f"[{name}](#{name})" for name in figures() if name not in kept]
    lines += [f"No picture is kept yet of {', '.join(missing)}.", ""] if missing else []
    return "\n".join(lines)


def words(value: Any) -> str:
    return (
        ", ".join(map(words, value))
        if isinstance(value, list)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def verdict(line: str) -> str:
    """A line of the page, folded away: the claim, its checks one by one, and the
    note.
    """
    head, outcome, text = re.fullmatch(
        r"Verdict \((.*?)\): (\w+)\. (.*)", line
    ).groups()  # type: ignore[union-attr]
    body, _, note = text.rpartition("]")
    claim, _, checks = body.partition(": ")
    lines = [
        f":::{{dropdown}} Verdict ({head}): {outcome}",
        "",
        f"{claim[0].upper()}{claim[1:]}:",
        "",
    ]
    lines += [
        f"- {check.rstrip()}]" if not check.endswith("]") else f"- {check}"
        for check in re.split(r"(?<=\]); ", checks)
    ]
    note = note.strip(". ")
    lines += ["", f"{note}." if note else "", ":::"]
    return "\n".join(lines)


def settings_table(name: str, verdicts: dict[str, dict[str, Any]]) -> list[str]:
    """Settings of both versions, and what each was recorded with."""
    entry, lines = figures()[name], [":::{dropdown} Settings, versions and papers", ""]
    quick = records.settings_of(entry, "quick")
    lines += ["| setting | full | quick |", "|---|---|---|"]
    lines += [
        f"| `{key}` | {words(value)} | {words(quick[key])} |"
        for key, value in records.settings_of(entry, "full").items()
    ]
    if entry.fixed:
        lines += [
            "",
            "No settings: "
            + "; ".join(f"{key} ({why})" for key, why in entry.fixed.items())
            + ".",
        ]
    for version, stored in verdicts.get(name, {}).items():
        made = ", ".join(
            f"{word} {stored['versions'][word]}"
            for word in PACKAGES
            if word in stored["versions"]
        )
        lines += [
            "",
            (
                f"The {version} version was recorded at seed {stored['seed']} with"
                f" {made}; its data have the "
            ),
        ]
        lines[-1] += (
            f"fingerprint `{stored['data'].removeprefix('sha256:')[:16]}…` in"
            " [gallery.json](gallery.json)."
        )
    return [
        *lines,
        "",
        "Another value: `--set key=value`.",
        "",
        *published(name),
        ":::",
        "",
    ]


def published(name: str) -> list[str]:
    """Set-ups of the zoo with numbers from the papers of a figure."""
    behind = figures()[name].papers
    found = [
        f"`{setup}`"
        for setup, entry in zoo().items()
        if set(entry.papers) & set(behind)
    ]
    words = (
        f"Numbers that these papers give are in the [zoo](zoo.md): {', '.join(found)}."
    )
    return [
        f"Papers: {', '.join(f'`{key}`' for key in behind)}. {words if found else ''}",
        "",
    ]


def doors(name: str, root: Path) -> list[str]:
    """Ways on from a picture: its data, the explorer, the playground."""
    ways = []
    data = root / pictures.FOLDER / f"{name}.nc"
    if data.exists():
        size = f"{data.stat().st_size / 1000:.0f} kB"
        ways.append(
            f"{{download}}`Data ({size}) <{pictures.FOLDER.as_posix()}/{name}.nc>`"
        )
    if name in PLAYGROUND:
        ways.append(
            f'<a class="explore" href="{ADDRESS}#{PLAYGROUND[name]}">Open in the'
            " playground</a>"
        )
    lines = [":::{container} doors", " ".join(ways), ":::", ""] if ways else []
    told = {f"twolayer gallery run {name}": "picture, data and verdict"}
    told[f"twolayer gallery run {name} --quick"] = "the same, smaller"
    if any(x["name"] == name for x in catalogue()["figures"]):
        told[f"twolayer explore --figure {name}"] = "open in the explorer"
    if data.exists():
        told[f"twolayer plot {name}.nc --out {name}.pdf"] = "draw from the data"
    width = max(map(len, told))
    return [
        *lines,
        "```sh",
        *(f"{x:<{width}}  # {y}" for x, y in told.items()),
        "```",
        "",
    ]


def details(
    name: str,
    root: Path,
    kept: dict[str, dict[str, Any]],
    verdicts: dict[str, dict[str, Any]],
) -> str:
    """The picture of a figure with its verdict, and below it the ways on."""
    entry = figures()[name]
    lines = []
    if name in kept:
        version = kept[name]["version"]
        told = f"{sentence(entry.title)} {badge(verdicts[name][version], version)}"
        lines += [
            f":::{{figure}} images/gallery/{name}.webp",
            f":alt: {entry.title}",
            "",
            told,
        ]
        lines += [":::", ""]
    return "\n".join([*lines, *doors(name, root)])


def rewrite(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname != "gallery":
        return
    root = Path(app.srcdir)
    kept, verdicts = (
        pictures.known(root / pictures.FOLDER),
        records.read(root / "gallery.json"),
    )
    first, *sections = re.split(r"(?m)^(?=##? )", source[0])[1:]
    title, what, how = first.split("\n\n", 2)  # pictures before instructions
    pages = [
        "---\nhide-toc: true\n---\n\n",  # the pictures are the table of contents
        f"{title}\n\n{what}\n\n",
        thumbnails(kept, verdicts),
        f"## How to use it\n\n{how}## Escaping mediocrity\n\n",
    ]
    for section in sections:
        heading, _, text = section.partition("\n")
        if heading.startswith("# "):
            pages.append(f"#{heading}\n{text}")
            continue
        name = heading.removeprefix("## ")
        text = re.sub(r"(?m)^Verdict \(.*$", lambda line: verdict(line[0]), text)
        _, _, rest = text.strip().partition(
            "\n"
        )  # the command, which stands below the picture
        below = "\n".join(settings_table(name, verdicts))
        pages.append(
            f"(gallery-{name})=\n###"
            f" {name}\n\n{details(name, root, kept, verdicts)}\n{rest}\n\n{below}\n\n"
        )
    source[0] = "".join(pages)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", rewrite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
