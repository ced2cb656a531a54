"""First-order methods on reused samples: momentum, weight decay, projected and spherical steps.

    w ← D [ k w + β (w − w₋) + (lr/p) ⟨g x⟩ ]        k: decay and tangent, D: norms, x: what samples see of a direction

Whatever a method does with gradients and past weights it does in the coordinates of the theory as in d dimensions, so
one theory covers them all; here each is compared with gradient descent in d dimensions.
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
from twolayer.numerics.errors import choice, positive_integer

VARIANTS: dict[str, dict[str, Any]] = {
    "momentum": {"momentum": 0.5},
    "weight-decay": {"weight_decay": 0.2},
    "projected": {"geometry": "projected", "momentum": 0.5},
    "spherical": {"geometry": "spherical"},
}
JUDGED = ("M", "Q", "train_risk", "risk")


@figure(
    "reuse-variants",
    "momentum, weight decay, projected and spherical steps on reused samples, DMFT and simulation",
    quick={"variants": ("spherical",), "dim": 200, "seeds": 8, "steps": 3, "tolerance": 4e-3},
    group="giant-steps",
)
def reuse_variants(
    *,
    seed: int = 0,
    variants: tuple[str, ...] = tuple(VARIANTS),
    dim: int = 2000,
    seeds: int = 24,
    alpha: float = 3.0,
    eta: float = 0.2,
    noise: float = 0.1,
    steps: int = 6,
    tolerance: float = 1e-3,
) -> Plate:
    """Overlaps and risks of each variant from a start that knows a little."""
    positive_integer("seeds", seeds, 2)
    for name in variants:
        choice("variants", name, VARIANTS)
    problem = tl.Problem("tanh(z1 + He3(z2))", "relu", width=2, second_layer=[2**0.5, -(2**0.5)], noise=noise)
    start = tl.Overlaps([[1.0, 0.2], [0.2, 1.0]], [[0.1, 0.0], [0.0, 0.1]])
    pairs = {}
    for name in variants:
        algorithm = tl.SGD(lr=alpha * eta, batch=alpha * tl.d, dataset=alpha * tl.d, **VARIANTS[name])
        lenses = (tl.DMFT(tolerance=tolerance), tl.Vectors(dim))
        pairs[name] = follow(name, problem, algorithm, *lenses, steps, seeds, seed, start)
    return Plate(_draw(pairs, steps, dim), _data(pairs), _verdict(pairs, dim))


def _data(pairs: dict[str, Pair]) -> xr.Dataset:
    data = xr.Dataset(coords={"variant": list(pairs)})
    for name in JUDGED:
        dims = ("variant", *next(iter(pairs.values())).theory[name].dims[1:])
        data[name] = dims, np.stack([pair.theory[name].values[0] for pair in pairs.values()])
        mean, se = (np.stack(x) for x in zip(*(pair.mean(name) for pair in pairs.values()), strict=True))
        data[f"{name}_runs"], data[f"{name}_runs_error"] = (dims, mean), (dims, se)
    return data


def _verdict(pairs: dict[str, Pair], dim: int) -> Verdict:
    checks, notes = [], []
    for name, pair in pairs.items():
        checks.append(agree(f"{name}, d = {dim}, runs − DMFT", [pair], JUDGED))
        M, (mean, se) = pair.theory.M.values[0, -1, 0, 0], pair.mean("M")
        notes.append(f"{name} {M:.4f} (runs {mean[-1, 0, 0]:.4f} ± {se[-1, 0, 0]:.4f})")
    return verdict("one theory covers first-order methods on reused samples", checks, f"Final M_11: {', '.join(notes)}")


def _draw(pairs: dict[str, Pair], steps: int, dim: int) -> Any:
    figure, panels = canvas(len(pairs), rows=2, width=3.6, height=3.1)
    t, shade = np.arange(steps + 1), colours()
    hues = (shade["chain"], shade["annealed"])
    for i, (name, pair) in enumerate(pairs.items()):
        top, bottom = panels[i], panels[i + len(pairs)]
        (M, M_error), theory = pair.mean("M"), pair.theory
        for r in range(2):
            for j in range(2):
                top.plot(t, theory.M.values[0, :, j, r], color=hues[r], lw=1.4)
                label = rf"$z_{r + 1}$" if not j else "_"
                points(top, t, M[:, j, r], M_error[:, j, r], hues[r], label, "os"[j], "white" if j else None)
        for word, hue in (("train_risk", hues[0]), ("risk", hues[1])):
            mean, se = pair.mean(word)
            bottom.plot(t, theory[word].values[0], color=hue, lw=1.4)
            points(bottom, t, mean, se, hue, "training" if word == "train_risk" else "test")
        settings = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in VARIANTS[name].items())
        top.set(title=settings, ylabel="overlaps $M_{jr}$" if not i else "")
        bottom.set(ylabel="risk" if not i else "")
        for ax in (top, bottom):
            mark_steps(ax, steps)
            ax.legend(fontsize=7)
    headline(figure, f"Reused samples: lines DMFT, points d\u00a0=\u00a0{dim} (full: neuron 1, open: neuron 2)")
    return figure
