"""The page of the gallery with its pictures: gallery.md is read, and what is stored about each figure is put in.

A table of thumbnails comes first. Each section gets its picture, with the version that it shows, its verdicts folded
away check by check, its settings and versions, its data where they are small, and what opens the same dynamics in the
playground or the explorer.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from playground import ADDRESS
from sphinx.application import Sphinx

from twolayer.explorer.presets import catalogue
from twolayer.gallery.shared import pictures, records
from twolayer.gallery.shared.registry import GROUPS, figures

TITLES = {
    "escape": "Escaping mediocrity",
    "mean-field": "Wide networks",
    "recovery": "Recovery and the last mile",
    "phase-diagram": "Batch size, learning rate and loss",
    "giant-steps": "Giant steps and reused samples",
}

ONE_NEURON = "p=1&gamma=0.1&noise=0.0001&start=random&time=4&dim=3000&seed=1&size=log"
COMMITTEE = "activation=erf&k=2&a=2,2&teacher=2,2&gamma=1.5&noise=0&geometry=free&start=random&time=120&dim=500&runs=16"
PLAYGROUND = {
    "trajectories": ONE_NEURON,
    "stochasticity": ONE_NEURON,
    "escape-dimension": "p=1&gamma=0.083&noise=0&start=random&time=4&dim=10000&seed=1&size=log",
    "escape-learning-rate": "p=1&gamma=0.083&noise=0&start=random&time=4&dim=3000&seed=1&size=log",
    "escape-width": "p=4&gamma=0.4&noise=0&start=random&time=4&dim=3000&seed=1&size=log",
    "second-layer": "p=4&gamma=0.2&noise=0&start=random&trained=1&time=3&dim=1000&seed=1",
    "sgd-to-ode": COMMITTEE,
    "specialisation": COMMITTEE + "&x=m1&y=m2&scale=log",
    "overlap-animation": COMMITTEE + "&x=m1&y=m2",
    "schedules-plateau": COMMITTEE + "&scale=log",
    "last-mile": "activation=relu&p=2&k=1&a=1,1&gamma=0.01&noise=0&geometry=free&start=random&time=60&scale=loglog",
}
"""States of the playground with the dynamics of a figure; it has up to four neurons, erf, quadratic or ReLU."""


def thumbnails(kept: dict[str, dict[str, Any]], verdicts: dict[str, dict[str, Any]]) -> str:
    """All pictures, group by group."""
    lines = []
    for group in GROUPS:
        names = [name for name, entry in figures().items() if entry.group == group and name in kept]
        if not names:
            continue
        title = TITLES.get(group, group.replace("-", " ").capitalize())
        lines += [f"**{title}**", "", "::::{grid} 2 3 4 4", ":gutter: 2", ""]
        for name in names:
            version = "full" if "full" in verdicts[name] else "quick"
            outcome = f"{verdicts[name][version]['outcome']} ({version})"
            lines += [":::{grid-item-card}", f":img-top: images/gallery/{name}.webp", f":link: gallery-{name}"]
            lines += [":link-type: ref", ":class-card: thumbnail", f":img-alt: {figures()[name].title}", ""]
            lines += [f"**{name}** · {outcome}", ":::"]
        lines += ["::::", ""]
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
    """A line of the page, folded away: the claim, its checks one by one, and the note."""
    head, outcome, text = re.fullmatch(r"Verdict \((.*?)\): (\w+)\. (.*)", line).groups()  # type: ignore[union-attr]
    body, _, note = text.rpartition("]")
    claim, _, checks = body.partition(": ")
    lines = [f":::{{dropdown}} Verdict ({head}): {outcome}", "", f"{claim[0].upper()}{claim[1:]}:", ""]
    lines += [
        f"- {check.rstrip()}]" if not check.endswith("]") else f"- {check}" for check in re.split(r"(?<=\]); ", checks)
    ]
    note = note.strip(". ")
    lines += ["", f"{note}." if note else "", ":::"]
    return "\n".join(lines)


def details(name: str, root: Path, kept: dict[str, dict[str, Any]], verdicts: dict[str, dict[str, Any]]) -> str:
    """The picture of a figure, and below it what is stored about it."""
    entry = figures()[name]
    lines = []
    if name in kept:
        shown = kept[name]
        stored = verdicts[name][shown["version"]]
        told = f"{entry.title[0].upper()}{entry.title[1:]}. Shown is the {shown['version']} version ({stored['cost']})."
        lines += [f":::{{figure}} images/gallery/{name}.webp", f":alt: {entry.title}", "", told, ":::", ""]
    lines += [":::{dropdown} Settings, versions and data", "", "| setting | full | quick |", "|---|---|---|"]
    quick = records.settings_of(entry, "quick")
    lines += [
        f"| `{key}` | {words(value)} | {words(quick[key])} |"
        for key, value in records.settings_of(entry, "full").items()
    ]
    for version, stored in verdicts.get(name, {}).items():
        made = ", ".join(
            f"{package} {stored['versions'][package]}" for package in ("twolayer", "jax", "numpy", "python")
        )
        lines += ["", f"Data of the {version} version: `{name}.nc`, written by the command"]
        lines[-1] += (
            f"{' with `--quick`' if version == 'quick' else ''} at seed {stored['seed']}; recorded with {made}; "
        )
        lines[-1] += f"fingerprint `{stored['data'].removeprefix('sha256:')[:16]}…` in [gallery.json](gallery.json)."
    lines += [":::", ""]
    data = root / pictures.FOLDER / f"{name}.nc"
    if data.exists():
        size = f"{data.stat().st_size / 1000:.0f} kB"
        lines += [f"Data of the picture: [{name}.nc]({pictures.FOLDER.as_posix()}/{name}.nc) ({size}), drawn again by "]
        lines[-1] += f"`twolayer plot {name}.nc`."
    if any(entry["name"] == name for entry in catalogue()["figures"]):
        lines += ["", f"Open in the explorer: `twolayer explore`, then *Open* and *{name}*.", ""]
    if name in PLAYGROUND:
        address = f"{ADDRESS}#{PLAYGROUND[name]}"
        lines += [f'<a class="explore" href="{address}">Open these dynamics in the playground</a>', ""]
    return "\n".join(lines)


def rewrite(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname != "gallery":
        return
    root = Path(app.srcdir)
    kept, verdicts = pictures.known(root / pictures.FOLDER), records.read(root / "gallery.json")
    first, *sections = re.split(r"(?m)^(?=##? )", source[0])[1:]
    title, what, how = first.split("\n\n", 2)  # pictures before instructions
    pages = [
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
        command, _, rest = text.strip().partition("\n")
        pages.append(f"(gallery-{name})=\n### {name}\n\n{command}\n\n{details(name, root, kept, verdicts)}\n{rest}\n\n")
    source[0] = "".join(pages)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", rewrite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
