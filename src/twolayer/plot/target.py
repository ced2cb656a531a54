"""Figure of a target: its Hermite coefficients, coloured by order, under its exponents.

h(z) = Σ_α c_α Π_r h_{α_r}(z_r),    order |α| = Σ_r α_r,    h_n orthonormal (h_1(z) = z)
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from twolayer.analysis.exponents import Analysis
from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import require
from twolayer.plot.canvas import canvas, in_house_style
from twolayer.plot.style import DIRECTIONS, GREY

__all__ = ["analysis"]

MOST = 30  # coefficients that can be told apart in one figure


def _product(alpha: tuple[int, ...]) -> str:
    """The label of a coefficient: the product of Hermite polynomials it belongs to."""
    factors = [
        f"z_{{{r + 1}}}" if n == 1 else f"h_{{{n}}}(z_{{{r + 1}}})"
        for r, n in enumerate(alpha)
        if n
    ]
    return "$" + "\\,".join(factors) + "$"


@in_house_style
def analysis(
    result: Analysis, figure: Figure | None = None, ax: Axes | None = None
) -> Figure:
    r"""Hermite coefficients of a target by order, with its exponents.

    Parameters
    ----------
    result : Analysis
        From `analyse`.

    Examples
    --------
    >>> from twolayer.analysis.exponents import analyse
    >>> [
    ...     label.get_text()
    ...     for label in analysis(analyse("z1 + 2*z1*z2")).axes[0].get_xticklabels()
    ... ]
    ['$z_{1}$', '$z_{1}\\,z_{2}$']
    """
    require(
        isinstance(result, Analysis),
        "result",
        type(result).__name__,
        "a result of analyse",
    )
    coefficients = [(alpha, c) for alpha, c in result.hermite.items() if any(alpha)]
    shown = sorted(coefficients, key=lambda item: -abs(item[1]))[:MOST]
    shown.sort(key=lambda item: (sum(item[0]), [-n for n in item[0]]))
    figure, (ax,), _ = canvas(1, (6.4, 3.4), figure, ax)
    orders: set[int] = set()
    for i, (alpha, c) in enumerate(shown):
        order = sum(alpha)
        label = None if order in orders else f"order {order}"
        orders.add(order)
        ax.bar(i, c, color=DIRECTIONS[order - 1], width=0.7, label=label)
    tilt: Options = (
        {"rotation": 60, "ha": "right", "rotation_mode": "anchor"}
        if len(shown) > 6
        else {}
    )
    ax.set_xticks(
        range(len(shown)), [_product(alpha) for alpha, _ in shown], fontsize=8.5, **tilt
    )
    middle, half = (
        (len(shown) - 1) / 2,
        max(len(shown), 6) / 2 + 0.2,
    )  # few bars stay slim
    ax.set_xlim(middle - half, middle + half)
    ax.axhline(0, color=GREY, lw=0.8)
    ax.grid(False, axis="x")
    some = (
        f"coefficients: the {MOST} largest of {len(coefficients)}"
        if len(shown) < len(coefficients)
        else "Hermite coefficients"
    )
    ax.set_ylabel(some)
    if shown:
        ax.legend()
    name = result.target.name
    ax.set_title(
        f"{name if len(name) < 80 else name[:79] + '…'}\ninformation"
        f" {result.information}, leap {result.leap}, generative {result.generative}"
    )
    return figure
