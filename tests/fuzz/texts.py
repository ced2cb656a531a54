"""Formulas and task files: good ones that are cut, doubled, mixed and misspelt."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from twolayer.cli import main
from twolayer.functions.activation import Activation
from twolayer.functions.expression import parse
from twolayer.functions.syntax import FUNCTIONS
from twolayer.functions.target import Target
from twolayer.numerics.errors import InputError, short
from twolayer.task.scaling import Scaling

from . import Case
from .values import NUMBERS, TEXTS

ATOMS = ("z1", "z2", "z", "d", "2", "0.5", "1e3", "1e308", "1e-320", "He2", "He8", "h3", "He40", "relu", "erf", "sin",
         "exp", "log", "sqrt", "abs", "sign", "tanh", "pi", "e", "z64", "z65", "He", "z1z2", "_", "é", "0x1", "1_0")  # fmt: skip
SIGNS = (
    "+",
    "-",
    "*",
    "/",
    "**",
    "(",
    ")",
    " ",
    ",",
    ".",
    "^",
    "%",
    "//",
    "[",
    "]",
    "=",
    "\n",
    "\t",
    "#",
    "'",
    "\\",
)
READERS: tuple[Callable[[str], Any], ...] = (
    lambda text: parse(text).polynomial,
    lambda text: parse(text, "z").latex,
    Target.of,
    lambda text: Target.of(text, 3),
    Activation.of,
    Scaling.of,
)


def formula(rnd: Random, depth: int = 0) -> str:
    """Something that may be a formula."""
    kind = rnd.randrange(8)
    if depth > 5 or kind < 3:
        return rnd.choice(ATOMS[:16] if rnd.random() < 0.8 else ATOMS)
    if kind == 3:
        return f"{rnd.choice(ATOMS[9:22])}({formula(rnd, depth + 1)})"
    if kind == 4:
        return f"({formula(rnd, depth + 1)})**{rnd.choice(('2', '3', '0.5', '-1', '64', '65', '1e9', '(2)', 'z1', '2**3**4'))}"
    return f"{formula(rnd, depth + 1)}{rnd.choice(SIGNS[:4])}{formula(rnd, depth + 1)}"


def well_formed(rnd: Random, depth: int = 4) -> str:
    """A formula that can be read, with poles or without."""
    kind = rnd.random()
    if depth == 0 or kind < 0.2:
        return rnd.choice(("z1", "z1", "z2", "z3", "0.5", "2", "5"))
    a, b = well_formed(rnd, depth - 1), well_formed(rnd, depth - 1)
    if kind < 0.6:
        return f"({a}) {rnd.choice('+-*/')} ({b})"
    if kind < 0.75:
        return f"({a})**{rnd.choice(('2', '3', '-1', '-2', '0.5', '-0.4'))}"
    return f"{rnd.choice((*FUNCTIONS, 'He2', 'h5'))}({a})"


def sound(rnd: Random, depth: int = 3) -> str:
    """A formula of finite variance, by its making: with denominators that are positive,
    zeros that divide out, and singularities that are integrable.
    """
    inner = _sound(rnd, depth)
    at = rnd.choice(("0", "0.3", "3", "7.5"))
    extra = (
        f"log(abs(z1 - {at}))",
        f"abs(z2 - {at})**-0.4",
        "(z1**2 + z2**2)**-0.3",
        "sin(z1)/z1",
        f"(z1**2 - {at}**2)/(z1 - {at})",
    )
    return f"{inner} + {rnd.choice(extra)}" if rnd.random() < 0.3 else inner


def _sound(rnd: Random, depth: int) -> str:
    if depth == 0 or rnd.random() < 0.15:
        return rnd.choice(("z1", "z2", "z3", "0.5*z1", "(z1 - 2)", "3*z2"))
    a = _sound(rnd, depth - 1)
    positive = (
        f"(1 + ({a})**2)",
        f"(2 + sin({a}))",
        f"(1.5 + tanh({a}))",
        f"(0.1 + abs({a}))",
        f"(1 + exp({a}))",
        f"(0.2 + sigmoid({a}))",
    )
    kind = rnd.randrange(8)
    if kind < 2:
        return f"({a} {rnd.choice('+-*')} {_sound(rnd, depth - 1)})"
    if kind == 2:
        word = rnd.choice(("tanh", "erf", "sin", "cos", "sigmoid", "relu", "gelu"))
        return f"{word}({a})"
    if kind == 3:
        return f"{rnd.choice(('He2', 'h3', 'abs', 'softplus', 'swish'))}({a})"
    if kind == 4:
        return f"exp(-({a})**2)"
    if kind == 5:
        return f"{rnd.choice(('log', 'sqrt'))}{rnd.choice(positive[:4])}"
    power = rnd.choice(("**-1", "**-0.5", "**-2"))
    return f"{rnd.choice(('1', a, 'tanh(z1)'))}*{rnd.choice(positive)}{power}"


def spoilt(rnd: Random, text: str) -> str:
    """A text with some letters gone, doubled, exchanged or new."""
    for _ in range(rnd.choice((0, 1, 1, 2, 5))):
        i, j = sorted(rnd.randrange(len(text) + 1) for _ in range(2))
        new = rnd.choice(
            (
                *ATOMS,
                *SIGNS,
                chr(rnd.randrange(1, 0x2FFF)),
                "\x00",
                str(rnd.choice(NUMBERS))[:40],
            )
        )
        text = rnd.choice((text[:i] + text[j:], text[:i] + new + text[i:], text[:j] + text[i:j] * 3 + text[j:],
                           text[:i] + new + text[j:]))  # fmt: skip
        text = text[:5000]
    return text


def expression(rnd: Random) -> Case:
    """A formula for one of its readers."""
    reader = rnd.randrange(len(READERS))
    text = spoilt(rnd, formula(rnd))
    return Case(
        f"expression {reader}: {short(text, 300)}", lambda: READERS[reader](text)
    )


GOOD = """\
[problem]
target = "He2(z1)"
activation = "He2"
width = 1
noise = 0.1
[algorithm]
lr = "0.2/d"
batch = 1
geometry = "projected"
[start]
Q = [[1.0]]
M = [[0.5]]
[run]
dim = 100
time = 0.1
save = 5
seeds = 2
seed = 3
methods = ["chain", "ode"]
"""
ADDED = (
    '[until]\nquantity = "risk"\nvalue = 0.1\n', '[method.ode]\nrtol = 1e-4\n', '[method.chain]\ndim = -1\n',
    '[sweep]\n"algorithm.lr" = ["0.05/d", "0.1/d"]\n', '[[stages]]\nsteps = 3\n', "[start]\nQ = [[1.0]]\nM = [[0.5]]\n",
    "[nonsense]\n", 'momentum = 0.5\n', 'rule = "clip(0.5)"\n', "a = 1979-05-27T07:32:00Z\n", 'dataset = "2*d"\n',
)  # fmt: skip


def _value(rnd: Random) -> str:
    """Something on the right of an equals sign."""
    kind = rnd.randrange(4)
    if kind == 0:
        return repr(rnd.choice(NUMBERS))[:60]
    if kind == 1:
        return (
            '"' + str(rnd.choice(TEXTS))[:60].replace('"', "").replace("\\", "") + '"'
        )
    return rnd.choice(("[]", "[[1.0]]", "{}", "true", "nan", "inf", "[1, 'a']", "-1", "0", "1e400", "9" * 30, '"""a"""',
                       "07:32:00", "[[[]]]", '{a = 1}', "0.5", "3", '"He2(z1)"', '"z1*z2"', '["ode"]', '["vectors"]'))  # fmt: skip


def task(rnd: Random) -> Case:
    """A command on a task file that is not quite right."""
    lines = GOOD.splitlines(keepends=True)
    for _ in range(rnd.choice((1, 1, 2, 3))):
        kind, at = rnd.randrange(6), rnd.randrange(len(lines))
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(at, rnd.choice((*ADDED, rnd.choice(lines))))
        elif kind == 2:
            lines[at] = spoilt(rnd, lines[at])
        elif "=" in lines[at]:
            lines[at] = f"{lines[at].split('=')[0]}= {_value(rnd)}\n"
    text = "".join(lines)
    command = rnd.choice(("solve", "solve", "compare", "sweep"))
    more = rnd.choice(([], ["--dry-run"], ["--json"], ["--seed", str(rnd.choice(NUMBERS))[:50]],
                       ["--set", spoilt(rnd, "algorithm.lr=0.1/d")], ["--set", f"run.time={_value(rnd)}"]))  # fmt: skip

    def call() -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "task.toml"
            path.write_text(text, encoding="utf-8")
            heard = io.StringIO()
            with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard):
                code = main(
                    [command, str(path), *more, "--out", str(Path(folder) / "out")]
                )
        if code == 2:
            said = [
                line
                for line in heard.getvalue().splitlines()
                if not line.startswith("[")
            ]  # runs announce themselves
            raise InputError("\n".join(said))
        assert code in (0, 1), f"exit code {code}"

    return Case(f"twolayer {command} {' '.join(more)} on {text!r}", call)
