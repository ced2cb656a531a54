"""What the page gives away as text: the same task as Python, as a file and as a
command.

    tables of a task file  →
        import twolayer as tl; problem = tl.Problem(…); …; theory = tl.solve(…)

Only what was set is written, so that the text reads as a person would have typed it;
running it gives the numbers that the page shows.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from twolayer.files.taskfile import TaskFile
from twolayer.numerics.arguments import ENDS, Json, Options

__all__ = ["as_python", "as_shell", "as_toml"]

NAMES = {
    "chain": "Chain",
    "dmft": "DMFT",
    "giantsteps": "GiantSteps",
    "map": "Map",
    "meanfield": "MeanField",
    "ode": "ODE",
    "population": "Population",
    "sde": "SDE",
    "vectors": "Vectors",
}
AT_A_DIMENSION = ("chain", "map", "sde", "vectors")
RUNS = ("chain", "sde", "vectors")


def _given(table: Any, *without: str) -> Json:
    """The keys that were set, but for those that say nothing."""
    values = table.model_dump(exclude_unset=True)
    return {
        key: value
        for key, value in values.items()
        if value is not None and key not in without
    }


def _call(name: str, arguments: Options, first: tuple[str, ...] = ()) -> str:
    named = [f"{key}={value!r}" for key, value in arguments.items()]
    return f"{name}({', '.join([*first, *named])})"


def _method(word: str, dim: int | None, knobs: Options) -> str:
    at = (str(dim),) if word in AT_A_DIMENSION else ()
    written = [
        f"{key}={_call('tl.Averages', value) if key == 'averages' else repr(value)}"
        for key, value in knobs.items()
    ]
    return _call(f"tl.{NAMES[word]}", {}, (*at, *written))


def as_python(task: TaskFile, methods: tuple[str, ...] = ("ode", "chain")) -> str:
    """A script that computes what the page shows; ``theory`` holds the first method,
    ``runs`` the simulated one.

    Examples
    --------
    >>> from twolayer.files.taskfile import task_from
    >>> tables = {
    ...     "problem": {"target": "z1", "activation": "erf"},
    ...     "algorithm": {"lr": "0.1/d"},
    ... }
    >>> print(
    ...     as_python(
    ...         task_from({**tables, "run": {"dim": 100, "time": 2}}, "page"), ("ode",)
    ...     )
    ... )
    import twolayer as tl
    <BLANKLINE>
    problem = tl.Problem(target='z1', activation='erf')
    algorithm = tl.SGD(lr='0.1/d')
    start = tl.Overlaps.random(problem, dim=100)
    theory = tl.solve(problem, algorithm, tl.ODE(), start, time=2.0)
    """
    table, run = task.table, task.table.run
    lines = [
        "import twolayer as tl",
        "",
        f"problem = {_call('tl.Problem', _given(table.problem))}",
        f"algorithm = {_call('tl.SGD', _given(table.algorithm))}",
        f"start = {_start(task)}",
    ]
    ends = {name: getattr(run, name) for name in ENDS if getattr(run, name) is not None}
    common = {**ends, **({"save": run.save} if "save" in run.model_fields_set else {})}
    if run.until is not None:
        lines.append(
            f"until = {_call('tl.Until', run.until.model_dump(exclude_unset=True))}"
        )
    knobs = {word.lower(): values for word, values in table.method.items()}
    for word in methods:
        simulated = word in RUNS
        options = {
            **common,
            **({"seeds": run.seeds, "seed": run.seed} if simulated else {}),
        }
        call = _call(
            "tl.solve",
            options,
            (
                "problem",
                "algorithm",
                _method(word, run.dim, knobs.get(word, {})),
                "start",
            ),
        )
        if run.until is not None:
            call = f"{call[:-1]}, until=until)"
        lines.append(f"{'runs' if simulated else 'theory'} = {call}")
    return "\n".join(lines)


def _start(task: TaskFile) -> str:
    start, dim = task.table.start, task.table.run.dim
    if start.blocks is not None:
        given = start.blocks.model_dump() | ({} if start.a is None else {"a": start.a})
        return _call(
            "tl.Overlaps.in_blocks", given | ({} if dim is None else {"dim": dim})
        )
    if start.Q is None or start.M is None:
        drawn: Json = {"seed": start.seed} if start.seed else {}
        drawn |= {"law": start.random} if start.random != "sphere" else {}
        return _call("tl.Overlaps.random", {"dim": dim, **drawn}, ("problem",))
    given = {"Q": start.Q, "M": start.M}
    more: Options = {} if start.a is None else {"a": start.a}
    more |= {} if dim is None else {"dim": dim}
    front, back = (
        ", ".join(f"{key}={value!r}" for key, value in table.items())
        for table in (given, more)
    )
    return f"tl.Overlaps({front}, P=problem.P{', ' if back else ''}{back})"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(x)}' for key, x in value.items())} }}"
    # a string of JSON is one of TOML, but for DEL, which no formula has
    return (
        json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
    )


def as_toml(task: TaskFile) -> str:
    """The task as a file, in the order in which people write one.

    Examples
    --------
    >>> from twolayer.files.taskfile import task_from
    >>> print(
    ...     as_toml(
    ...         task_from(
    ...             {
    ...                 "problem": {"target": "z1", "activation": "erf"},
    ...                 "algorithm": {"lr": 1.0},
    ...             },
    ...             "page",
    ...         )
    ...     )
    ... )
    [problem]
    target = "z1"
    activation = "erf"
    <BLANKLINE>
    [algorithm]
    lr = 1.0
    """
    tables = {
        name: _given(getattr(task.table, name))
        for name in ("problem", "algorithm", "start", "run")
    }
    tables |= {f"method.{word}": knobs for word, knobs in task.table.method.items()}
    parts = [
        "\n".join(
            [f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
        )
        for name, values in tables.items()
        if values
    ]
    return "\n\n".join(parts)


def as_shell(task: TaskFile, methods: tuple[str, ...] = ("ode", "chain")) -> str:
    """A command that writes the file and compares the methods, or solves by the only
    one.
    """
    text, name = as_toml(task), "task.toml"
    command = (
        f"twolayer solve {name} --method {methods[0]}"
        if len(methods) == 1
        else f"twolayer compare {name} --methods {','.join(methods)}"
    )
    return f"printf '%s\\n' {shlex.quote(text)} > {name} && {command}"
