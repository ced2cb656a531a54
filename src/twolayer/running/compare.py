"""`compare`: several lenses on one description, and the verdict.

    deviation = mean over seeds − theory;    agree  ⇔  |deviation| ≤ C/d + 5·standard error

A mean at finite d is not the limit: it is off by C/d. C is measured, not assumed: a pilot run of the chain at d/8
from the same start gives |deviation|·d/8, with its own error added. Where the chain refuses, C/d is unknown and nothing
is allowed for it. A deterministic method has no standard error: its deviation is told, not judged.

Overlaps are compared through m_r = (mean_j M_jr²)^{1/2}, which does not care how neurons are numbered or signed.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from scipy.interpolate import make_interp_spline

from twolayer.methods.chain import Chain
from twolayer.numerics.errors import InputError, Interrupted, Refused, reject
from twolayer.running import dataset as storage
from twolayer.running.dataset import quantities
from twolayer.running.solve import DivergenceWarning, applicable, check_description, given_start, refusals, solve
from twolayer.task.algorithm import SGD
from twolayer.task.clocks import Clocks
from twolayer.task.method import METHODS, Method, Outcome
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem

__all__ = ["compare", "default_methods", "verdict_table"]

SIGMAS = 5.0
PILOT = 8  # the pilot for C/d runs at d/8
MAX_VECTOR_WORK = 3e10  # numbers moved by Vectors beyond which it is left out unless asked for


def default_methods(
    problem: Problem, algorithm: SGD, dim: int | None, time: Any, steps: Any, seeds: int
) -> list[Method]:
    """All applicable methods at the given dimension; explicit vectors only while they are cheap."""
    out: list[Method] = []
    for name in applicable(problem, algorithm):
        cls = METHODS[name.lower()]
        if not cls.in_comparisons:
            continue
        try:
            method = cls()
        except TypeError:
            if dim is None:
                continue
            method = cls(dim=dim)  # type: ignore[call-arg]
        if method.name == "vectors" and dim is not None:
            clocks = Clocks(problem, algorithm, dim)
            count = np.max(steps) if steps is not None else clocks.steps(float(np.max(time)))
            if count * algorithm.batch_at(dim) * problem.p * dim * seeds > MAX_VECTOR_WORK:
                continue
        out.append(method)
    return sorted(out, key=lambda m: m.stochastic)


def _labels(methods: Sequence[Method]) -> list[str]:
    """One name per method: the plain word, with the dimension, then a number, where two would be the same."""
    words = [m.name for m in methods]
    names = [f"{m.name}_{m.dimension}" if words.count(m.name) > 1 and m.dimension else m.name for m in methods]
    return [f"{n}_{names[:i].count(n) + 1}" if names.count(n) > 1 else n for i, n in enumerate(names)]


def _bias(
    problem: Problem,
    algorithm: SGD,
    start: Overlaps,
    dim: int,
    theory: xr.Dataset,
    seeds: int,
    seed: int,
    progress: Any,
) -> dict[str, np.ndarray] | None:
    """C/d at the times of the theory: the deviation of a pilot chain at d/8, plus its 2 standard errors, over 8."""
    small = dim // PILOT
    try:
        times = theory.time.values
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DivergenceWarning)  # a pilot that diverges gives no allowance, that is all
            pilot = solve(
                problem, algorithm, Chain(small), start, time=times, seeds=seeds, seed=seed + 1, progress=progress
            )
    except InputError:
        return None
    alive = np.isin(pilot.outcome.values, [Outcome.OK])
    if alive.sum() < 4:
        return None
    out = {}
    for name, reference in quantities(theory).items():
        values = quantities(pilot)[name][alive]
        expected = _at(theory.time.values, reference[0], pilot.time.values)
        spread = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        bound = (np.abs(values.mean(axis=0) - expected) + 2 * spread) / PILOT
        out[name] = np.interp(theory.time.values, pilot.time.values, bound)
    return out


def _at(times: np.ndarray, values: np.ndarray, where: np.ndarray) -> np.ndarray:
    """A smooth curve at other times."""
    if len(times) < 4:
        return np.interp(where, times, values)
    return np.asarray(make_interp_spline(times, values, k=3)(np.clip(where, times[0], times[-1])))


def _reasons(problem: Problem, start: Overlaps, result: xr.Dataset, dim: int) -> str:
    """Why a run may leave the theory although neither is wrong."""
    found = []
    outcome = result.outcome.values
    if (outcome == Outcome.DIVERGED).any():
        found.append(f"{int((outcome == Outcome.DIVERGED).sum())} seeds diverged and are left out")
    overlap = np.sqrt((start.M**2).sum(axis=-2)).min()
    if overlap * np.sqrt(dim) < 5:
        found.append(
            f"the start has overlap {overlap:.2g} ≈ {overlap * np.sqrt(dim):.1f}/√d with a direction: there the noise "
            "of single samples competes with the drift, and the time of escape is random even as d → ∞"
        )
    poly = problem.activation.polynomial
    if poly is not None and len(poly) > 2:
        found.append("gradients of polynomial activations are heavy-tailed: the C/d expansion needs a larger d")
    return "; ".join(found) or "the dimension is too small for the C/d expansion, or lr too large for the limit"


def _judge(
    problem: Problem,
    start: Overlaps,
    result: xr.Dataset,
    reference: xr.Dataset,
    allowance: dict[str, np.ndarray] | None,
    dim: int,
    stochastic: bool = True,
) -> list[dict[str, Any]]:
    """One row per quantity. What is not random has no standard error, so its deviation is told and not judged."""
    stuck = (Outcome.DIVERGED, Outcome.MAX_STEPS)
    alive, standing = (~np.isin(x.outcome.values, stuck) for x in (result, reference))
    rows: list[dict[str, Any]] = []
    for name, values in quantities(result).items():
        if alive.sum() < 1 + stochastic or not standing.any():
            who, ended = ("it", result) if standing.any() else ("the reference", reference)
            ends = ", ".join(f"{o}: {Outcome.ADVICE[o]}" for o in sorted(set(ended.outcome.values)))
            few = stochastic and standing.any()
            reason = "fewer than two seeds survived" if few else f"{who} ended early, {ends}"
            rows.append({"quantity": name, "verdict": "no verdict", "reason": reason})
            continue
        times, kept = result.time.values, values[alive]
        mean, other = kept.mean(axis=0), quantities(reference)[name][standing]
        expected = _at(reference.time.values, other.mean(axis=0), times)
        row = {"quantity": name, "reference": float(expected[-1]), "mean": float(mean[-1])}
        row["deviation"] = float(mean[-1] - expected[-1])
        if not stochastic:
            rows.append({**row, "verdict": "no verdict", "reason": "deterministic: no standard error"})
            continue
        error = kept.std(axis=0, ddof=1) / np.sqrt(len(kept))
        if other.shape[0] > 1:
            spread = other.std(axis=0, ddof=1) / np.sqrt(other.shape[0])
            error = np.hypot(error, np.interp(times, reference.time.values, spread))
        extra = np.zeros_like(mean) if allowance is None else np.interp(times, reference.time.values, allowance[name])
        room = extra + SIGMAS * error + 1e-9
        ratio = np.abs(mean - expected) / room
        same = int(times[0] == 0 and len(times) > 1)  # at the start there is nothing to judge
        worst = int(np.argmax(ratio[same:])) + same
        agree = bool(ratio[-1] <= 1)
        rows.append(
            {
                **row,
                "standard_error": float(error[-1]),
                "allowance": np.nan if allowance is None else float(extra[-1]),
                "worst_ratio": float(ratio[worst]),
                "worst_time": float(times[worst]),
                "verdict": "agree" if agree else "differ",
                "reason": "" if agree and ratio[worst] <= 1 else _reasons(problem, start, result, dim),
            }
        )
    return rows


def compare(
    problem: Problem,
    algorithm: SGD,
    methods: Sequence[Method] | None = None,
    start: Overlaps | str | None = None,
    *,
    time: Any = None,
    steps: Any = None,
    save: Any = 200,
    seeds: int = 16,
    seed: int = 0,
    progress: Any = None,
    quiet: bool = False,
) -> xr.DataTree:
    """Run several methods from the same start, judge whether they agree, and print the table.

    Parameters
    ----------
    problem, algorithm : Problem, SGD
    methods : sequence of Method, optional
        By default every applicable one, at the dimension of the start. Methods that refuse are skipped, and the
        table says why.
    start : Overlaps or str
        Or ``"random"``: drawn at the dimension of the methods, one start for all.
    time, steps : float or int
        End of the run.
    save : int or sequence
        As for `solve`.
    seeds, seed : int
        For the stochastic methods.
    quiet : bool
        Do not print.

    Returns
    -------
    xarray.DataTree
        A group for each method, and the table of verdicts at the root.
    """
    check_description(problem, algorithm)
    if isinstance(start, str):
        dims = {method.dimension for method in methods or () if isinstance(method, Method)} - {None}
        start = given_start(
            problem, start, dims.pop() if len(dims) == 1 else None, seed, why="the methods have not one"
        )
    if not isinstance(start, Overlaps):
        reject("start", start, "Overlaps, or 'random'")
    if methods is None:
        methods = default_methods(problem, algorithm, start.dim, time, steps, seeds)
        if not methods:
            reasons = refusals(problem, algorithm).items()
            why = "; ".join(f"{name}: {reason or 'it needs a start with a dim'}" for name, reason in reasons)
            raise InputError(f"No method applies of itself ({why}).")
    if not methods:
        raise InputError("Argument `methods` must name at least one method, but is empty.")
    for method in methods:
        if not isinstance(method, Method):
            reject("methods", method, "methods such as ODE() and Chain(dim=1000)")
    skipped: dict[str, str] = {}
    usable: list[Method] = []
    for method in methods:
        reason = method.refusal(problem, algorithm)
        if reason is None:
            usable.append(method)
        else:
            skipped[type(method).__name__] = reason
    if not usable:
        raise Refused(", ".join(skipped), "; ".join(skipped.values()), applicable(problem, algorithm))
    usable.sort(key=lambda m: m.stochastic)
    names = _labels(usable)
    results: dict[str, xr.Dataset] = {}
    common = {"seeds": seeds, "seed": seed, "progress": progress}
    grid: Any = None
    try:
        for name, method in sorted(zip(names, usable, strict=True), key=lambda pair: not pair[1].stepwise):
            # continuous methods are saved where the first stepwise one is
            ends: dict[str, Any] = {"time": time, "steps": steps, "save": save}
            if not method.stepwise and grid is not None:
                ends = {"time": grid, "steps": None, "save": save}
            results[name] = solve(problem, algorithm, method, start, throw=False, **_given(ends), **common)
            if method.stepwise and grid is None:
                grid = results[name].time.values
        rows = _verdicts(problem, algorithm, start, dict(zip(names, usable, strict=True)), results, common)
    except KeyboardInterrupt as stop:
        if isinstance(stop, Interrupted):
            results.setdefault(name, stop.result)  # of the pilot nothing is kept
        if not results:
            raise
        part = _tree([n for n in names if n in results], results, [], skipped, complete=False)
        raise Interrupted(part) from None
    tree = _tree(names, results, rows, skipped)
    if not quiet:
        from rich.console import Console

        Console(file=sys.stdout).print(verdict_table(tree))
    return tree


def _given(ends: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in ends.items() if v is not None}


def _verdicts(
    problem: Problem,
    algorithm: SGD,
    start: Overlaps,
    methods: dict[str, Method],
    results: dict[str, xr.Dataset],
    common: dict[str, Any],
) -> list[dict[str, Any]]:
    """Rows of the table: every method but the first against the first."""
    (reference_name, first), *others = methods.items()
    reference = results[reference_name]
    biases: dict[int, dict[str, np.ndarray] | None] = {}
    rows: list[dict[str, Any]] = []
    for name, method in others:
        dim = method.dimension
        allowance = None
        if not first.stochastic and method.stochastic and dim is not None and dim >= 2 * PILOT:
            if dim not in biases:
                biases[dim] = _bias(problem, algorithm, start, dim, reference, **common)
            allowance = biases[dim]
        judged = _judge(problem, start, results[name], reference, allowance, dim or 0, method.stochastic)
        rows += [{"method": name, "dim": dim or 0, **row} for row in judged]
    return rows


def _tree(
    names: list[str],
    results: dict[str, xr.Dataset],
    rows: list[dict[str, Any]],
    skipped: dict[str, str],
    complete: bool = True,
) -> xr.DataTree:
    text = ("method", "quantity", "verdict", "reason")
    numbers = ("dim", "reference", "mean", "standard_error", "allowance", "deviation", "worst_ratio", "worst_time")
    table = {
        c: (
            "row",
            np.array(
                [row.get(c, "" if c in text else np.nan) for row in rows],
                dtype=object if c in text else float,
            ),
        )
        for c in (*text, *numbers)
        if rows
    }
    root = xr.Dataset(table)
    root.attrs = {
        "schema": storage.SCHEMA,
        "reference": names[0],
        "skipped": json.dumps(skipped),
        "versions": json.dumps(storage.versions()),
        "complete": json.dumps(complete),
        "papers": "[]",
    }
    return xr.DataTree.from_dict({"/": root, **{f"/{name}": results[name] for name in names}})


def verdict_table(tree: xr.DataTree) -> Any:
    """The table of verdicts as something rich can print."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("method", "", "mean (s.e.)", "theory", "deviation", "C/d", "verdict", "worst"):
        justify: Any = "left" if column in ("method", "", "verdict") else "right"
        table.add_column(column, justify=justify, no_wrap=True)
    root = tree.to_dataset()
    reasons: dict[str, str] = {}
    for i in range(root.sizes.get("row", 0)):
        row = {name: root[name].values[i] for name in root.data_vars}
        if row["verdict"] == "no verdict":
            known = np.isfinite(row["deviation"])
            numbers = [f"{row[c]:.4g}" for c in ("mean", "reference")] + [f"{row['deviation']:+.1e}"]
            table.add_row(row["method"], row["quantity"], *(numbers if known else [""] * 3), "", row["verdict"], "")
        else:
            colour = "green" if row["verdict"] == "agree" else "red"
            digits = int(np.clip(1 - np.floor(np.log10(max(row["standard_error"], 1e-9))), 2, 9))
            table.add_row(
                row["method"],
                row["quantity"],
                f"{row['mean']:.{digits}f}({row['standard_error'] * 10**digits:.0f})",
                f"{row['reference']:.{digits}f}",
                f"{row['deviation']:+.1e}",
                f"{row['allowance']:.1e}" if np.isfinite(row["allowance"]) else "unknown",
                Text(row["verdict"], style=colour),
                f"{row['worst_ratio']:.2f} t={row['worst_time']:.3g}",
            )
        if row["reason"]:
            reasons[row["method"]] = row["reason"]
    note = Text("final values; worst: largest deviation over the whole run, in units of C/d + 5 s.e.", style="dim")
    lines: list[Any] = [table, note] if root.sizes.get("row", 0) else []
    reference = tree[tree.attrs["reference"]].to_dataset()
    final = ", ".join(f"{name} {values.mean(axis=0)[-1]:.6g}" for name, values in quantities(reference).items())
    lines.insert(0, Text(f"{tree.attrs['reference']}: at t = {reference.time.values[-1]:.4g}  {final}"))
    lines += [Text(f"{method}: {reason}") for method, reason in reasons.items()]
    lines += [Text(f"skipped {name}: {why}") for name, why in json.loads(tree.attrs["skipped"]).items()]
    return Group(*lines)
