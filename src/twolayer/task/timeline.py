"""Where the clocks of a scheduled run stand, known before the run: schedules depend on
nothing but the clocks.

    steps    t_{n+1} = t_n + (lr_ref/p) f_n,   s_{n+1} = s_n + n_n
             compiled, step by step
    flows    dt/dτ = f,   ds/dτ = b,           τ = lr_ref·step/p
             integrated from break to break

Runs end, and are saved, at values of one clock; both kinds say where on their own one
that is, or that it is never reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twolayer.numerics.errors import InputError
from twolayer.numerics.precision import float64
from twolayer.numerics.types import Number
from twolayer.task.schedule_factors import Clock, Tempo

__all__ = ["FlowLine", "StepLine"]

MAX_STEPS = 2**32 - 1
PIECE = 2**22  # steps of one compiled call: a fraction of a second
DOUBLINGS = 60  # of the time that an end is looked for in
TOLERANCE = 1e-12
NEARLY = 1 - 1e-12  # of a value that a sum is to reach


class _Seen(eqx.Module):
    """Clocks after some steps, the smallest f and batch so far, the largest batch and
    the largest f²/n_b.
    """

    clock: Clock
    least: jax.Array
    fewest: jax.Array
    most: jax.Array
    loudest: jax.Array


def _next(tempo: Tempo, eta: Number, seen: _Seen) -> _Seen:
    f, n = tempo(seen.clock)
    step, time, sample = seen.clock
    # NaN counts as negative
    least, fewest = (
        jnp.where(x >= y, y, x) for x, y in ((f, seen.least), (n, seen.fewest))
    )
    most, loudest = jnp.maximum(n, seen.most), jnp.maximum(f**2 / n, seen.loudest)
    return _Seen(
        Clock(step + 1, time + eta * f, sample + n), least, fewest, most, loudest
    )


@eqx.filter_jit
def _walk(tempo: Tempo, eta: Number, seen: _Seen, count: Number) -> _Seen:
    """``count`` steps."""
    return jax.lax.fori_loop(0, count, lambda _, x: _next(tempo, eta, x), seen)


@eqx.filter_jit
def _search(
    tempo: Tempo, eta: Number, seen: _Seen, clock: str, target: Number, most: Number
) -> _Seen:
    """Steps until the clock is nearest to the target, ``most`` of them at most."""
    last = seen.clock.step + most

    def going(state: _Seen) -> jax.Array:
        now, then = (
            getattr(state.clock, clock),
            getattr(_next(tempo, eta, state).clock, clock),
        )
        return (
            ((now + then) / 2 <= target)
            & (now < target * NEARLY)
            & (state.clock.step < last)
        )

    return jax.lax.while_loop(going, lambda x: _next(tempo, eta, x), seen)


class Extremes(NamedTuple):
    """Of a run: the smallest and the largest batch, and the largest f²/b, the weight of
    the noise of a step.
    """

    fewest: int
    most: int
    loudest: float


def _negative(name: str, law: str, value: float) -> InputError:
    accepted = "never negative" if name == "lr" else "at least one sample"
    return InputError(
        f"Argument `{name}` must have a schedule that is {accepted}, but {law} gives"
        f" {value:.3g} within the run."
    )


class StepLine:
    """The clocks of a run that takes steps; ``eta`` is lr_ref/p, ``law`` what is shown
    of the schedule.
    """

    def __init__(self, tempo: Tempo, eta: float, law: str) -> None:
        self.tempo, self.eta, self.law = tempo, eta, law
        self._checked: dict[int, Extremes] = {}

    def _begin(self) -> _Seen:
        zero = jnp.zeros(())
        return _Seen(
            Clock(zero, zero, zero),
            *(jnp.asarray(x) for x in (np.inf, np.inf, 0.0, 0.0)),
        )

    def _check(self, seen: _Seen) -> None:
        for name, least, bound in (
            ("lr", seen.least, 0.0),
            ("batch", seen.fewest, 0.5 * self.tempo.whole),
        ):
            if not float(least) >= bound:
                raise _negative(name, self.law, float(least))

    @float64
    def at(self, steps: np.ndarray) -> tuple[Clock, np.ndarray, np.ndarray]:
        """The clocks at steps, which may be fractions, and f and n_b of the step that
        follows; (n,) each.
        """
        wanted = np.where(np.isfinite(steps), steps, 0.0)
        whole = np.unique(np.concatenate([np.floor(wanted), np.floor(wanted) + 1]))
        seen, rows = self._begin(), []
        for number in whole:
            while (left := int(number - float(seen.clock.step))) > 0:
                seen = _walk(self.tempo, self.eta, seen, jnp.asarray(min(left, PIECE)))
            rows.append(
                [
                    *map(float, seen.clock),
                    *(
                        float(x)
                        for x in self.tempo(Clock(*map(jnp.asarray, seen.clock)))
                    ),
                ]
            )
        table = np.asarray(rows)
        _, time, sample = (np.interp(steps, whole, x) for x in table[:, :3].T)
        before = np.searchsorted(whole, np.floor(wanted))
        clock = Clock(
            *(np.where(np.isfinite(steps), x, np.nan) for x in (steps, time, sample))
        )
        return clock, table[before, 3], table[before, 4]

    @float64
    def steps_at(self, clock: str, values: np.ndarray, said: str) -> np.ndarray:
        """The step nearest to each value of a clock, in increasing order."""
        seen, found = self._begin(), []
        for value in values:
            before, rate, piece = float(getattr(seen.clock, clock)), np.inf, 2**12
            while True:
                seen = _search(
                    self.tempo, self.eta, seen, clock, value, jnp.asarray(float(piece))
                )
                now, step = (float(getattr(seen.clock, x)) for x in (clock, "step"))
                self._check(seen)
                after = float(getattr(_next(self.tempo, self.eta, seen).clock, clock))
                if (now + after) / 2 > value or now >= value * NEARLY:
                    break
                # at the present pace: is the end ever met?
                pace = (now - before) / piece
                if pace < rate and (value - now) > pace * (MAX_STEPS - step):
                    raise InputError(
                        f"Argument {said} is never reached: with {self.law} the {clock}"
                        f" ends near {now:.4g}."
                    )
                before, rate, piece = now, pace, min(4 * piece, PIECE)
            found.append(step)
        return np.asarray(found)

    @float64
    def check(self, steps: int) -> Extremes:
        """Refuse schedules that become negative within so many steps; and the extremes
        among them.
        """
        if steps not in self._checked:
            seen = self._begin()
            while (left := int(steps - float(seen.clock.step))) > 0:
                seen = _walk(self.tempo, self.eta, seen, jnp.asarray(min(left, PIECE)))
            self._check(seen)
            loudest = float(seen.loudest) * float(self.tempo.count)
            self._checked[steps] = Extremes(
                int(float(seen.fewest)), int(float(seen.most)), loudest
            )
        return self._checked[steps]


@dataclass(frozen=True, eq=False)
class Span:
    """A stretch of a flow between two breaks: its ends in τ, the tempo on it, and (t,
    s) along it.
    """

    begin: float
    end: float
    tempo: Tempo
    dense: Callable[[float], np.ndarray]


class FlowLine:
    """The clocks of a flow, as far as they have been asked for. ``breaks`` are those of
    each factor, in its own x.
    """

    def __init__(self, tempo: Tempo, breaks: list[list[float]], law: str) -> None:
        self.tempo, self.breaks, self.law = tempo, breaks, law
        self.spans: list[Span] = []

    def _extend(self, end: float) -> None:
        """Follow the clocks to τ = end at least, or to the next break beyond."""
        from scipy.integrate import solve_ivp

        while not self.spans or self.spans[-1].end < end:
            last = self.spans[-1] if self.spans else None
            begin = last.end if last else 0.0
            y = np.zeros(2) if last is None else last.dense(begin)
            clock, ends = Clock(begin, *map(float, y)), []
            for course, breaks in zip(self.tempo.courses, self.breaks, strict=True):
                x = getattr(clock, course.clock) * course.unit
                passed = [b for b in breaks if b <= x * (1 + 1e-9) + 1e-300]
                coming = [b for b in breaks if b > x * (1 + 1e-9) + 1e-300]
                ends.append(
                    (
                        passed[-1] if passed else -np.inf,
                        np.nextafter(coming[0], 0.0) if coming else np.inf,
                    )
                )
            tempo = self.tempo.between(ends)

            def rate(tau: float, y: np.ndarray, tempo: Tempo = tempo) -> np.ndarray:
                f, b = (float(x) for x in tempo(Clock(tau, float(y[0]), float(y[1]))))
                for name, value in (("lr", f), ("batch", b)):
                    if not (value >= 0 and np.isfinite(value)) or (
                        name == "batch" and value == 0
                    ):
                        raise _negative(name, self.law, value)
                return np.array([f, b])

            events: list[Any] = []
            stop = end
            for course, (_, high) in zip(tempo.courses, ends, strict=True):
                if np.isfinite(high) and course.clock == "step":
                    stop = min(stop, high / float(course.unit))
                elif np.isfinite(high):
                    which, level = (
                        Clock._fields.index(course.clock) - 1,
                        high / float(course.unit),
                    )
                    event: Any = lambda tau, y, i=which, level=level: y[i] - level  # noqa: E731
                    event.terminal = True
                    events.append(event)
            stop = max(stop, np.nextafter(begin, np.inf))
            options = {
                "rtol": TOLERANCE,
                "atol": 1e-14 * max(stop, 1e-300),
                "dense_output": True,
            }
            found = solve_ivp(
                rate, (begin, stop), y, "DOP853", events=events or None, **options
            )
            self.spans.append(Span(begin, float(found.t[-1]), tempo, found.sol))

    def at(self, tau: np.ndarray) -> tuple[Clock, np.ndarray, np.ndarray]:
        """The clocks at τ, and f and b there (to the right of jumps)."""
        known = np.where(np.isfinite(tau), tau, 0.0)
        self._extend(float(np.max(known, initial=0.0)) * (1 + 1e-12) + 1e-300)
        rows = []
        for x in known.ravel():
            span = next(s for s in self.spans if x < s.end or s is self.spans[-1])
            t, s = span.dense(x)
            rows.append(
                [
                    t,
                    s,
                    *(
                        float(v)
                        for v in span.tempo(Clock(float(x), float(t), float(s)))
                    ),
                ]
            )
        time, sample, f, b = np.asarray(rows).reshape(*known.shape, 4).T
        gone = ~np.isfinite(tau)
        return (
            Clock(tau, np.where(gone, np.nan, time), np.where(gone, np.nan, sample)),
            f,
            b,
        )

    def tau_at(self, clock: str, values: np.ndarray, said: str) -> np.ndarray:
        """τ at increasing values of a clock."""
        if clock == "step":
            self._extend(float(values[-1]))
            return values
        which, last = Clock._fields.index(clock) - 1, float(values[-1])
        end, before = max(last, 1e-300), 0.0
        for doubling in range(DOUBLINGS + 1):
            self._extend(end)
            now = float(self.spans[-1].dense(self.spans[-1].end)[which])
            if now >= last * (1 - 1e-12):
                break
            if doubling == DOUBLINGS or (
                doubling > 8
                and now - before < 1e-3 * (last - now) / (DOUBLINGS - doubling + 1)
            ):
                raise InputError(
                    f"Argument {said} is never reached: with {self.law} the {clock}"
                    f" ends near {now:.4g}."
                )
            before, end = now, 2 * end
        found = []
        for value in values:
            span = next(
                (s for s in self.spans if s.dense(s.end)[which] >= value),
                self.spans[-1],
            )
            low, high = span.begin, span.end
            for _ in range(80):
                middle = (low + high) / 2
                low, high = (
                    (low, middle)
                    if span.dense(middle)[which] >= value
                    else (middle, high)
                )
            found.append(0.0 if value == 0 else high)
        return np.asarray(found)

    def pieces(self, end: float) -> list[tuple[float, Tempo]]:
        """Where each span up to τ = end begins, and its tempo."""
        self._extend(end)
        return [(span.begin, span.tempo) for span in self.spans if span.begin < end]
