"""Mediocrity: at a random start the landscape has one direction that leads down, and
all others are flat.

On the unit sphere, p = 1 and without noise, with m = w·w*, Π = I − w wᵀ:

    R(w) = (3|w|⁴ − 2|w|² − 4m² + 3)/2,   ∇R = (6|w|² − 2) w − 4m w*,
        ∇²R = (6|w|² − 2) I + 12 w wᵀ − 4 w* w*ᵀ
    Hess R = Π (∇²R − (w·∇R) I) Π = 4m² Π − 4 Π w* w*ᵀ Π
    E Hess R = 4/(d + 2) (I − d w* w*ᵀ)        over w uniform on the sphere

since E m² = 1/d and E m² w wᵀ = (I + 2 w* w*ᵀ)/(d(d + 2)). One eigenvalue is −4(d −
1)/(d + 2), along w*; the other d − 1 are 4/(d + 2). Their sum is zero, as the mean of a
Laplacian over a sphere must be.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import MaxNLocator

from twolayer.gallery.shared.drawing import (
    headline,
    plain_ticks,
    points,
    sheet,
    task_of,
    told,
)
from twolayer.gallery.shared.judging import Verdict, holds, largest, verdict
from twolayer.gallery.shared.measuring import phase_retrieval
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import positive_integer
from twolayer.numerics.statistics import standard_error

FEW, DOTS = 10, 200  # the smaller dimension of the clouds of starts, and their size


@figure(
    "mediocrity",
    "the Hessian of the risk at a random start: one negative direction, all others"
    " flat",
    quick={"dims": (4, 8, 16), "starts": 200},
    fixed={
        "target": (
            "the figure is one formula, the Hessian of phase retrieval with z1**2"
        ),
        "activation": (
            "the figure is one formula, the Hessian of phase retrieval with squares"
        ),
        "geometry": "the Hessian is that of the sphere, and nothing is trained",
    },
)
def mediocrity(
    *,
    seed: int = 0,
    dims: tuple[int, ...] = (4, 8, 16, 32, 64, 128),
    starts: int = 400,
    shown: int = 1000,
) -> Finding:
    """Hessians by automatic differentiation of the risk, averaged over random starts,
    against the formula.
    """
    positive_integer("starts", starts, 2)
    positive_integer("dims", min(dims), 2)
    rng = np.random.default_rng(seed)
    rows, worst = [], 0.0
    for dim in sorted(dims):
        w = rng.normal(size=(starts, dim))
        w /= np.linalg.norm(w, axis=1, keepdims=True)
        hessians = _differentiated(w)
        worst = max(worst, float(np.abs(hessians - _formula(w)).max()))
        along = hessians[:, 0, 0]  # w* is the first axis
        flat = (np.trace(hessians, axis1=1, axis2=2) - along) / (dim - 1)
        errors = [standard_error(x) for x in (along, flat)]
        single = np.linalg.eigvalsh(hessians)
        negative = (single < -1e-9).sum(1)
        rows.append(
            (
                along.mean(),
                errors[0],
                flat.mean(),
                errors[1],
                (negative == 1).mean(),
                negative.max(),
            )
        )
    spectrum = np.linalg.eigvalsh(hessians.mean(0))
    names = (
        "along",
        "along_error",
        "flat",
        "flat_error",
        "one_negative",
        "most_negative",
    )
    columns = dict(zip(names, np.array(rows).T, strict=True))
    data = xr.Dataset(
        {k: ("dim", v) for k, v in columns.items()}, {"dim": sorted(dims)}
    )
    data["along_expected"] = -4 * (data.dim - 1) / (data.dim + 2)
    data["flat_expected"] = 4 / (data.dim + 2)
    data["spectrum"] = ("index", spectrum)
    data["one_start"] = ("index", single[0])
    data["starts"] = (
        ("cloud", "start", "axis"),
        np.stack([_cloud(rng, size) for size in (FEW, shown)]),
    )
    return Finding(data, _verdict(data, worst, starts), task_of(phase_retrieval()))


def _cloud(rng: np.random.Generator, dim: int) -> np.ndarray:
    """Random unit vectors, of which the first two coordinates are drawn."""
    w = rng.normal(size=(DOTS, dim))
    return np.asarray(w[:, :2] / np.linalg.norm(w, axis=1, keepdims=True))


def _formula(w: np.ndarray) -> np.ndarray:
    """4m² Π − 4 Π w* w*ᵀ Π for each row w, with w* the first axis."""
    dim, m = w.shape[1], w[:, 0]
    tangent = np.eye(dim) - w[:, :, None] * w[:, None, :]
    pointing = tangent[:, :, 0]  # Π w*
    return np.asarray(
        4 * m[:, None, None] ** 2 * tangent
        - 4 * pointing[:, :, None] * pointing[:, None, :]
    )


def _differentiated(w: np.ndarray) -> np.ndarray:
    """Hessians on the sphere from second derivatives of the package's own risk of
    w/|w|, a function of direction.
    """
    import jax
    import jax.numpy as jnp

    from twolayer.gaussian.quadratic import quadratic_averages

    def risk(w: jax.Array) -> jax.Array:
        u = w / jnp.sqrt(w @ w)
        Q, M, one = (u @ u)[None, None], u[:1, None], jnp.eye(1)
        return quadratic_averages(
            1.0, 0.0, one, 0.0, 1.0, Q, M, one, jnp.ones(1), 0.0
        ).excess_risk

    def on_sphere(w: jax.Array) -> jax.Array:
        tangent = jnp.eye(len(w)) - jnp.outer(w, w)
        return tangent @ jax.hessian(risk)(w) @ tangent

    with jax.enable_x64(True):
        return np.asarray(jax.lax.map(jax.jit(on_sphere), jnp.asarray(w)))


def _verdict(data: xr.Dataset, worst: float, starts: int) -> Verdict:
    last = data.isel(dim=-1)
    dim = int(last.dim)
    checks = [
        holds(
            (data.most_negative == 1).all(),
            "no start has more than one negative direction;"
            f" {float(last.one_negative):.1%} of {starts} at d = {dim} have"
            " exactly one",
        ),
        holds(
            worst < 1e-9,
            f"derivatives differ from the formula by at most {worst:.0e}, threshold"
            " 1e-09",
        ),
    ]
    for name, words, part in (("along", "along w*", 0.3), ("flat", "across", 0.5)):
        expected = data[f"{name}_expected"]
        checks.append(
            largest(
                f"mean curvature {words} at all d, {part:.0%} of it resolved",
                data[name] - expected,
                data[f"{name}_error"],
                resolution=part * np.abs(expected),
                freedom=starts - 1,
            )
        )
    note = (
        f"At d = {dim} the mean curvature is {float(last.along):.4f} along w* (expected"
        f" {float(last.along_expected):.4f}) and {float(last.flat):.5f} ±"
        f" {float(last.flat_error):.5f} across ({float(last.flat_expected):.5f})"
    )
    return verdict("a random start has one direction down, and flat ones", checks, note)


def draw(data: xr.Dataset) -> Figure:
    """Spectra, curvatures against d, and the sphere seen from the side."""
    from twolayer.plot.style import COLOURS, DIRECTIONS

    figure, (left, middle, right) = sheet(3, width=4.0)
    dim = int(data.dim[-1])
    rank = np.arange(1, dim + 1)
    left.plot(
        rank, data.one_start, "o", color=COLOURS["chain"], ms=4, label="one start"
    )
    left.plot(
        rank, data.spectrum, "s", color=COLOURS["sde"], ms=3, label="mean over starts"
    )
    level = np.r_[
        float(data.along_expected[-1]), np.full(dim - 1, float(data.flat_expected[-1]))
    ]
    left.plot(rank, level, "_", color=COLOURS["theory"], ms=7, label="expected mean")
    left.set(
        xlabel="number of the eigenvalue",
        ylabel="eigenvalue",
        title=rf"spectrum of the Hessian, $d = {dim}$",
        ylim=(-4.6, 1.0),
    )
    left.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    left.legend(loc="lower right")
    d = np.geomspace(float(data.dim[0]), float(data.dim[-1]), 100)
    middle.plot(
        d, 4 * (d - 1) / (d + 2), "--", color=COLOURS["theory"], label=r"$4(d-1)/(d+2)$"
    )
    middle.plot(d, 4 / (d + 2), color=COLOURS["theory"], label=r"$4/(d+2)$")
    points(
        middle,
        data.dim,
        -data.along,
        data.along_error,
        COLOURS["annealed"],
        r"$-$ along $w_\star$",
        "s",
    )
    points(middle, data.dim, data.flat, data.flat_error, COLOURS["chain"], "all others")
    middle.set(
        xscale="log",
        yscale="log",
        xlabel="dimension $d$",
        ylabel="mean curvature",
        title="one descends, $d-1$ are flat",
    )
    plain_ticks(middle.xaxis)
    plain_ticks(middle.yaxis)
    middle.legend(loc="center right")
    x, y = np.meshgrid(np.linspace(-1, 1, 301), np.linspace(-1, 1, 301))
    risk = np.where(x**2 + y**2 <= 1, 2 * (1 - y**2), np.nan)
    image = right.contourf(x, y, risk, levels=np.linspace(0, 2, 17), cmap="viridis")
    for i, (size, colour) in enumerate(
        ((FEW, "#ffffff"), (told(data).shown, DIRECTIONS[1]))
    ):
        cloud = data.starts.values[i]
        right.plot(
            cloud[:, 1],
            cloud[:, 0],
            "os"[i],
            mfc=colour,
            mec="#1a1a1a",
            mew=0.3,
            ms=3,
            label=f"$d = {size}$",
        )
    star: Options = {
        "color": "#e6ab02",
        "ms": 13,
        "mec": "#1a1a1a",
        "mew": 0.6,
        "clip_on": False,
    }
    right.plot([0, 0], [1, -1], "*", label=r"$\pm w_\star$", **star)
    right.add_artist(Circle((0, 0), 1, fill=False, color="#1a1a1a", lw=0.9))
    right.set(
        aspect="equal",
        xlabel=r"$w\cdot u$,  $u\perp w_\star$",
        ylabel=r"$m = w\cdot w_\star$",
        title="risk on the sphere, and random starts",
    )
    right.set(xlim=(-1.12, 1.12), ylim=(-1.12, 1.12))
    right.grid(False)
    right.legend(
        loc="upper left",
        bbox_to_anchor=(-0.2, -0.16),
        ncols=3,
        columnspacing=0.8,
        handletextpad=0.2,
    )
    figure.colorbar(
        image, ax=right, label=r"$\mathcal{R}$", shrink=0.85, ticks=[0, 0.5, 1, 1.5, 2]
    )
    headline(
        figure,
        data,
        "On the sphere, a random start has one direction that leads down; all others"
        " are flat",
    )
    return figure
