"""What a description says before anything is run.

formula     the target and the activation as LaTeX, or the character at which they
cannot be read analysis    exponents, leap chain and staircase of the target support
the methods that apply, and for each of the others the reason text        the same task
as Python, as a file, as a command; the papers behind what is shown
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twolayer.explorer.copying import as_python, as_shell, as_toml
from twolayer.explorer.speaking import Voice
from twolayer.files.taskfile import TaskFile
from twolayer.numerics.arguments import Json, Options
from twolayer.numerics.errors import InputError

if TYPE_CHECKING:
    from twolayer.analysis.exponents import Analysis, Staircase

__all__ = ["analysis", "formula", "support", "text"]


def formula(task: TaskFile, options: Json, voice: Voice) -> Json:
    """LaTeX of the target and the activation, each with the error and its place where
    there is one.
    """
    from twolayer.functions.activation import Activation
    from twolayer.functions.target import Target

    table = task.table.problem
    makers: dict[str, Callable[[], Target | Activation]] = {
        "target": lambda: Target.of(table.target, table.directions),
        "activation": lambda: Activation.of(table.activation),
    }
    found: Json = {}
    for name, make in makers.items():
        try:
            thing = make()
        except InputError as error:
            found[name] = {"error": str(error), "position": error.position}
        else:
            latex = (
                thing.latex
                if isinstance(thing, Target)
                else _activation_latex(thing.name)
            )
            found[name] = {"latex": latex, "name": thing.name}
            if isinstance(thing, Target):
                found["k"] = thing.directions
    return found


def _activation_latex(name: str) -> str:
    r"""An activation as LaTeX; names are those of the papers, where erf means
    erf(z/√2).

    Examples
    --------
    >>> _activation_latex("erf"), _activation_latex("tanh(z + 1)")
    ('\\mathrm{erf}(z/\\sqrt{2})', '\\tanh\\left(z + 1\\right)')
    """
    from twolayer.functions.expression import parse

    if name in ("erf", "square", "linear"):
        return {"erf": r"\mathrm{erf}(z/\sqrt{2})", "square": "z^{2}", "linear": "z"}[
            name
        ]
    called = f"{name}(z)"
    try:
        return parse(called if name.isalnum() and name != "z" else name, "z").latex
    except InputError:
        return rf"\mathrm{{{name.replace('_', ' ')}}}(z)"


def analysis(task: TaskFile, options: Json, voice: Voice) -> Json:
    """Exponents of the target, and which of its directions are learned at which
    step.
    """
    from twolayer.analysis.exponents import analyse

    found = analyse(task.problem())
    fresh, why_not = _staircase(found, task, reuse=False)
    reused, _ = _staircase(found, task, reuse=True)
    return {
        "information": found.information,
        "leap": found.leap,
        "chain": found.chain,
        "generative": found.generative,
        "generative_leap": found.generative_leap,
        "generative_chain": found.generative_chain,
        "staircase": None if fresh is None else list(fresh),
        "staircase_reused": None if reused is None else list(reused),
        "staircase_unknown": why_not,
        "staircase_why": None if fresh is None else _reasons(fresh, reused),
        "directions": found.directions,
        "unused": len(found.unused),
        "unresolved": len(found.unresolved),
    }


def _staircase(
    found: Analysis, task: TaskFile, reuse: bool
) -> tuple[Staircase | None, str | None]:
    """The giant step at which each direction is learned by the loss and rule of the
    task, or why nobody knows.
    """
    algorithm, activation = task.algorithm(), task.problem().activation
    push: Options = {"loss": algorithm.loss, "rule": algorithm.rule, "reuse": reuse}
    try:
        return found.staircase(activation, **push), None
    except InputError as reason:
        return None, str(reason)


def _reasons(fresh: Staircase, reused: Staircase | None) -> str:
    """Why each direction is learned then, a line for each."""
    from twolayer.analysis.directions import written

    lines = []
    for way, stairs in (("fresh", fresh), ("reused", reused)):
        if stairs is None:
            continue
        for row, step, why in zip(
            stairs.directions, stairs, stairs.reasons, strict=True
        ):
            when = "never" if step is None else f"step {step}"
            lines.append(f"{way} {written(row)}: {when}, {why}")
    return "\n".join(lines)


def support(task: TaskFile, options: Json, voice: Voice) -> Json:
    """Methods that apply, in the order in which they are shown, and the reasons of the
    others.
    """
    from twolayer.running.support import support as found_by

    problem, algorithm = task.problem(), task.algorithm()
    found, dim = found_by(problem, algorithm), task.table.run.dim
    values: Json = {
        "methods": list(found.methods),
        "reasons": found.reasons,
        "p": problem.p,
        "k": problem.k,
    }
    if dim is not None:
        values |= {"lr": algorithm.lr(dim), "batch": algorithm.batch_at(dim)}
    return values


def text(task: TaskFile, options: Json, voice: Voice) -> Json:
    """What is given away as text."""
    from twolayer.files.papers import cite

    words = tuple(options.get("methods") or ("ode", "chain"))
    dim = task.table.run.dim
    found = task.methods(list(words), 2 if dim is None else dim)
    return {
        "python": as_python(task, words),
        "toml": as_toml(task),
        "shell": as_shell(task, words),
        "bibtex": cite(*found, style="bibtex"),
    }
