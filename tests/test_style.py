"""How figures look: colours that colour-blind readers tell apart, titles that never wrap, styles for paper and screen."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import twolayer as tl
from twolayer import plot
from twolayer.plot.entries import curves_of
from twolayer.plot.titles import algorithm_line, problem_line

house: Any = importlib.import_module(
    "twolayer.plot.style"
)  # the name in the package is that of its function

APART = 15.0
VISION = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
"""What is left of linear RGB, by Machado, Oliveira and Fernandes (2009), at full severity."""


def lab(colour: str, vision: str) -> np.ndarray:
    """CIE L*a*b* (D65) of a colour as it is seen."""
    c = np.array(to_rgb(colour))
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.asarray(VISION[vision]) @ linear, 0, 1)
    to_xyz = [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
    x = np.asarray(to_xyz) @ seen / [0.95047, 1.0, 1.08883]
    f = np.where(x > 216 / 24389, np.cbrt(x), (24389 / 27 * x + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def difference(one: np.ndarray, two: np.ndarray) -> float:
    """CIEDE2000."""
    (L1, a1, b1), (L2, a2, b2) = one, two
    mean = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    stretch = 1.5 - 0.5 * np.sqrt(mean**7 / (mean**7 + 25**7))
    C1, C2 = np.hypot(stretch * a1, b1), np.hypot(stretch * a2, b2)
    h1, h2 = (
        np.arctan2(b1, stretch * a1) % (2 * np.pi),
        np.arctan2(b2, stretch * a2) % (2 * np.pi),
    )
    turn = (h2 - h1 + np.pi) % (2 * np.pi) - np.pi if C1 * C2 else 0.0
    hue = h1 + turn / 2 if C1 * C2 else h1 + h2
    dL, dC, dH = L2 - L1, C2 - C1, 2 * np.sqrt(C1 * C2) * np.sin(turn / 2)
    L, C = (L1 + L2) / 2, (C1 + C2) / 2
    T = (
        1
        - 0.17 * np.cos(hue - np.pi / 6)
        + 0.24 * np.cos(2 * hue)
        + 0.32 * np.cos(3 * hue + np.radians(6))
        - 0.2 * np.cos(4 * hue - np.radians(63))
    )
    SL, SC, SH = (
        1 + 0.015 * (L - 50) ** 2 / np.sqrt(20 + (L - 50) ** 2),
        1 + 0.045 * C,
        1 + 0.015 * C * T,
    )
    degrees = np.degrees(hue) % 360
    bend = (
        -np.sin(np.radians(60) * np.exp(-(((degrees - 275) / 25) ** 2)))
        * 2
        * np.sqrt(C**7 / (C**7 + 25**7))
    )
    return float(
        np.sqrt(
            (dL / SL) ** 2 + (dC / SC) ** 2 + (dH / SH) ** 2 + bend * dC / SC * dH / SH
        )
    )


def closest(colours: list[str]) -> tuple[float, str]:
    """The least difference of any two colours, to any reader."""
    return min(
        (difference(lab(one, vision), lab(two, vision)), f"{one} and {two} in {vision}")
        for vision in VISION
        for one, two in itertools.combinations(colours, 2)
    )


def test_the_difference_of_colours_is_that_of_the_published_pairs() -> None:
    """Sharma, Wu and Dalal (2005), pairs 1, 7, 17 and 25."""
    pairs = [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 0.0, 0.0), (50.0, -1.0, 2.0), 2.3669),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
    ]
    for one, two, expected in pairs:
        assert difference(np.array(one), np.array(two)) == pytest.approx(
            expected, abs=5e-5
        )


@pytest.mark.parametrize("name", ["house", "dark"])
def test_colours_are_told_apart_by_colour_blind_readers(name: str) -> None:
    with plot.style(name):
        palette = (house.DARK if name == "dark" else house.LIGHT).values()
        assert {*house.COLOURS.values()} == {*palette}
        for colours in (list(palette), list(house.DIRECTIONS)):
            least, pair = closest(colours)
            assert least >= APART, pair
        # chain, SDE and theory, and the three algorithms, have colours of their own
        for words in (
            ("theory", "chain", "sde", "vectors"),
            ("SGD", "correlation", "spherical"),
        ):
            assert len({house.COLOURS[word] for word in words}) == len(words)


def test_the_test_of_colours_can_fail() -> None:
    assert closest(["#1f77b4", "#7570b3"])[0] < 8


def test_a_title_never_wraps_and_stays_inside() -> None:
    for width, text in itertools.product(
        (3.0, 8.0), ("target z1", "target " + " + ".join(["He3(z1)*z2"] * 20))
    ):
        figure = Figure(figsize=(width, 2.5))
        house.house_title(figure, text, "$m_1$, " * 30)
        title = figure._suptitle  # type: ignore[attr-defined]
        assert title.get_text().count("\n") == 1
        box = title.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width
        figure.savefig(
            Path("/dev/null"), format="png"
        )  # mathematics that was cut would not be drawn


def test_titles_name_the_data_set_the_second_layer_and_the_weights_of_the_teacher() -> (
    None
):
    told = tl.Problem(
        tl.Teacher("erf", 2, [1.0, -2.0]),
        "erf",
        width=3,
        second_layer="signs",
        noise=0.25,
    )
    from twolayer.running.dataset import describe_problem

    line = problem_line(describe_problem(told))
    for word in (
        "teacher erf, k = 2, a* = (1, −2)",
        "student erf, p = 3, a = ±1",
        "Δ = 0.25",
    ):
        assert word in line
    reused = tl.SGD(lr="0.2", batch="3*d", dataset="3*d", momentum=0.5).describe()
    assert (
        algorithm_line(reused)
        == "lr = 0.2, batch 3*d of the same 3*d samples, momentum 0.5"
    )
    fresh = tl.SGD(
        lr=tl.d**-1 / 12, loss="correlation", geometry="spherical"
    ).describe()
    assert (
        algorithm_line(fresh)
        == "lr = 0.08333/d, batch 1, fresh samples, spherical, correlation loss"
    )


def test_styles_end_with_their_block_and_change_sizes_inks_and_formats(
    tmp_path: Path,
) -> None:
    analysis = tl.analyse("z1 + z1*z2")
    normal = plot.analysis(analysis)
    with plot.style("paper"):
        paper = plot.analysis(analysis)
        assert plot.save_figure(paper, tmp_path / "figure") == tmp_path / "figure.pdf"
    assert paper.get_figwidth() == house.COLUMN < normal.get_figwidth()
    text = (tmp_path / "figure.pdf").read_bytes()
    assert b"/FontFile2" in text  # TrueType, embedded
    with plot.style("talk"):
        assert plot.analysis(analysis).get_figwidth() > normal.get_figwidth()
    with plot.style("dark"):
        ink = house.COLOURS["theory"]
        assert sum(to_rgb(ink)) > 2.5
        assert sum(plot.analysis(analysis).get_facecolor()[:3]) < 0.5
    assert sum(to_rgb(house.COLOURS["theory"])) < 0.5
    assert plot.save_figure(normal, tmp_path / "other").suffix == ".png"
    assert mpl.rcParams["axes.spines.top"]
    with pytest.raises(tl.InputError, match="did you mean 'paper'"):
        plot.style("papers")


def test_zeros_are_gaps_on_logarithmic_axes() -> None:
    np.testing.assert_array_equal(
        house.positive([2.0, 0.0, -1.0, 3.0]), [2.0, np.nan, np.nan, 3.0]
    )


@pytest.mark.parametrize("entries", ["R", "M13", "Q", [], "M1", ["M", ""], "a1"])
def test_entries_that_are_not_there_are_refused(entries: str | list[str]) -> None:
    import xarray as xr

    M = xr.DataArray(
        np.zeros((1, 3, 2, 2)), dims=("seed", "time", "neuron", "direction")
    )
    with pytest.raises(tl.InputError, match="Argument `entries`"):
        curves_of(xr.Dataset({"M": M}), entries)
