"""Full-batch gradient descent on n = α d samples against dynamical mean-field theory.

    w ← w + (lr/p) ⟨g x⟩,    training risk = ½ ⟨(y − f(h^t))²⟩,    test risk = ½ E[(y − f(λ))²], λ ~ N(0, Ω^t)

The setting of the papers on reused batches: two ReLU neurons of opposite signs, y = tanh(z1 + He3(z2)), α = 3.
Overlaps, norms and both risks of simulations lie on the theory within their errors; the two risks separate at the
first step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

import twolayer as tl
from twolayer.gallery.shared.judging import Verdict, verdict
from twolayer.gallery.shared.measuring import canvas, colours, points
from twolayer.gallery.shared.registry import Plate, figure
from twolayer.gallery.shared.stepping import Pair, agree, follow, headline, mark_steps
from twolayer.numerics.errors import positive_integer

JUDGED = ("M", "Q", "train_risk", "risk")
SECOND_LAYER = (2**0.5, -(2**0.5))


@figure(
    "reused-samples",
    "overlaps, norms, training and test risk of full-batch gradient descent, DMFT and simulation",
    quick={"dims": (200,), "seeds": (8,), "steps": 3, "tolerance": 4e-3},
    group="giant-steps",
)
def reused_samples(
    *,
    seed: int = 0,
    dims: tuple[int, ...] = (2000, 5000),
    seeds: tuple[int, ...] = (40, 10),
    alpha: float = 3.0,
    eta: float = 0.2,
    steps: int = 6,
    tolerance: float = 5e-4,
) -> Plate:
    """M, Q and risks at every step; ``eta`` is the step on the sum of the losses over d."""
    theory = tl.DMFT(tolerance=tolerance, responses=True)
    for n in seeds:
        positive_integer("seeds", n, 2)
    problem = tl.Problem("tanh(z1 + He3(z2))", "relu", width=2, second_layer=SECOND_LAYER)
    algorithm = tl.SGD(lr=alpha * eta, batch=alpha * tl.d, dataset=alpha * tl.d)
    pairs = {
        dim: follow(f"d={dim}", problem, algorithm, theory, tl.Vectors(dim), steps, n, seed)
        for dim, n in zip(dims, seeds, strict=True)
    }
    return Plate(_draw(pairs, steps), _data(pairs), _verdict(pairs))


def _symmetric(M: np.ndarray) -> np.ndarray:
    """(m_1 − m_2)/2: the two neurons of opposite signs are images of each other."""
    return np.asarray((M[..., 0, :] - M[..., 1, :]) / 2)


def _data(pairs: dict[int, Pair]) -> xr.Dataset:
    first = next(iter(pairs.values())).theory
    names = ("M", "Q", "train_risk", "risk")
    data = xr.Dataset({name: first[name][0].drop_vars("seed") for name in names})
    for name in names:
        mean, se = (np.stack(x) for x in zip(*(pair.mean(name) for pair in pairs.values()), strict=True))
        dims = ("dim", *first[name].dims[1:])
        data[f"{name}_runs"], data[f"{name}_runs_error"] = (dims, mean), (dims, se)
    for name in ("C_theta", "C_F", "R_theta", "R_F"):
        data[name] = first[name][0].drop_vars("seed")
    return data.assign_coords(dim=list(pairs))


def _verdict(pairs: dict[int, Pair]) -> Verdict:
    checks, notes = [], []
    for dim, pair in pairs.items():
        checks.append(agree(f"d = {dim}, runs − DMFT", [pair], JUDGED))
        M, (mean, _) = _symmetric(pair.theory.M.values[0, -1]), pair.mean("M")
        shown = _symmetric(pair.runs.M.values[:, -1])
        se = shown.std(0, ddof=1) / np.sqrt(len(shown))
        runs = ", ".join(f"{x:.4f} ± {e:.4f}" for x, e in zip(_symmetric(mean[-1]), se, strict=True))
        notes.append(f"d = {dim}: M after {pair.runs.sizes['time'] - 1} steps {runs} (DMFT {M[0]:.4f}, {M[1]:.4f})")
    theory = next(iter(pairs.values())).theory
    notes.append(f"training risk {float(theory.train_risk[0, -1]):.4f}, test risk {float(theory.risk[0, -1]):.4f}")
    return verdict("gradient descent on the same samples follows dynamical mean-field theory", checks, "; ".join(notes))


def _draw(pairs: dict[int, Pair], steps: int) -> Any:
    figure, (left, middle, right) = canvas(3)
    theory = next(iter(pairs.values())).theory
    t, shade = np.arange(steps + 1), colours()
    lines = ("#1a1a1a", "#888888")
    M, Q = _symmetric(theory.M.values[0]), theory.Q.values[0]
    for r in range(2):
        left.plot(t, M[:, r], color=lines[r], label=rf"DMFT, $m_{r + 1}$")
    middle.plot(t, Q[:, 0, 0], color=lines[0], label=r"DMFT, $Q_{11}$")
    middle.plot(t, Q[:, 0, 1], color=lines[1], label=r"DMFT, $Q_{12}$")
    right.plot(t, theory.train_risk[0], color=lines[0], label="DMFT, training")
    right.plot(t, theory.risk[0], color=lines[1], label="DMFT, test")
    hues = (shade["chain"], shade["annealed"], shade["quenched"])
    for i, (dim, pair) in enumerate(pairs.items()):
        hue, shift = hues[i % 3], 0.08 * (i - (len(pairs) - 1) / 2)
        each = _symmetric(pair.runs.M.values)
        label = rf"$d = {dim}$, {len(each)} runs"
        root = np.sqrt(len(each))
        for r in range(2):
            points(
                left,
                t + shift,
                each[:, :, r].mean(0),
                each[:, :, r].std(0, ddof=1) / root,
                hue,
                label if not r else "_",
            )
        (q, q_error), names = pair.mean("Q"), ("train_risk", "risk")
        for l in range(2):
            points(middle, t + shift, q[:, 0, l], q_error[:, 0, l], hue, label if not l else "_")
        for name in names:
            mean, se = pair.mean(name)
            points(right, t + shift, mean, se, hue, label if name == "risk" else "_")
    for ax, title in ((left, "overlaps $(M_1 - M_2)/2$"), (middle, "norms and overlap of neurons"), (right, "risk")):
        mark_steps(ax, steps)
        ax.set_title(title)
        ax.legend(fontsize=7)
    headline(figure, "Gradient descent on the same samples at every step (bars: two standard errors)")
    return figure
