"""How many passes are still online? Small batches from n = α d samples, pass after
pass, against the ODE of fresh ones.

    lr = γ/d:   a visit moves the weights by γ g z/(p d),
        and the next one comes after α d others

In the first pass every sample is new. What a visit leaves in the weights fades at the
rate of learning, so that with many samples a second visit finds hardly anything of the
first, and passes stay online; with few it meets itself at once, and the risk on the
samples parts from that on all inputs. The theory of the few is the limit of small
batches, DMFT at batches of d/8 and d/16 and one step of Richardson. Dashed: the best
possible with as many samples, all fresh; a set of α d samples cannot end below its
value at α.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.choosing import chosen_problem
from twolayer.gallery.shared.drawing import headline, points, sheet, task_of, told
from twolayer.gallery.shared.judging import Verdict, holds, largest, unknown, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import positive_integer, require
from twolayer.numerics.significance import limit_of
from twolayer.numerics.statistics import standard_error

PER_DIMENSION = 3.0  # what a finite dimension may add to a risk, over d
BEST_AT = 25  # numbers of samples at which the best possible is known
OFF = 0.05  # a run is no longer online where its excess risk is off by this part


@figure(
    "passes",
    "how many passes are still online? small batches from α d samples, α from 1 to 64,"
    " against the ODE of fresh ones",
    quick={"dim": 60, "seeds": 32, "passes": 3, "tolerance": 2e-2, "log2_points": 11},
    group="giant-steps",
)
def passes(
    *,
    seed: int = 0,
    target: str = "tanh(2*z1)",
    activation: str = "erf",
    geometry: str = "free",
    alphas: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0),
    theory: tuple[float, ...] = (1.0, 2.0),
    dim: int = 400,
    seeds: int = 64,
    passes: int = 8,
    gamma: float = 1.2,
    noise: float = 0.2,
    sampling: str = "reshuffled",
    tolerance: float = 6e-3,
    log2_points: int = 13,
) -> Finding:
    """Excess risk after every pass, and its deviation from the ODE, for each α;
    small-batch DMFT for some.
    """
    positive_integer("seeds", seeds, 2)
    positive_integer("passes", passes, 2)
    for alpha in alphas:
        require(
            alpha * dim == round(alpha * dim),
            "alphas",
            alpha,
            f"numbers that give whole sets at dim = {dim}",
        )
    problem = chosen_problem(target, activation, 1, second_layer=[1.5], noise=noise)
    start = tl.Overlaps([[1.0]], [[0.1]])
    fresh = tl.SGD(lr=gamma / tl.d, geometry=geometry)
    data = xr.Dataset(coords={"alpha": list(alphas), "passed": np.arange(passes + 1)})
    each = [
        part(
            f"alpha={a:g}",
            partial(
                _runs, problem, start, fresh, a, sampling, dim, passes, seeds, seed
            ),
        )
        for a in alphas
    ]
    for name in each[0]:
        data[str(name)] = ("alpha", "passed"), np.stack([x[name].values for x in each])
    data = data.assign_coords(theory=[a for a in theory if a in alphas])
    limits = [
        part(
            f"dmft-{a:g}",
            partial(
                _small_batches,
                problem,
                start,
                fresh,
                a,
                sampling,
                gamma,
                passes,
                tolerance,
                log2_points,
            ),
        )
        for a in data.theory.values
    ]
    for name in limits[0] if limits else ():
        data[f"{name}_limit"] = (
            ("theory", "passed"),
            np.stack([x[name].values for x in limits]),
        )
    seen = np.geomspace(min(alphas), passes * max(alphas), BEST_AT)
    best = part(
        "best",
        lambda: {
            "risk": tl.best_possible(problem.target, seen, noise=noise).excess_risk
        },
    )
    data["best"] = ("seen",), best.risk.values
    data = data.assign_coords(seen=seen)
    return Finding(data, _verdict(data, noise, seeds, dim), task_of(problem))


def _runs(
    problem: tl.Problem,
    start: tl.Overlaps,
    fresh: tl.SGD,
    alpha: float,
    sampling: str,
    dim: int,
    passes: int,
    seeds: int,
    seed: int,
) -> dict[str, np.ndarray]:
    """Risks after every pass through α d samples, with their errors, and the excess
    risk of fresh ones.
    """
    algorithm, passed = (
        fresh.replace(dataset=alpha * tl.d, sampling=sampling),
        np.arange(passes + 1),
    )
    run = tl.solve(
        problem,
        algorithm,
        tl.Vectors(dim),
        start,
        steps=passed * round(alpha * dim),
        seeds=seeds,
        seed=seed,
    )
    found = {
        "online": (
            tl.solve(
                problem, fresh, tl.ODE(), start, time=run.time.values
            ).excess_risk.values[0]
        )
    }
    for name in ("excess_risk", "train_risk"):
        values = run[name].values
        found |= {name: values.mean(0), f"{name}_error": standard_error(values)}
    return found


def _small_batches(
    problem: tl.Problem,
    start: tl.Overlaps,
    fresh: tl.SGD,
    alpha: float,
    sampling: str,
    gamma: float,
    passes: int,
    tolerance: float,
    log2_points: int,
) -> dict[str, np.ndarray]:
    """DMFT at batches of d/8 and d/16, extrapolated to none: risks after every pass,
    with their errors.
    """
    runs = []
    for parts in (8, 16):
        share = 1 / parts
        reused: Options = {"dataset": alpha * tl.d, "sampling": sampling}
        algorithm = fresh.replace(lr=gamma * share, batch=share * tl.d, **reused)
        steps = np.arange(passes + 1) * round(alpha * parts)
        lens = tl.DMFT(
            tl.Averages(accuracy=tolerance, points=2**log2_points),
            max_log2_points=log2_points + 2,
        )
        runs.append(tl.solve(problem, algorithm, lens, start, steps=steps))
    coarse, fine = runs
    found = {}
    for name, error in (
        ("excess_risk", "risk_error"),
        ("train_risk", "train_risk_error"),
    ):
        found[name] = 2 * fine[name].values[0] - coarse[name].values[0]
        found[f"{name}_error"] = np.hypot(
            2 * fine[error].values[0], coarse[error].values[0]
        )
    return found


def online_passes(data: xr.Dataset) -> np.ndarray:
    """For each α the number of passes whose excess risk is within `OFF` of the ODE's,
    up to the errors.
    """
    gap = np.abs(data.excess_risk - data.online) - 2 * data.excess_risk_error
    off = (gap > OFF * data.online).values
    return np.where(off.any(1), np.argmax(off, axis=1) - 1, data.sizes["passed"] - 1)


def _verdict(data: xr.Dataset, noise: float, seeds: int, dim: int) -> Verdict:
    finite = PER_DIMENSION / dim
    gap, error = (data.excess_risk - data.online).values, data.excess_risk_error.values
    many, few = int(np.argmax(data.alpha.values)), int(np.argmin(data.alpha.values))
    scale = float(data.online.values[:, 0].max())
    judged: Options = {
        "resolution": scale / 4,
        "allowance": finite,
        "freedom": seeds - 1,
    }
    checks = [
        largest(
            "the first pass for all α, runs − ODE", gap[:, 1], error[:, 1], **judged
        ),
        largest(
            f"all passes at α = {data.alpha.values[many]:g}",
            gap[many, 1:],
            error[many, 1:],
            **judged,
        ),
    ]
    excess = abs(gap[few, -1]) - finite - limit_of(1, seeds - 1) * error[few, -1]
    told_ = (
        f"at α = {data.alpha.values[few]:g} the last pass is off by {gap[few, -1]:.3f}"
        f" ± {error[few, -1]:.3f}"
    )
    checks.append(
        holds(True, told_)
        if excess > 0
        else unknown(f"{told_}, no more than the tolerance")
    )
    for i, alpha in enumerate(data.theory.values):
        at = int(np.flatnonzero(data.alpha.values == alpha)[0])
        for name, words in (
            ("excess_risk", "excess risk"),
            ("train_risk", "training risk"),
        ):
            deviation = data[name].values[at, 1:] - data[f"{name}_limit"].values[i, 1:]
            both = np.hypot(
                data[f"{name}_error"].values[at, 1:],
                data[f"{name}_error_limit"].values[i, 1:],
            )
            checks.append(
                largest(
                    f"{words} at α = {alpha:g}, runs − small-batch DMFT",
                    deviation,
                    both,
                    **judged,
                )
            )
    counts = ", ".join(
        f"{a:g}: {n}"
        for a, n in zip(data.alpha.values, online_passes(data), strict=True)
    )
    note = (
        f"Passes within {OFF:.0%} of the ODE, of {data.sizes['passed'] - 1}, by α:"
        f" {counts}; label noise {noise:g}"
    )
    return verdict("few samples are online for one pass, many for all", checks, note)


def draw(data: xr.Dataset) -> Figure:
    """Excess and training risk after every pass, and how many passes are online."""
    from twolayer.plot.best_possible import best_line
    from twolayer.plot.style import COLOURS, DIRECTIONS

    chosen = told(data)
    steps = "" if chosen.geometry == "free" else f", {chosen.geometry}"
    drawn, (risks, training, answer) = sheet(3)
    passed, shown = (
        data.passed.values,
        {float(a): i for i, a in enumerate(data.theory.values)},
    )
    for i, alpha in enumerate(data.alpha.values):
        hue, seen = DIRECTIONS[i], alpha * passed
        risks.plot(
            seen[1:],
            data.online.values[i, 1:],
            color="0.6",
            lw=3,
            zorder=1,
            label="ODE" if not i else None,
        )
        for ax, name in ((risks, "excess_risk"), (training, "train_risk")):
            points(
                ax,
                seen[1:],
                data[name].values[i, 1:],
                data[f"{name}_error"].values[i, 1:],
                hue,
                rf"$\alpha = {alpha:g}$",
            )
            if alpha in shown:
                limit = data[f"{name}_limit"].values[shown[alpha]]
                ax.plot(
                    seen[1:],
                    limit[1:],
                    color=hue,
                    lw=1.4,
                    label=rf"DMFT, $\alpha = {alpha:g}$",
                )
    best_line(risks, data.seen, data.best)
    counts = online_passes(data)
    answer.plot(data.alpha.values, counts, "o-", color=COLOURS["theory"])
    last = data.sizes["passed"] - 1
    answer.set(
        xscale="log",
        ylim=(0, last + 0.5),
        xlabel=r"$\alpha = n/d$",
        title=f"passes within {OFF:.0%} of the ODE",
    )
    for ax in (risks, training):
        ax.set(xscale="log", xlabel="samples seen / $d$")
    risks.set(yscale="log", title="excess risk after every pass")
    training.set(title="training risk")
    risks.legend(fontsize=7, ncols=2)
    headline(
        drawn,
        data,
        f"lr = {chosen.gamma:g}/d, batch 1{steps}; points: runs at d = {chosen.dim};"
        " lines: small-batch DMFT",
    )
    return drawn
