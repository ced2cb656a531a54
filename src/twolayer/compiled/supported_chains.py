"""Which chains have a step that is written out, and where it becomes machine code.

named and typed functions, plain SGD,           written out; inputs may have
batches that fit in memory, p up to 16          blocks, of any size, on CPUs
all else                                        equations/
"""

from __future__ import annotations

import importlib.util

import jax

from twolayer.compiled.formula import formula_of_activation, formula_of_target
from twolayer.equations.increment_kernel import Kernel
from twolayer.equations.optimiser_step import Form
from twolayer.equations.orthogonal import Reduced
from twolayer.task.algorithm import SGD
from twolayer.task.problem import Problem
from twolayer.task.scaling import Scaling

__all__ = ["no_machine_code", "unwritten"]

# p² (p + min(p, n_b)): code is unrolled, and longer code takes many seconds to compile
LONGEST = 4500


def unwritten(
    problem: Problem, algorithm: SGD, at: Reduced, held: bool, quantity: str | None
) -> str | None:
    """Why the step of a chain is not written out, as the end of a sentence; None where
    it is.

    ``held`` says whether every sample of a batch is drawn, and all at once;
    ``quantity`` what is watched at every step.
    """
    if (
        formula_of_activation(problem.activation) is None
        or formula_of_target(problem.target) is None
    ):
        return (
            "activation or target is a function that only JAX knows, not a name or a"
            " formula"
        )
    plain = SGD(
        algorithm.lr.plain,
        algorithm.batch.plain,
        algorithm.loss,
        algorithm.geometry,
        0.0,
        algorithm.weight_decay,
        train_second_layer=algorithm.train_second_layer,
    )
    same = Problem(
        problem.target,
        problem.activation,
        problem.width,
        problem.noise,
        problem.gram,
        problem.second_layer,
        inputs=problem.inputs,
    )
    form = Form(at.form.geometry, False, at.form.trained)
    kernel = Kernel(at.kernel.activation, at.kernel.target, at.kernel.loss)
    if (plain, same, form, kernel) != (
        algorithm,
        problem,
        at.form,
        at.kernel,
    ) or not isinstance(algorithm.lr, Scaling):
        return "it takes steps of plain SGD on Gaussian inputs alone"
    if algorithm.loss.student is None:
        return f"the loss {algorithm.loss.name} is a function that only JAX knows"
    if not held:
        return "batches are too large to be held, or drawn from their Gaussian limit"
    if quantity not in (None, "overlap", "alignment"):
        return f"{quantity} is watched, which takes Gaussian averages at every step"
    if not at.blocks and (not at.factor.bartlett or at.columns != at.p):
        return (
            f"the dimension is too small: it needs {at.p} + {at.factor.rows} + 64"
            " directions outside the target's"
        )
    if at.p**2 * (at.p + at.factor.rows) > LONGEST:
        return (
            f"{at.p} neurons with batches of {at.batch} make code too long to be"
            " unrolled"
        )
    return None


def no_machine_code() -> str | None:
    """Why steps cannot be compiled for the processor, whatever they are; None where
    they can.
    """
    if importlib.util.find_spec("llvmlite") is None:
        return "llvmlite is not installed"
    if jax.default_backend() != "cpu":
        return f"it runs on CPUs, and JAX computes on {jax.default_backend()}"
    return None
