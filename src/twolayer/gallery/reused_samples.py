"""Full-batch gradient descent on n = α d samples against dynamical mean-field theory.

    w ← w + (lr/p) ⟨g x⟩,    training risk = ½ ⟨(y − f(h^t))²⟩,
        test risk = ½ E[(y − f(λ))²], λ ~ N(0, Ω^t)

The setting of the papers on reused batches: two ReLU neurons of opposite signs, y =
tanh(z1 + He3(z2)), α = 3. Overlaps, norms and both risks of simulations lie on the
theory within their errors; the two risks separate at the first step. At α = 3 labels
without noise show both directions exactly, so that the best possible test risk is zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.choosing import chosen_problem
from twolayer.gallery.shared.drawing import (
    headline,
    mark_steps,
    points,
    sheet,
    task_of,
    told,
)
from twolayer.gallery.shared.judging import Verdict, verdict
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.gallery.shared.stepping import JUDGED, StepPair, agree, follow, stack_runs
from twolayer.numerics.errors import positive_integer
from twolayer.numerics.statistics import standard_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SECOND_LAYER = (2**0.5, -(2**0.5))
BEST = (
    ("tanh(z1 + He3(z2))", 3.0, 0.0),
    0.0,
)  # target, n/d and Δ, and the excess risk of `best_possible` there


@figure(
    "reused-samples",
    "overlaps, norms, training and test risk of full-batch gradient descent, DMFT and"
    " simulation",
    quick={"dims": (200, 400), "seeds": (8, 8), "steps": 3, "tolerance": 4e-3},
    group="giant-steps",
)
def reused_samples(
    *,
    seed: int = 0,
    dims: tuple[int, ...] = (2000, 5000),
    seeds: tuple[int, ...] = (40, 24),
    target: str = "tanh(z1 + He3(z2))",
    activation: str = "relu",
    geometry: str = "free",
    alpha: float = 3.0,
    eta: float = 0.2,
    steps: int = 6,
    tolerance: float = 5e-4,
) -> Finding:
    """M, Q and risks at every step; ``eta`` is the step on the sum of the losses over
    d.
    """
    theory = tl.DMFT(tl.Averages(accuracy=tolerance), responses=True)
    for n in seeds:
        positive_integer("seeds", n, 2)
    problem = chosen_problem(target, activation, 2, width=2, second_layer=SECOND_LAYER)
    algorithm = tl.SGD(
        lr=alpha * eta, batch=alpha * tl.d, dataset=alpha * tl.d, geometry=geometry
    )
    pairs = {
        dim: follow(
            f"d={dim}", problem, algorithm, theory, tl.Vectors(dim), steps, n, seed
        )
        for dim, n in zip(dims, seeds, strict=True)
    }
    data = _data(pairs)
    for name, values in _published(problem, algorithm).items():
        data[f"published_{name}"] = "published", values[:steps]
    return Finding(data, _verdict(pairs), task_of(problem, algorithm))


def _symmetric(M: np.ndarray) -> np.ndarray:
    """(m_1 − m_2)/2: the two neurons of opposite signs are images of each other."""
    return np.asarray((M[..., 0, :] - M[..., 1, :]) / 2)


def _data(pairs: dict[int, StepPair]) -> xr.Dataset:
    first = next(iter(pairs.values())).theory
    kept = (*JUDGED, "C_theta", "C_F", "R_theta", "R_F")
    data = xr.Dataset(
        {name: first[name][0].drop_vars("seed") for name in kept}
        | stack_runs(pairs, "dim")
    )
    each = [_symmetric(pair.runs.M.values) for pair in pairs.values()]
    data["m"] = ("time", "direction"), _symmetric(first.M.values[0])
    data["m_runs"] = ("dim", "time", "direction"), np.stack([x.mean(0) for x in each])
    spread = [standard_error(x) for x in each]
    data["m_runs_error"] = ("dim", "time", "direction"), np.stack(spread)
    return data.assign_coords(dim=list(pairs))


def _verdict(pairs: dict[int, StepPair]) -> Verdict:
    checks, notes = [], []
    for dim, pair in pairs.items():
        checks.append(agree(f"d = {dim}, runs − DMFT", [pair], JUDGED))
        M, (mean, _) = _symmetric(pair.theory.M.values[0, -1]), pair.mean("M")
        shown = _symmetric(pair.runs.M.values[:, -1])
        se = standard_error(shown)
        runs = ", ".join(
            f"{x:.4f} ± {e:.4f}" for x, e in zip(_symmetric(mean[-1]), se, strict=True)
        )
        notes.append(
            f"d = {dim}: M after {pair.runs.sizes['time'] - 1} steps {runs} (DMFT"
            f" {M[0]:.4f}, {M[1]:.4f})"
        )
    theory = next(iter(pairs.values())).theory
    notes.append(
        f"training risk {float(theory.train_risk[0, -1]):.4f}, test risk"
        f" {float(theory.risk[0, -1]):.4f}"
    )
    return verdict(
        "gradient descent on the same samples follows dynamical mean-field theory",
        checks,
        "; ".join(notes),
    )


def _published(problem: tl.Problem, algorithm: tl.SGD) -> dict[str, np.ndarray]:
    """What the paper measured at steps 1, 2, … of the same set-up: m_1, m_2, Q_11, Q_12
    and the test risk, by name.
    """
    setup = tl.zoo("dandi2024-reused")
    one, two = (
        (x.target.name, x.activation.name, by.geometry)
        for x, by in ((problem, algorithm), (setup.problem, setup.algorithm))
    )
    mine, theirs = (
        [x.lr.coefficient, x.batch.coefficient] for x in (algorithm, setup.algorithm)
    )
    if one != two or not np.allclose(mine, theirs):
        return {}
    # its theory has a known error
    stored = {
        ref.quantity: np.asarray(ref.value) for ref in setup.reference if not ref.known
    }
    m = {
        f"m{r}": np.cumsum(stored[f"M[1,{r}]"] - stored[f"M[2,{r}]"]) / 2
        for r in (1, 2)
    }  # stored are the changes
    return {
        **m,
        "Q1": stored["Q[1,1]"],
        "Q2": stored["Q[1,2]"],
        "risk2": stored["risk"],
    }


def draw(data: xr.Dataset) -> Figure:
    """Overlaps, norms and risks; theory in ink, a colour for each dimension of the
    runs, crosses for published ones.
    """
    from twolayer.plot.best_possible import best_line
    from twolayer.plot.style import COLOURS, DIRECTIONS

    chosen = told(data)
    figure, (left, middle, right) = sheet(3, height=3.9)
    if (chosen.target, chosen.alpha) == BEST[0][:2]:
        best_line(right, [chosen.alpha], [BEST[1]], "best possible test risk")
    t = np.arange(chosen.steps + 1)
    curves: dict[Axes, list[tuple[xr.DataArray, str, Any, str]]] = {
        left: [(data.m[:, r], "m", (..., r), rf"$m_{r + 1}$") for r in range(2)],
        middle: [
            (data.Q[:, 0, l], "Q", (..., 0, l), rf"$Q_{{1{l + 1}}}$") for l in range(2)
        ],
        right: [
            (data[w], w, (...,), n)
            for w, n in (("train_risk", "training"), ("risk", "test"))
        ],
    }
    for ax, rows in curves.items():
        for k, (theory, name, index, label) in enumerate(rows):
            ax.plot(
                t,
                theory,
                ("-", "--")[k],
                color=COLOURS["theory"],
                label=f"DMFT, {label}",
                zorder=6,
            )
            for i, dim in enumerate(data.dim.values):
                mean, error = (
                    data[f"{name}_runs{x}"].values[i][index] for x in ("", "_error")
                )
                at = t + 0.08 * (i - (data.sizes["dim"] - 1) / 2)
                word = f"{label}, $d = {dim}$, {chosen.seeds[i]} runs"
                points(
                    ax,
                    at,
                    mean,
                    error,
                    DIRECTIONS[i],
                    word,
                    "os"[i % 2],
                    "none" if k else None,
                )
            seen = data.get(f"published_{name}{k + 1}")
            if seen is not None:
                word = (
                    "published, $d = 5000$" if name == "risk" or not k else "_published"
                )
                ax.plot(
                    t[1 : len(seen) + 1] + 0.2,
                    seen,
                    "x",
                    color=COLOURS["theory"],
                    ms=4,
                    label=word,
                    zorder=7,
                )
        mark_steps(ax, chosen.steps)
        ax.legend(fontsize=6.5)
    right.legend(fontsize=6.5, loc="lower left", bbox_to_anchor=(0, 0.06), ncols=2)
    left.set_title("overlaps $(M_1 - M_2)/2$")
    middle.set_title("norms and overlap of neurons")
    right.set_title("risk")
    headline(
        figure,
        data,
        "Gradient descent on the same samples at every step (bars: two standard"
        " errors)",
    )
    return figure
