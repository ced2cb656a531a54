"""Whether e has the moments that averages need.

    mean push E[e], spread of single samples E[e²], covariance of increments E[e⁴]

e grows with the label unless the loss is flat far out, so that it has no more moments
than the label noise has. The exponential loss has none where outputs grow faster than
linearly, or linearly with noise of any law on the labels. A rule that bounds ĝ gives
the first layer all moments, whatever the labels do; the second layer takes its plain
step.
"""

from __future__ import annotations

from twolayer.task.algorithm import SGD
from twolayer.task.losses import Loss
from twolayer.task.problem import Problem

__all__ = ["infinite", "no_moment", "two_laws"]


def no_moment(problem: Problem, algorithm: SGD, power: int) -> str | None:
    """Why E[|ĝ|^power] is infinite, or for a second layer that is trained
    E[|e|^(power/2)]; None if they are finite.

    >>> heavy = Problem("z1", "relu", noise=0.1, noise_law="cauchy")
    >>> [
    ...     no_moment(heavy, SGD("1/d", rule=rule), 4) is None
    ...     for rule in (None, "clip(1)", "polyak()")
    ... ]
    [False, True, False]
    """
    rule = algorithm.rule
    if rule is None or not rule.bounded:
        return infinite(problem, algorithm.loss, power)
    # a mean of many e needs no variance to have a limit, and its fluctuations no fourth
    # moment
    return (
        infinite(problem, algorithm.loss, power // 2)
        if algorithm.train_second_layer
        else None
    )


def two_laws(problem: Problem, algorithm: SGD, fluctuating: bool = False) -> str | None:
    """Why averages over the noise of labels and that of the algorithm's own are not
    those of one Gaussian; or None.

    Of a loss that is linear only variances count, unless fluctuations are asked for.
    """
    rule, law = algorithm.rule, problem.labels.law
    if rule is None or not rule.relabels or law.name == "gaussian":
        return None
    if algorithm.loss.student is not None and not fluctuating:
        return None
    return (
        f"the rule {rule} adds Gaussian noise to labels that have noise of the law"
        f" {law.name}, and averages are taken over one law: use Gaussian noise, or a"
        " method that draws samples"
    )


def infinite(problem: Problem, loss: Loss, power: int) -> str | None:
    """Why E[|e|^power] is infinite, or None if it is finite.

    >>> infinite(
    ...     Problem("z1", "relu", noise=0.1, noise_law="cauchy"), Loss.of("huber"), 2
    ... ) is None
    True
    """
    law, noise = problem.labels.law, problem.noise
    noisy = not isinstance(noise, float) or noise > 0
    if noisy and law.moments <= power and not loss.bounded:
        return (
            f"label noise of the law {law.name} has no moment of order {power}, and the"
            f" loss {loss.name!r} passes outliers on, so that E[|e|^{power}] is"
            " infinite: a loss that is flat far out, such as 'huber', has it, and so"
            " have gradients that are cut, as by the rule clip(1)"
        )
    if noisy and loss.student is None and not loss.bounded and law.moments < SLOW:
        return (
            f"averages of the loss {loss.name!r} over label noise of the law {law.name}"
            " converge too slowly to be taken by quadrature: use 'huber', or ν of at"
            f" least {SLOW:g}"
        )
    if loss.steep and (noisy or not problem.activation.bounded_growth):
        what = (
            "with label noise"
            if noisy
            else f"with outputs that grow as those of {problem.activation.name!r} do"
        )
        return f"the loss {loss.name!r} grows so fast that E[e²] may be infinite {what}"
    return None


SLOW = 4.0
"""ν below which E[e²] has a share of more than 1e-8 from noise beyond the reach of a
quadrature.
"""
