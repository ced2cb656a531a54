"""What a run may take before somebody says that it shall.

    seconds = compilation + seeds·cost ≤ 24 h of one core,
        bytes = seeds·footprint ≤ half of the memory

Both are the estimates of the method (`Method.cost`, `Method.footprint`), orders of
magnitude.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from twolayer.loops.checkpoint import Checkpoint
from twolayer.numerics.errors import InputError, Refused, flag, path_of
from twolayer.numerics.foreign_files import memory
from twolayer.running.dataset import describe_problem, versions
from twolayer.task.method import Method, Task

__all__ = ["check_estimate", "check_work", "checkpoint_of"]

LONGEST = 24 * 3600.0
FEW = 10**7  # steps of all seeds that no method takes a day for


def check_work(runs: Sequence[tuple[Task, Method]], force: bool = False) -> None:
    """Refuse runs beyond the bounds, one after the other, with the estimate, unless
    ``force`` says to go on.
    """
    if flag("force", force):
        return
    seconds, steps = 0.0, 0.0
    for task, method in runs:
        what = (
            f"{task.seeds} seeds, {len(task.points)} save points and {task.problem.p}"
            " neurons"
        )
        check_estimate(0.0, task.seeds * method.footprint(task), what)
        steps += float(task.points[-1]) if method.stepwise else 0.0
        if (
            not method.stepwise
            or task.seeds * float(task.points[-1]) * (method.dimension or 1) >= FEW
        ):
            seconds += method.compilation(task) + task.seeds * method.cost(task)
    what = f"{steps:.4g} steps, " if steps else ""
    check_estimate(seconds, 0.0, f"{what}{runs[0][0].seeds} seeds")


def check_estimate(seconds: float, size: float, what: str) -> None:
    """Refuse so many seconds of one core, or bytes."""
    go_on = "use fewer, or go on with force=True (--force)"
    half = memory() // 2
    if size > half:
        raise InputError(
            f"This run would hold about {size / 2**30:.3g} GiB ({what}), and the bound"
            f" is {half / 2**30:.3g} GiB, half of this machine's memory: {go_on}."
        )
    if seconds > LONGEST:
        raise InputError(
            f"This run would take about {seconds / 3600:.3g} h of one core ({what}),"
            f" and the bound is {LONGEST / 3600:g} h: {go_on}."
        )


def checkpoint_of(path: object, task: Task, method: Method) -> Checkpoint | None:
    """The checkpoint of a run, or the reason why it has none."""
    if path is None:
        return None
    rule = task.algorithm.rule
    if not method.resumes or (rule is not None and rule.adapts is not None):
        raise Refused(
            type(method).__name__,
            "it keeps more than its state along a run, so it cannot be taken up again",
        )
    start, run = (
        task.start,
        [task.seeds, task.seed, task.first, repr(task.until), task.points.tolist()],
    )
    described = [
        describe_problem(task.problem),
        task.algorithm.describe(),
        method.describe(),
        run,
        versions(),
    ]
    text = json.dumps(described)
    if "<function" in text:
        raise InputError(
            "Argument `checkpoint` must be left out for Python functions, of which a"
            " file holds the name."
        )
    whole = hashlib.sha256(text.encode())
    for array in (*task.starts(), start.P):
        whole.update(array.tobytes())
    return Checkpoint(path_of("checkpoint", path), whole.hexdigest())
