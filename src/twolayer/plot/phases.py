"""Figure of a phase diagram: batch size n_b ~ d^μ against learning rate γ ~ d^(−δ), and
against T ~ d^θ.

Green: what projected SGD on the squared loss learns. Orange: what correlation loss or
spherical gradients learn beyond. Grey: not learned. Hatched: not learned, and the norm
of a step cannot be expanded. Black: T polylogarithmic. Light blue: a constant number of
steps, blue: one step. Red: the validity lines of the expansion, solid as derived (δ =
(1 − μ)/2), dotted as published (δ = 1/4 − μ/2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import Normal, Stroke

from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import choice, reject, require
from twolayer.plot.canvas import canvas, in_house_style
from twolayer.plot.style import house_title

if TYPE_CHECKING:
    from twolayer.analysis.phases import PhaseDiagram

__all__ = ["COLOURS", "add_legend", "draw_phases", "phases"]

COLOURS = {
    "sgd": "#4daf4a",
    "correlation": "#ff9f3f",
    "not": "#c9c9c9",
    "validity": "#d62728",
    "polylog": "#111111",
    "constant": "#c6dbef",
    "single": "#79add2",
    "one": "#1f77b4",
}
LABELS = {
    "delta": r"$\delta$   (learning rate $\gamma \sim d^{-\delta}$)",
    "theta": r"$\theta$   (steps $T \sim d^{\theta}$)",
}
PLANES = {"delta": ("delta",), "theta": ("theta",), "both": ("delta", "theta")}
ALPHA = 0.45
COLUMN = 2.55  # inches that a column of the legend takes


@in_house_style
def phases(
    diagram: PhaseDiagram,
    plane: str = "both",
    measured: Sequence[Any] = (),
    figure: Figure | None = None,
    ax: Axes | Sequence[Axes] | None = None,
) -> Figure:
    """The regions of a phase diagram, with measured points on top.

    Parameters
    ----------
    diagram : PhaseDiagram
        From `phase_diagram`.
    plane : str
        ``"delta"``, ``"theta"`` or ``"both"``.
    measured : sequence of WeakRecovery
        Points to draw: filled where most runs recovered, crosses where not, with the
        measured θ. A point that lies beyond the axes is an arrow at their edge with its
        numbers.

    Examples
    --------
    >>> from twolayer.analysis.phases import phase_diagram
    >>> len(phases(phase_diagram(ell=3), plane="both").axes)
    2
    """
    planes = PLANES[choice("plane", plane, PLANES)]
    require(hasattr(diagram, "ell"), "diagram", diagram, "a PhaseDiagram")
    if not isinstance(measured, Sequence) or not all(
        hasattr(point, "theta_error") for point in measured
    ):
        reject("measured", measured, "a list of results of weak_recovery")
    size = (5.2 * len(planes), 4.6 if len(planes) > 1 else 5.0)
    figure, axes, whole = canvas(len(planes), size, figure, ax)
    for panel, name in zip(axes, planes, strict=True):
        draw_phases(panel, diagram, name, measured)
    if whole:
        add_legend(figure, bool(measured))
        told = (
            rf"Information exponent $\ell = {diagram.ell}$: {diagram.loss} loss,"
            rf" {diagram.geometry}"
        )
        house_title(figure, told)
    return figure


def draw_phases(
    ax: Axes, diagram: PhaseDiagram, plane: str, measured: Sequence[Any] = ()
) -> None:
    """Draw one plane into axes."""
    sgd, free = _pair(diagram)
    ell = diagram.ell
    shift = (
        0.0 if plane == "delta" else (ell / 2 - 1 if ell > 1 else 0.0)
    )  # θ = δ + shift
    right = ell + 1.0
    top = diagram.noise_order + 0.25 + shift
    floor = min((1 - ell) / 2, 0.0) - 0.45 if plane == "delta" else 0.0
    mu = np.unique(
        np.concatenate(
            [
                np.linspace(0, right, 801),
                [sgd.optimal_mu - 1e-9, free.optimal_mu - 1e-9],
            ]
        )
    )

    def lowest(which: PhaseDiagram) -> np.ndarray:
        of = which.lowest_delta if plane == "delta" else which.optimal_delta
        return np.maximum(np.array([of(float(x)) for x in mu]) + shift, floor)

    ax.set_facecolor(
        "white"
    )  # the colours of regions, and what is black in them, mean the same in every style
    green, orange = lowest(sgd), lowest(free)
    valid = np.maximum(free.lines["expansion"].delta(mu) + shift, floor)
    edge = np.minimum(valid, orange)
    ax.fill_between(mu, green, top, color=COLOURS["sgd"], alpha=ALPHA, lw=0)
    ax.fill_between(mu, orange, green, color=COLOURS["correlation"], alpha=ALPHA, lw=0)
    ax.fill_between(mu, edge, orange, color=COLOURS["not"], alpha=ALPHA, lw=0)
    ax.fill_between(
        mu, floor, edge, facecolor="white", edgecolor="#bbbbbb", hatch="////", lw=0
    )
    for name, style in (("expansion", "-"), ("expansion (published)", ":")):
        y = free.lines[name].delta(mu) + shift
        ax.plot(mu[y >= floor], y[y >= floor], style, color=COLOURS["validity"], lw=1.3)
    last = float(ell)
    below = (
        1 - diagram.noise_order
    )  # every rate beyond this line multiplies m_0 by a power of d in each step
    if ell > 1 and (plane == "theta" or diagram.at(free.optimal_mu, below).learns):
        ends = [free.optimal_mu, right if plane == "delta" else last]
        ax.plot(
            ends, [below + shift] * 2, color=COLOURS["polylog"], lw=2.4, clip_on=False
        )
    one = (1 - ell) / 2 if plane == "delta" else 0.0
    giant = (
        plane == "theta" or diagram.at(last, one).learns
    )  # steps of order one, where the algorithm bears them
    if giant:
        ax.plot([last, right], [one, one], color=COLOURS["one"], lw=2.4, clip_on=False)
    if plane == "delta" and giant:
        if ell > 1:
            ax.fill_between(
                [free.optimal_mu, right],
                floor,
                below,
                color=COLOURS["constant"],
                lw=0,
                zorder=1,
            )
        ax.fill_between(
            [last, right], floor, one, color=COLOURS["single"], lw=0, zorder=1.1
        )
    for which, colour in ((sgd, "sgd"), (free, "correlation")):
        x, y = which.points["optimum"]
        ax.axvline(x, color=COLOURS[colour], ls="--", lw=1.2)
        ax.plot(
            [x],
            [y + shift],
            "*",
            ms=11,
            color=COLOURS[colour],
            mec="black",
            mew=0.6,
            zorder=6,
            clip_on=False,
        )
    _draw_measured(ax, plane, measured, (right, floor, top), diagram)
    _mark_exponents(ax, ell)
    ax.set(
        xlim=(0, right),
        ylim=(floor, top),
        xlabel=r"$\mu$   (batch $n_b \sim d^{\mu}$)",
        ylabel=LABELS[plane],
    )
    ax.grid(False)


def _pair(diagram: PhaseDiagram) -> tuple[PhaseDiagram, PhaseDiagram]:
    """The diagram with self-interaction and the one without, of which the given one is
    one.
    """
    kind = type(diagram)
    sgd = (
        kind(diagram.ell, "squared", "projected", "contracting")
        if diagram.free
        else diagram
    )
    return sgd, kind(diagram.ell, "correlation", "projected", "none")


def _mark_exponents(ax: Axes, ell: int) -> None:
    """Ticks of μ where regimes change: at ℓ/2, ℓ − 1 and ℓ."""
    names: dict[float, list[str]] = {0.0: ["$0$"]}
    for place, name in (
        (ell / 2, r"$\ell/2$"),
        (ell - 1.0, r"$\ell-1$"),
        (float(ell), r"$\ell$"),
    ):
        names.setdefault(place, []).append(name)
    ax.set_xticks(list(names), ["$=$".join(name) for name in names.values()])


def _draw_measured(
    ax: Axes,
    plane: str,
    measured: Sequence[Any],
    window: tuple[float, float, float],
    diagram: PhaseDiagram,
) -> None:
    """Points where they were measured, with θ and in brackets what is predicted; one
    beyond the window is an arrow.
    """
    right, floor, top = window
    for point in measured:
        y, error = (
            (point.delta, None)
            if plane == "delta"
            else (point.theta, point.theta_error)
        )
        if y is None:
            continue
        predicted = diagram.at(point.mu, point.delta).theta
        text = "" if point.theta is None else _signed(point.theta)
        if text and predicted is not None and plane == "delta":
            text += f" ({_signed(predicted)})"
        x_in, y_in = min(max(point.mu, 0.0), right), min(max(y, floor), top)
        if round(y - y_in, 2) == 0:  # no arrow to a number that reads like the edge
            y = y_in
        if (x_in, y_in) == (point.mu, y):
            if error is not None:
                ax.errorbar(
                    [point.mu],
                    [y],
                    2 * error,
                    color="black",
                    capsize=2.5,
                    lw=1.1,
                    zorder=7,
                )
            mark = "o" if point.learned else "x"
            ax.plot(
                [point.mu], [y], mark, color="black", ms=5.5, zorder=7, clip_on=False
            )
        else:
            away = (
                "^"
                if y > top
                else "v"
                if y < floor
                else ">"
                if point.mu > right
                else "<"
            )
            ax.plot(
                [x_in], [y_in], away, color="black", ms=6.5, zorder=7, clip_on=False
            )
            place = _signed(y) + ("" if error is None else f" ± {error:.2f}")
            text = (
                place
                if plane == "theta"
                else f"({point.mu:g}, {place}) {text}".rstrip()
            )
        if text and (plane == "delta" or (x_in, y_in) != (point.mu, y)):
            # below and to the left of the point where another one's text begins on the
            # right
            near = any(
                0 < q.mu - point.mu < right / 4
                and plane == "delta"
                and abs(q.delta - y) < (top - floor) / 6
                for q in measured
                if q.theta is not None
            )
            side: Options = {
                "ha": "right" if near else "left",
                "textcoords": "offset points",
                "fontsize": 7,
                "zorder": 8,
            }
            side["color"] = "black"
            halo = [
                Stroke(linewidth=2.0, foreground="white", alpha=0.8),
                Normal(),
            ]  # lines and crosses may lie below
            ax.annotate(
                text,
                (x_in, y_in),
                (-5, -11) if near else (4, 4),
                path_effects=halo,
                **side,
            )


def _signed(number: float) -> str:
    """Two digits after the point, with a minus that is one, and no minus before zero.

    Examples
    --------
    >>> _signed(-0.131), _signed(-0.001), _signed(0.5)
    ('−0.13', '0.00', '0.50')
    """
    return f"{round(number, 2) + 0.0:.2f}".replace("-", "−")


def add_legend(figure: Figure, measured: bool) -> None:
    """What the colours mean, below the panels, in as many columns as fit."""
    columns = min(4, max(1, int(figure.get_figwidth() / COLUMN)))
    paper: Options = {
        "frameon": True,
        "facecolor": "white",
        "edgecolor": "none",
        "framealpha": 1,
        "labelcolor": "black",
    }
    figure.legend(
        handles=_handles(measured),
        loc="outside lower center",
        ncols=columns,
        fontsize=7.5,
        **paper,
    )


def _handles(measured: bool) -> list[Patch | Line2D]:
    handles: list[Patch | Line2D] = [
        Patch(color=COLOURS["sgd"], alpha=ALPHA, label="SGD learning"),
        Patch(
            color=COLOURS["correlation"],
            alpha=ALPHA,
            label="Correlation loss or spherical SGD learning",
        ),
        Patch(color=COLOURS["not"], alpha=ALPHA, label="SGD not learning"),
        Patch(
            facecolor="white",
            edgecolor="#bbbbbb",
            hatch="////",
            label="Expansion not defined",
        ),
        Line2D([], [], color=COLOURS["polylog"], lw=2.4, label="Polylog regime"),
        Patch(color=COLOURS["constant"], label="Constant number of steps"),
        Line2D([], [], color=COLOURS["one"], lw=2.4, label="One step regime"),
        Line2D(
            [],
            [],
            color=COLOURS["validity"],
            lw=1.3,
            label="Expansion validity (derived)",
        ),
        Line2D(
            [],
            [],
            color=COLOURS["validity"],
            lw=1.3,
            ls=":",
            label="Expansion validity (published)",
        ),
        Line2D(
            [],
            [],
            color=COLOURS["sgd"],
            ls="--",
            marker="*",
            mec="black",
            label="SGD optimal point",
        ),
        Line2D(
            [],
            [],
            color=COLOURS["correlation"],
            ls="--",
            marker="*",
            mec="black",
            label="Corr. loss optimal point",
        ),
    ]
    if measured:
        handles.append(
            Line2D(
                [],
                [],
                color="black",
                marker="o",
                ls="",
                label=r"measured $\theta$ (predicted)",
            )
        )
        handles.append(
            Line2D(
                [], [], color="black", marker="x", ls="", label="measured: no recovery"
            )
        )
    return handles
