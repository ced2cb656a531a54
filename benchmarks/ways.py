"""How many files a reader passes on five ways through the house, from what is typed to
the equation.

    way = distinct files of the package on the call stack:  at the equation itself,
        and where the most are open at once

uv run python benchmarks/ways.py [chain] [ode] [dmft] [phase-diagram] [sweep]
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import twolayer as tl
from twolayer.cli import main

SOURCE = str(Path(tl.__file__).parent) + "/"
PROBLEM, PLAIN = (
    tl.Problem("He2(z1)", "He2", noise=0.1),
    tl.SGD(lr="0.05/d", geometry="projected"),
)
START = tl.Overlaps([[1.0]], [[0.5]])


class Ways:
    """Stacks seen while something runs: the deepest one, and the shortest at a call of
    the equation.
    """

    def __init__(self, equation: tuple[str, str]) -> None:
        self.equation = equation
        self.deepest: list[str] = []
        self.shortest: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(SOURCE):
            return
        files: list[str] = []
        here: FrameType | None = frame
        while here is not None:
            path = here.f_code.co_filename
            if path.startswith(SOURCE):
                if (
                    here.f_code.co_name == "<module>"
                ):  # an import, which calls nobody's equation
                    return
                files.append(path.removeprefix(SOURCE))
            here = here.f_back
        stack = list(dict.fromkeys(files[::-1]))
        if len(stack) > len(self.deepest):
            self.deepest = stack
        at_equation = (files[0], frame.f_code.co_name) == self.equation
        if at_equation and (not self.shortest or len(stack) < len(self.shortest)):
            self.shortest = stack


def chain() -> None:
    tl.solve(PROBLEM, PLAIN, tl.Chain(100, engine="jax"), START, time=0.2, save=2)


def ode() -> None:
    tl.solve(PROBLEM, PLAIN, tl.ODE(), START, time=0.2, save=2)


def dmft() -> None:
    reused = tl.SGD(lr=0.5, batch="2*d", dataset="2*d")
    tl.solve(
        tl.Problem("z1", "tanh"),
        reused,
        tl.DMFT(tl.Averages(accuracy=0.5)),
        tl.Overlaps([[1.0]], [[0.1]]),
        steps=2,
    )


def phase_diagram() -> None:
    main(
        ["phase-diagram", "--ell", "2", "--measure", "2", "--dim", "16,32", "--n0", "2"]
    )


def sweep() -> None:
    """On Dask `sweeps/batch.py` runs elsewhere; here in the same process, so that one
    stack shows the whole way.
    """
    tl.sweep(
        PROBLEM,
        PLAIN,
        tl.Chain(16, engine="jax"),
        {"method.dim": [16, 32]},
        time=0.1,
        seeds=2,
    )


WAYS: dict[str, tuple[Callable[[], None], tuple[str, str]]] = {
    "chain": (chain, ("equations/orthogonal.py", "exact_step")),
    "ode": (ode, ("equations/optimiser_step.py", "motion")),
    "dmft": (dmft, ("methods/dmft/samples.py", "visit")),
    "phase-diagram": (phase_diagram, ("equations/orthogonal.py", "exact_step")),
    "sweep": (sweep, ("equations/orthogonal.py", "exact_step")),
}


def measure(name: str) -> None:
    call, equation = WAYS[name]
    ways = Ways(equation)
    sys.setprofile(ways)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            call()
    finally:
        sys.setprofile(None)
    print(f"{name}: {len(ways.shortest)} at the equation, {len(ways.deepest)} at most")
    print("  equation:", " > ".join(ways.shortest))
    print("  most:    ", " > ".join(ways.deepest))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        measure(sys.argv[1])
    else:  # each in a process of its own, where nothing is compiled yet
        for word in sys.argv[1:] or WAYS:
            subprocess.run([sys.executable, __file__, word], check=True)
