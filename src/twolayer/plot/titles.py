"""What was asked, in two lines: the task, and the algorithm that is let loose on it.

    teacher erf, k = 2, a* = 1   student erf, p = 4, a = ±1   Δ = 0.1
    lr = 0.1/d, batch 1, fresh samples, projected

Both are read from the description that every result carries. The data set, the second
layer and the weights of a teacher are always named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from twolayer.numerics.arguments import Json

__all__ = [
    "algorithm_line",
    "algorithm_parts",
    "inputs_text",
    "problem_line",
    "problem_parts",
    "weights_text",
]

LAYERS = {"ones": "a = 1", "signs": "a = ±1", "gaussian": "a Gaussian"}
NORMS = {"sum": "1", "sqrt": "√p"}
MANY = 4  # weights that are named one by one
LONG = 70  # characters of a target


def problem_line(problem: Json, trained: bool = False) -> str:
    """The task: target, student, second layer, noise.

    Examples
    --------
    >>> told = {
    ...     "target": "He2(z1)",
    ...     "activation": "He2",
    ...     "width": 4,
    ...     "second_layer": "ones",
    ...     "noise": 0.1,
    ... }
    >>> problem_line(told)
    'target He2(z1)   student He2, p = 4, a = 1   Δ = 0.1'
    """
    return "   ".join(problem_parts(problem, trained))


def problem_parts(problem: Json, trained: bool = False) -> list[str]:
    """What `problem_line` says, one thing after the other."""
    target, layer = problem["target"], problem.get("second_layer") or "ones"
    if isinstance(target, dict):
        weights = target.get("weights", [1.0])
        target = (
            f"teacher {target['teacher']}, k = {target['k']},"
            f" {weights_text('a*', weights)}"
        )
    else:
        target = f"target {target if len(target) <= LONG else target[: LONG - 1] + '…'}"
    if problem.get("gram") is not None:
        target += ", P given"
    said = LAYERS[layer] if isinstance(layer, str) else weights_text("a", layer)
    parts = [target, f"student {problem['activation']}, p = {problem['width']}, {said}"]
    if trained:
        parts[-1] += " at first, trained"
    if problem.get("normalisation", "mean") != "mean":
        parts[-1] += f", normalised by {NORMS[problem['normalisation']]}"
    if problem["noise"]:
        law = problem.get("noise_law", "gaussian")
        parts.append(
            f"Δ = {problem['noise']:g}" + ("" if law == "gaussian" else f" ({law})")
        )
    if problem.get("flips"):
        parts.append(f"{problem['flips']:.0%} of the labels flipped")
    if problem.get("inputs"):
        parts.append(inputs_text(problem["inputs"]))
    return parts


def inputs_text(inputs: Json) -> str:
    """The law of inputs that are not N(0, I).

    Examples
    --------
    >>> inputs_text({"kind": "power_law", "exponent": 1.5, "dim": 100})
    'inputs with variances j^−1.5'
    >>> inputs_text(
    ...     {"kind": "blocks", "variances": [2.0, 0.5], "fractions": [0.5, 0.5]}
    ... )
    'inputs with variances (2, 0.5)'
    >>> inputs_text({"kind": "power_law", "dim": 100})  # the exponent is swept
    'inputs with variances j^−a'
    """
    if inputs["kind"] == "power_law":
        power = f"{inputs['exponent']:g}" if "exponent" in inputs else "a"
        return f"inputs with variances j^−{power}"
    if "variances" not in inputs:
        return "inputs in blocks"
    values = inputs["variances"]
    if len(values) > MANY:
        return (
            f"inputs with {len(values)} variances from {max(values):.3g} to"
            f" {min(values):.3g}"
        )
    return f"inputs with variances ({', '.join(f'{x:.3g}' for x in values)})"


def weights_text(name: str, weights: Sequence[float]) -> str:
    """The weights of a second layer, short.

    Examples
    --------
    >>> weights_text("a*", [1.0, 1.0]), weights_text("a", [1.0, -1.5])
    ('a* = 1', 'a = (1, −1.5)')
    """
    values = np.ravel(np.asarray(weights, dtype=float))
    if np.ptp(values) == 0:
        return f"{name} = {values[0]:.3g}".replace("-", "−")
    shown = ", ".join(f"{x:.3g}" for x in values[:MANY]) + (
        ", …" if values.size > MANY else ""
    )
    return f"{name} = ({shown})".replace("-", "−")


SAMPLED = {
    "replacement": "drawn with replacement",
    "reshuffled": "reshuffled",
    "subset": "random subsets",
}


def algorithm_line(algorithm: Json) -> str:
    """The algorithm: rate, batch, data set, and what is not plain SGD on the squared
    loss.

    Examples
    --------
    >>> algorithm_line(
    ...     {
    ...         "lr": "0.1/d",
    ...         "batch": "3*d",
    ...         "dataset": "3*d",
    ...         "geometry": "free",
    ...         "loss": "squared",
    ...     }
    ... )
    'lr = 0.1/d, batch 3*d of the same 3*d samples'
    >>> algorithm_line(
    ...     {
    ...         "lr": "1/d",
    ...         "batch": "1",
    ...         "dataset": None,
    ...         "geometry": "projected",
    ...         "loss": "correlation",
    ...     }
    ... )
    'lr = 1/d, batch 1, fresh samples, projected, correlation loss'
    >>> from twolayer import SGD
    >>> algorithm_line(
    ...     SGD(
    ...         "1/d",
    ...         rule="clip(0.5)",
    ...         momentum=0.9,
    ...         nesterov=True,
    ...         train_second_layer=True,
    ...     ).describe()
    ... )
    'lr = 1/d, batch 1, fresh samples, clip(0.5), Nesterov momentum 0.9, both layers'
    """
    return ", ".join(algorithm_parts(algorithm))


def algorithm_parts(algorithm: Json) -> list[str]:
    """What `algorithm_line` says, one thing after the other."""
    data = algorithm.get("dataset")
    parts = [f"lr = {_short(algorithm['lr'])}"]
    batch = f"batch {_short(algorithm['batch'])}"
    if data is None:
        parts += [batch, "fresh samples"]
    else:
        parts.append(f"{batch} of the same {_short(data)} samples")
        sampled = SAMPLED.get(algorithm.get("sampling", ""))
        if sampled:
            parts.append(sampled)
    if algorithm.get("repeat", 1) > 1:
        parts.append(f"each batch {algorithm['repeat']} times")
    if algorithm["geometry"] != "free":
        parts.append(str(algorithm["geometry"]))
    if algorithm["loss"] != "squared":
        parts.append(f"{algorithm['loss']} loss")
    if algorithm.get("rule"):
        parts.append(str(algorithm["rule"]))
    ahead = "Nesterov " if algorithm.get("nesterov") else ""
    for key, word in (
        ("momentum", f"{ahead}momentum"),
        ("weight_decay", "weight decay"),
    ):
        if algorithm.get(key):
            parts.append(f"{word} {algorithm[key]:g}")
    if algorithm.get("train_second_layer"):
        both = algorithm.get("train_first_layer", True)
        parts.append("both layers" if both else "second layer alone")
    return parts


def _short(law: object) -> str:
    """A law with four digits of its numbers.

    Examples
    --------
    >>> _short("0.08333333333333333/d")
    '0.08333/d'
    """
    return re.sub(
        r"\d+\.\d{4,}(e-?\d+)?", lambda found: f"{float(found[0]):.4g}", str(law)
    )
