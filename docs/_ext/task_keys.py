"""The tables of a task file, written from their schema; what a key means is told by the
docstring of what it becomes.

:::{task-keys} problem
:::
"""

from __future__ import annotations

import inspect
import re
import types
from typing import Any, Literal, Union, get_args, get_origin

from docutils import nodes
from public_names import Rst
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from sphinx.application import Sphinx
from sphinx.util import logging

import twolayer as tl
from twolayer.files import taskfile

TABLES: dict[str, tuple[type[taskfile.Table], tuple[Any, ...]]] = {
    "problem": (taskfile.ProblemTable, (tl.Problem,)),
    "algorithm": (taskfile.AlgorithmTable, (tl.SGD,)),
    "start": (taskfile.StartTable, (tl.Overlaps, tl.Overlaps.random)),
    "run": (taskfile.RunTable, (tl.solve,)),
    "until": (taskfile.UntilTable, (tl.Until,)),
    "stages": (taskfile.StageTable, (tl.Stage,)),
}
"""Tables of a file, and whose parameters their keys are."""

WORDS = {
    "problem.target": (
        'A formula in z1, z2, … (``"z1 + z1*z2"``), or the arguments of a `Teacher`:'
        ' ``{ teacher = "erf", k = 2, weights = [1.0, 1.0] }``, where ``teacher`` is'
        " its activation."
    ),
    "problem.activation": (
        'A name (``"erf"``, ``"relu"``, ``"He3"``) or a formula in z (``"tanh(z +'
        ' 0.7)"``).'
    ),
    "problem.directions": (
        "k, where the target has more directions than its formula uses."
    ),
    "problem.inputs": (
        "The law of the inputs, by the arguments of a maker of `Inputs` and its name as"
        ' ``kind``: ``{ kind = "blocks", variances = [2.0, 0.5], fractions = [0.2, 0.8]'
        ' }``, ``{ kind = "power_law", exponent = 1.5, dim = 1000 }``; N(0, I) by'
        " default."
    ),
    "algorithm.lr": (
        'Raw step on w with the batch-mean loss, a number or a law in d: ``"0.2/d"``;'
        ' with a schedule, such as ``"0.2/d * cosine(horizon=5)"``, it changes along'
        " the run."
    ),
    "algorithm.batch": (
        'Samples per step n_b, a number or a law in d: ``"2*d**1.5"``; it may have a'
        " schedule too."
    ),
    "algorithm.dataset": (
        'How many samples are fixed, a number or a law in d: ``"3*d"``. Batches are'
        " drawn from them; without it every sample is new."
    ),
    "algorithm.rule": (
        'What is made of gradients: ``"clip(0.25)"`` or another function of'
        " ``tl.rules``, as text."
    ),
    "algorithm.train_first_layer": "Whether W moves.",
    "algorithm.train_second_layer": (
        "Whether a moves too, by the step (second_lr/p) mean_ν e^ν σ(λ^ν)."
    ),
    "run.time": (
        "End of the run in time t = lr·step/p, or a list of save points; or ``steps``,"
        " or ``alpha``."
    ),
    "run.steps": "The same in steps.",
    "run.alpha": "The same in samples/d.",
    "run.passes": "The same in passes through ``algorithm.dataset``.",
    "start.random": (
        "The law of a random start at ``run.dim``: ``sphere``, ``hemisphere`` or"
        " ``gaussian``."
    ),
    "start.seed": "Which random start: as of `Overlaps.random`.",
    "start.Q": (
        "Overlaps between the neurons, p × p; together with M, instead of a random"
        " start."
    ),
    "start.M": "Overlaps with the target directions, p × k.",
    "start.blocks": (
        "``Q``, ``M`` and ``P`` in the blocks of the inputs, as of"
        " `Overlaps.in_blocks`."
    ),
    "run.dim": (
        "The dimension d. Needed by methods at finite dimension and by random starts."
    ),
    "run.methods": (
        "Names of methods, such as ``ode`` and ``chain``; all that apply if it is left"
        " out."
    ),
    "until.value": "The level.",
    "stages.algorithm": (
        "Keys of the algorithm that this stage changes, as ``algorithm.lr``."
    ),
    "stages.problem": (
        "Keys of the problem that this stage changes: another target over the same"
        " directions, or noise."
    ),
}
"""Keys that are no parameters, or whose parameters go without words."""

LOGGER = logging.getLogger(__name__)

KINDS = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    type(None): "",
}


def parameters(value: Any) -> dict[str, str]:
    """The parameters of a docstring of numpy's form, each with its description on one
    line.
    """
    section = re.search(
        r"Parameters\n-+\n(.*?)(\n\n\w+\n-+\n|\Z)",
        inspect.getdoc(value) or "",
        re.DOTALL,
    )
    found: dict[str, str] = {}
    for part in re.split(r"\n(?=\S)", section[1] if section else ""):
        head, _, text = part.partition("\n")
        for name in head.partition(" : ")[0].split(","):
            found[name.strip()] = " ".join(text.split())
    return found


def kind(annotation: Any) -> str:
    """A type in the words of a file."""
    if annotation in KINDS:
        return KINDS[annotation]
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f'"{x}"' for x in inside)
    if origin in (types.UnionType, Union):
        return " or ".join(dict.fromkeys(word for word in map(kind, inside) if word))
    if origin is list:
        return "list of " + re.sub(r"^(list|integer|number)", r"\1s", kind(inside[0]))
    if hasattr(annotation, "__metadata__"):
        return kind(inside[0])
    return "table"


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "*required*"
    value = field.default
    if value is None or value is PydanticUndefined:
        return "none"
    words = (
        f'"{value}"'
        if isinstance(value, str)
        else str(value).lower()
        if isinstance(value, bool)
        else repr(value)
    )
    return f"``{words}``"


def meaning(table: str, key: str) -> str:
    told: dict[str, str] = {}
    for source in TABLES[table][1]:
        told |= parameters(source)
    text = (
        WORDS.get(f"{table}.{key}")
        or told.get(key)
        or told.get(key.removeprefix("[").rstrip("]"))
    )
    if not text:
        LOGGER.warning(
            "nothing says what %s.%s means: document the parameter, or enter it in"
            " WORDS",
            table,
            key,
        )
    return text or ""


class TaskKeys(Rst):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        table = self.arguments[0]
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 16 20 12 52", ""]
        lines += ["   * - key", "     - type", "     - default", "     - meaning"]
        for key, field in TABLES[table][0].model_fields.items():
            lines += [
                f"   * - ``{key}``",
                f"     - {kind(field.annotation)}",
                f"     - {default(field)}",
            ]
            lines += [f"     - {meaning(table, key)}"]
        return self.parsed(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("task-keys", TaskKeys)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
