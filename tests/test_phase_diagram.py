"""Phase diagrams of batch size and learning rate: formulas against powers of d, prefactors and runs of the chain."""

from __future__ import annotations

import ast
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from chance import sigmas
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import twolayer as tl
from twolayer import d
from twolayer.analysis.phases import dynamics
from twolayer.analysis.small_overlap import expansion
from twolayer.analysis.weak_recovery import oriented
from twolayer.cli import main


def powers_of_steps(ell: int, mu: float, delta: float, most: int = 60) -> int | None:
    """Steps until m = O(1) in powers of d alone, by iterating m' = (m + γ m^{ℓ−1})/max(1, γ √(d/n_b), |m'|)."""
    m = -0.5
    for step in range(1, most):
        top = max(m, -delta + (ell - 1) * m)
        m = top - max(0.0, -delta + (1 - mu) / 2, top)
        if m > -1e-9:
            return step
    return None


@pytest.mark.parametrize("ell", [1, 2, 3, 4, 6])
def test_constant_numbers_of_steps_are_those_of_powers_of_d(ell: int) -> None:
    diagram = tl.phase_diagram(ell=ell, loss="correlation")
    seen = set()
    first = max(ell - 1, 1) + 0.1
    for mu, delta in itertools.product(
        np.linspace(first, first + 1.5, 12), np.linspace(-ell, 0.9 - ell / 2, 14)
    ):
        point = diagram.at(mu, delta)
        if ell == 1 and delta > 0:
            continue
        assert point.steps == powers_of_steps(ell, mu, delta), (mu, delta)
        assert point.learns and point.theta == 0
        seen.add(point.steps)
    assert 1 in seen and len(seen) > (ell > 1)


MEASURED = [
    *(
        (3, "squared", "projected", *point)
        for point in [(0, 1.5, 2), (0.5, 1, 1.5), (1, 0.5, 1), (1.5, 0, 0.5)]
    ),
    *((3, "squared", "projected", *point) for point in [(2, 0, 0.5), (1, 0.8, 1.3)]),
    *(
        (3, "correlation", "projected", *point)
        for point in [(1.5, 0, 0.5), (1.75, -0.25, 0.25), (2, -0.2, 0.3)]
    ),
    *((3, "correlation", "projected", *point) for point in [(2, -0.5, 0), (3, -1, 0)]),
    *(
        (3, "squared", "spherical", *point)
        for point in [(1.5, 0, 0.5), (1.75, -0.25, 0.25), (2, -0.5, 0)]
    ),
    (4, "squared", "projected", 2, 0, 1),
    (4, "correlation", "projected", 2.5, -0.5, 0.5),
    *(
        (2, "squared", "projected", *point)
        for point in [(0, 1, 1), (0.5, 0.5, 0.5), (1, 0, 0)]
    ),
    *((1, "squared", "projected", *point) for point in [(0, 1, 1), (1, 0, 0)]),
]


@pytest.mark.parametrize(("ell", "loss", "geometry", "mu", "delta", "theta"), MEASURED)
def test_exponents_of_the_plane(
    ell: int, loss: str, geometry: str, mu: float, delta: float, theta: float
) -> None:
    diagram = tl.phase_diagram(ell=ell, loss=loss, geometry=geometry)
    assert diagram.at(mu, delta).theta == pytest.approx(theta, abs=1e-12)


@pytest.mark.parametrize(
    ("loss", "mu", "delta"),
    [
        ("squared", 2, -0.3),
        ("squared", 0.5, 0.5),
        ("correlation", 0.5, 0.5),
        ("squared", 1, 0.25),
        ("squared", 5, -0.1),
    ],
)
def test_where_nothing_is_learned(loss: str, mu: float, delta: float) -> None:
    point = tl.phase_diagram(ell=3, loss=loss).at(mu, delta)
    assert not point.learns
    assert point.theta is point.steps is point.growth is point.theta_wrong_sign is None
    assert point.regime.startswith("not learning")


@pytest.mark.parametrize("ell", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("loss", ["squared", "correlation"])
def test_exponents_are_continuous_across_boundaries(ell: int, loss: str) -> None:
    diagram = tl.phase_diagram(ell=ell, loss=loss)
    grid = np.linspace(0, ell + 1, 400)
    least = np.array([diagram.theta_min(mu) for mu in grid])
    assert np.abs(np.diff(least)).max() <= (grid[1] - grid[0]) * (
        1 + 1e-9
    )  # slope −1 or 0, no jump
    for mu in (0.0, 0.3, 1.0, ell / 2, ell - 0.5, float(ell)):
        edge = diagram.optimal_delta(mu)
        inside = diagram.at(mu, edge)
        assert inside.theta == pytest.approx(diagram.theta_min(mu), abs=1e-12)
        assert diagram.at(mu, edge + 1e-6).theta == pytest.approx(
            inside.theta, abs=2e-6
        )
        assert diagram.at(
            mu, max(edge, diagram.lowest_delta(mu)) + 0.2
        ).theta == pytest.approx(inside.theta + 0.2, abs=1e-9)
        if math.isfinite(diagram.lowest_delta(mu)):
            assert not diagram.at(mu, diagram.lowest_delta(mu) - 1e-6).learns
        else:
            assert diagram.at(mu, -9.0).theta == 0
        for x in (0.2, 1.2):
            assert tl.phase_diagram(ell=ell, loss="squared").theta_min(
                x
            ) >= diagram.theta_min(x)
    # on the noise line the wrong sign costs nothing, inside it does, beyond the θ = 0 line one step jumps over zero
    if ell % 2 and ell > 1:
        for mu in (0.0, 0.7, ell / 2):
            point = diagram.at(mu, ell / 2 - mu)
            assert point.theta_wrong_sign == pytest.approx(point.theta, abs=1e-12)
        inside = diagram.at(ell / 2 + 0.5, 0.0)
        assert inside.theta_wrong_sign > inside.theta
    else:
        assert diagram.at(ell, 0.5).theta_wrong_sign is None


def test_rare_fluctuations_are_continuous_where_expansions_end() -> None:
    free = tl.phase_diagram(ell=3, loss="correlation")
    assert "exp(d^0.6)" in free.at(1, 0.2).note
    assert (
        free.at(1.5, -0.25).note
        == free.at(1.5, -0.3).note
        == "Rare fluctuations need a time of order exp(d^0.5)."
    )
    assert "γ0 and n0 decide" in free.at(2, -0.5).note and free.at(2, 0).note == ""


def test_the_wrong_sign_of_the_sheet() -> None:
    assert tl.phase_diagram(ell=3).at(2, 0).theta_wrong_sign == pytest.approx(2 / 3)
    assert tl.phase_diagram(ell=3, loss="correlation").at(3, -1).theta_wrong_sign == 0


def test_lines_points_and_samples() -> None:
    squared, free = tl.phase_diagram(ell=3), tl.phase_diagram(ell=3, loss="correlation")
    assert squared.points == {"single samples": (0.0, 1.5), "optimum": (1.5, 0.0)}
    assert free.points["optimum"] == (2.0, -0.5) and free.points["one step"] == (
        3.0,
        -1.0,
    )
    # L1, L3 and L4 meet at the optimum of the correlation loss
    for name in ("noise", "expansion", "theta = 0"):
        assert free.lines[name].delta(2.0) == pytest.approx(-0.5)
    assert free.lines["expansion (published)"].source == "published"
    assert free.lines["expansion (published)"].delta(1.5) == pytest.approx(-0.5)
    assert (
        "theta = 0" not in squared.lines
        and squared.lines["self-interaction"].start == 1.5
    )
    # batching is free up to the optimum: d^{ℓ−1} samples in all
    assert [squared.samples(mu) for mu in (0, 0.5, 1.5)] == [2, 2, 2]
    assert squared.samples(2) == 2.5 and free.samples(2) == 2 and free.samples(3) == 3
    assert (
        squared.at(0, 0.5).expandable is False
        and squared.at(0, 0.51).expandable is True
    )


@pytest.mark.parametrize(
    ("mu", "delta", "words"),
    [
        (0, 1.5, "gradient flow"),
        (0.5, 0.5, "γ0/(p n0) chi"),
        (0, 0.75, "dM = 0"),
        (0, 0.5, "random as d"),
        (0.5, 0.25, "M' = M"),
        (0, 0.1, "no map of means"),
        (1, 0, "α = n0"),
        (1.5, 0, "chi dropped"),
        (2, -0.5, "no limit"),
    ],
)
def test_every_row_of_the_table_of_limits(mu: float, delta: float, words: str) -> None:
    assert words in dynamics(mu, delta)


def test_activations_decide_about_order_and_self_interaction() -> None:
    found = expansion("He3(z1)", "erf")
    assert found.ell == 3 and found.lower == (1,)
    assert (
        tl.phase_diagram("He3(z1)", activation="erf").self_interaction == "contracting"
    )
    # squared loss on the sphere: the other neurons remain, if σ has components below ℓ
    narrow = tl.phase_diagram("He3(z1)", activation="erf", geometry="spherical")
    wide = tl.phase_diagram("He3(z1)", activation="erf", geometry="spherical", width=4)
    assert (
        narrow.at(2, -0.2).learns
        and not wide.at(2, -0.2).learns
        and "He1" in wide.at(2, -0.2).note
    )
    assert (
        tl.phase_diagram("He3(z1)", activation="He3", geometry="spherical", width=4)
        .at(2, -0.2)
        .learns
    )
    assert (
        "several neurons"
        in tl.phase_diagram(ell=3, geometry="spherical", width=4).at(2, -0.2).note
    )
    assert tl.phase_diagram(
        "He3(z1)", activation="erf", geometry="spherical", width=4, loss="correlation"
    ).free
    # ½ E[(λ² − 1) σ²] = E[λ σ σ']
    x, w = np.polynomial.hermite_e.hermegauss(60)
    assert expansion("He2(z1)", "tanh(z) + 0.2*z**2").kappa == pytest.approx(
        float(
            (
                w
                / w.sum()
                * x
                * (np.tanh(x) + 0.2 * x**2)
                * (1 - np.tanh(x) ** 2 + 0.4 * x)
            ).sum()
        ),
        rel=1e-6,
    )


@pytest.mark.long
def test_a_mean_of_the_labels_gives_the_correlation_loss_a_self_interaction() -> None:
    """E[y] ≠ 0 adds √2 c_2 b_0 w: larger rates stop helping, where He2 learns in a constant number of steps."""
    shifted = tl.phase_diagram("z1**2", activation="square", loss="correlation")
    centred = tl.phase_diagram("He2(z1)", activation="square", loss="correlation")
    assert shifted.self_interaction == "saturating" and shifted.kappa == pytest.approx(
        -2
    )
    assert shifted.at(2, -0.5).growth == "log d" and centred.at(2, -0.5).steps == 1
    law = tl.SGD(lr=d**0.5, batch=d**2, loss="correlation", geometry="projected")
    medians = {}
    for target in ("z1**2", "z1**2 - 1"):
        runs = tl.weak_recovery(
            tl.Problem(target, "square"),
            law,
            (100, 10**6),
            seeds=16,
            batch_sums="gaussian",
        )
        medians[target] = [m.value for m in runs.medians]
    assert max(medians["z1**2 - 1"]) <= 2
    # here m grows by the factor (2 + 4)/2 at most: log(100)/log(3) = 4.2 more steps
    assert medians["z1**2"][1] >= medians["z1**2"][0] + 3


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tl.phase_diagram(ell=0), "`ell` must be a positive integer"),
        (lambda: tl.phase_diagram(), "neither"),
        (lambda: tl.phase_diagram("z1", ell=1), "both"),
        (
            lambda: tl.phase_diagram(lambda z: 0.0 * z[..., 0] + 1.0, directions=1),
            "Hermite component",
        ),
        (
            lambda: tl.phase_diagram("He2(z1)", activation="erf"),
            "does not point to the target",
        ),
        (lambda: tl.phase_diagram(ell=3, activation="erf"), "needs a target"),
        (lambda: tl.phase_diagram(ell=3, loss="hinge"), "'squared', 'correlation'"),
        (lambda: tl.phase_diagram(ell=3, geometry="free"), "'projected', 'spherical'"),
        (lambda: tl.phase_diagram(ell=3).at(-0.1, 0), "`mu` must be a number ≥ 0"),
        (
            lambda: tl.phase_diagram(ell=3).at(1, math.nan),
            "`delta` must be a finite number",
        ),
        (lambda: tl.phase_diagram(ell=3).at(math.inf, 0), "`mu` must be a number ≥ 0"),
        (lambda: tl.plot.phases(tl.phase_diagram(ell=3), "gamma"), "`plane`"),
        (
            lambda: tl.plot.phases(tl.phase_diagram(ell=3), measured=[3]),
            "a list of results of weak_recovery",
        ),
        (
            lambda: tl.plot.phases(tl.phase_diagram(ell=3), measured=3),
            "a list of results of weak_recovery",
        ),
        (
            lambda: tl.weak_recovery(H3, PLAIN, 100, threshold=1.0),
            "`threshold` must be a number in (0, 1)",
        ),
        (lambda: tl.weak_recovery(H3, PLAIN, 100, threshold=0), "`threshold`"),
        (lambda: tl.weak_recovery(H3, PLAIN, []), "at least one dimension"),
        (lambda: tl.weak_recovery(H3, PLAIN, 100, sign="up"), "`sign`"),
        (lambda: tl.weak_recovery(H3, PLAIN.replace(geometry="free"), 100), "cosine"),
        (
            lambda: tl.weak_recovery(H3.replace(width=2), PLAIN, 100, start="typical"),
            "several neurons",
        ),
        (lambda: tl.single_index.recovery_steps(H3, PLAIN, 100, start=0.7), "`start`"),
        (
            lambda: tl.single_index.recovery_steps(H3.replace(width=2), PLAIN, 100),
            "one neuron",
        ),
        (
            lambda: tl.single_index.recovery_steps(
                H3, PLAIN.replace(momentum=0.5), 100
            ),
            "momentum",
        ),
    ],
)
def test_bad_input_is_one_clear_sentence(call, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(tl.InputError) as error:
        call()
    assert words in str(error.value) and "\n" not in str(error.value)


def test_rare_fluctuations_are_named_only_where_noise_forbids_learning() -> None:
    pulled = tl.phase_diagram(
        "He3(z1)", activation="tanh", geometry="spherical", width=4
    ).at(2, -0.2)
    assert (
        not pulled.learns
        and "Rare" not in pulled.note
        and "only if σ has no component" in pulled.note
    )
    assert "exp(d^0.4)" in tl.phase_diagram(ell=3).at(1, 0.3).note


H3 = tl.Problem("h3(z1)", "h3")
PLAIN = tl.SGD(lr=0.1, batch="d**2", geometry="projected")


@pytest.mark.parametrize(
    ("gamma", "steps"),
    [(0.02, 15635), (0.05, 5655), (0.1, 2329), (0.2, 665), (0.3, 111)],
)
def test_prefactors_of_the_sheet(gamma: float, steps: int) -> None:
    assert (
        round(tl.single_index.recovery_steps(H3, PLAIN.replace(lr=gamma), 10**6).steps)
        == steps
    )


def test_self_interaction_beyond_one_never_recovers() -> None:
    found = tl.single_index.recovery_steps(H3, PLAIN.replace(lr=0.34), 10**6)
    assert found.steps == found.contracted == math.inf and found.self_interaction > 1
    assert math.isfinite(
        tl.single_index.recovery_steps(
            H3, PLAIN.replace(lr=0.34, geometry="spherical"), 10**6
        ).steps
    )


@pytest.mark.parametrize("ell", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("loss", "geometry"),
    [("squared", "projected"), ("correlation", "projected"), ("squared", "spherical")],
)
def test_closed_solutions_of_the_drift(ell: int, loss: str, geometry: str) -> None:
    problem = (
        tl.Problem(f"h{ell}(z1)", f"h{ell}") if ell > 1 else tl.Problem("z1", "linear")
    )
    algorithm = tl.SGD(lr=1e-3, batch=40_000, loss=loss, geometry=geometry)
    found = tl.single_index.recovery_steps(
        problem, algorithm, 400, threshold=0.3, start=0.12
    )
    assert found.contraction > 0
    g, x, h = found.growth, found.contraction, 0.02
    m, t = 0.12, 0.0
    while m < 0.3:  # midpoint rule
        slope = lambda m: g * m ** (ell - 1) - x / 2 * m  # noqa: E731
        dt = h * m / max(slope(m), 1e-300)
        m, t = m + dt * slope(m + dt / 2 * slope(m)), t + dt
    late = (m - 0.3) / slope(0.3)
    assert found.contracted == pytest.approx(t - late, rel=2e-3)
    assert found.contracted > found.steps
    kappa = expansion(problem.target, problem.activation).kappa
    expected = 1e-3 * kappa if (loss, geometry) == ("squared", "projected") else 0.0
    assert found.self_interaction == pytest.approx(expected)
    assert g == pytest.approx(1e-3 * ell / (1 - expected))


def test_the_unstable_point_separates_starts() -> None:
    algorithm = tl.SGD(lr=0.05, batch=20_000, geometry="projected")
    point = tl.single_index.recovery_steps(H3, algorithm, 1000).unstable
    assert 1000**-0.5 < 2 * point < 1
    assert math.isinf(
        tl.single_index.recovery_steps(
            H3, algorithm, 1000, start=point * 0.99
        ).contracted
    )
    assert math.isfinite(
        tl.single_index.recovery_steps(
            H3, algorithm, 1000, start=point * 1.01
        ).contracted
    )


def test_orientation_follows_the_drift_of_every_neuron() -> None:
    problem = tl.Problem("z1*z2*z3", "He3", width=3, second_layer=[1, -1, 1])
    starts = tl.Overlaps.random(problem, 50, seed=3, size=20)
    towards, away = oriented(problem, starts), oriented(problem, starts, away=True)
    assert ((np.prod(towards.M, axis=-1) * [1, -1, 1]) > 0).all()
    assert ((np.prod(away.M, axis=-1) * [1, -1, 1]) < 0).all()
    np.testing.assert_allclose(np.abs(towards.Q), np.abs(starts.Q))
    np.testing.assert_allclose(
        np.linalg.eigvalsh(towards.Q), np.linalg.eigvalsh(starts.Q), atol=1e-12
    )
    even = tl.Problem("z1*z2", "He2", width=2)
    first = tl.Overlaps.random(even, 50, size=2)
    assert oriented(even, first) is first


def test_the_figure_shows_both_planes_and_the_measured_points() -> None:
    runs = tl.weak_recovery(
        tl.Problem("h2(z1)", "h2"),
        tl.SGD(lr=0.1, batch="3*d", geometry="projected"),
        (100, 1000),
        seeds=8,
        batch_sums="gaussian",
    )
    figure = tl.plot.phases(tl.phase_diagram("h2(z1)"), measured=[runs])
    delta, theta = figure.axes
    assert delta.get_ylabel().startswith(r"$\delta$") and theta.get_ylabel().startswith(
        r"$\theta$"
    )
    shown = [
        line.get_xydata()[0].tolist()
        for line in delta.lines
        if line.get_marker() == "o"
    ]
    assert shown == [[1.0, 0.0]]
    said = f"{round(runs.theta, 2) + 0.0:.2f}".replace("-", "−")
    assert [text.get_text() for text in delta.texts] == [
        f"{said} (0.00)"
    ]  # and what is predicted
    assert len(tl.plot.phases(tl.phase_diagram(ell=1), "theta").axes) == 1


@pytest.mark.parametrize("plane", ["delta", "theta", "both"])
def test_the_legend_is_inside_the_figure(plane: str) -> None:
    figure = tl.plot.phases(tl.phase_diagram(ell=4, loss="correlation"), plane)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width and box.y0 >= 0
    assert any(
        text.get_text() == "Constant number of steps" for text in legend.get_texts()
    )


def test_the_command_prints_points_and_writes_the_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "diagram.png"
    arguments = [
        "phase-diagram",
        "--target",
        "He3(z1)",
        "--loss",
        "correlation",
        "--mu",
        "2,3",
        "--delta",
        "-0.2,-1",
    ]
    assert main([*arguments, "--out", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [point["theta"] for point in said["points"]] == [pytest.approx(0.3), 0.0]
    assert said["ell"] == 3 and out.read_bytes()[:4] == b"\x89PNG"
    assert main(arguments) == 0
    assert "one step" in capsys.readouterr().out


def test_the_command_measures(capsys: pytest.CaptureFixture[str]) -> None:
    # the sizes of the figure's test: nothing is compiled again
    point = [
        "--mu",
        "1",
        "--delta",
        "0",
        "--gamma0",
        "0.1",
        "--n0",
        "200",
        "--dim",
        "100,1000",
    ]
    assert (
        main(["phase-diagram", "--ell", "2", *point, "--measure", "8", "--json"]) == 0
    )
    measured = json.loads(capsys.readouterr().out)["points"][0]["measured"]
    assert measured["learned"] is True and measured["censored"] == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ell", "0"], "`ell`"),
        (["--ell", "3", "--mu", "1"], "as many numbers"),
        (["--ell", "3", "--mu", "one", "--delta", "1"], "--mu must be a number"),
        (["--ell", "3", "--mu", "-1", "--delta", "1"], "`mu`"),
        (["--ell", "3", "--measure", "4", "--threshold", "1.5"], "`threshold`"),
        (["--ell", "3", "--out", "diagram.txt"], "--out"),
        (["--ell", "3", "--plane", "gamma"], "--plane"),
        (["--ell", "3", "--measure", "4", "--dim", "nan"], "--dim must be integers"),
        (["--ell", "3", "--measure", "4", "--dim", "inf"], "--dim must be integers"),
        (["--ell", "3", "--measure", "4", "--dim", "100.7"], "--dim must be integers"),
        (["--ell", "3", "--dim", "100"], "--dim has no effect"),
        (["--ell", "3", "--sign", "up"], "--sign"),
        (["--target", "He3(z1"], "target"),
    ],
)
def test_the_command_refuses_in_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["phase-diagram", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


class Point(NamedTuple):
    """What a figure needs of a measurement."""

    mu: float
    delta: float
    theta: float | None
    theta_error: float | None
    learned: bool


def drawn(ax: Any) -> dict[str, list[tuple[float, float]]]:
    """Single black points by their marker."""
    found: dict[str, list[tuple[float, float]]] = {}
    for line in ax.get_lines():
        if (
            line.get_color() == "black"
            and len(line.get_xdata()) == 1
            and line.get_marker() in ("o", "x", "v", "^", ">")
        ):
            found.setdefault(line.get_marker(), []).append(
                (float(line.get_xdata()[0]), float(line.get_ydata()[0]))
            )
    return found


def test_measured_points_are_drawn_where_they_are_or_as_arrows_with_their_numbers() -> (
    None
):
    """An exponent of −0.131 was printed and drawn as 0.00."""
    points = [
        Point(1.0, 0.5, 0.98, 0.02, True),
        Point(2.0, 0.0, -0.131, 0.3, True),
        Point(2.5, 0.3, None, None, False),
    ]
    figure = tl.plot.phases(tl.phase_diagram(ell=3), measured=points)
    delta, theta = figure.axes
    assert drawn(delta) == {"o": [(1.0, 0.5), (2.0, 0.0)], "x": [(2.5, 0.3)]}
    assert [text.get_text() for text in delta.texts] == ["0.98 (1.00)", "−0.13 (0.50)"]
    assert drawn(theta) == {
        "o": [(1.0, 0.98)],
        "v": [(2.0, 0.0)],
    }  # an arrow at the edge, not a point at zero
    assert [text.get_text() for text in theta.texts] == ["−0.13 ± 0.30"]
    (container,) = theta.containers
    assert container.lines[0].get_ydata() == pytest.approx([0.98])
    near = tl.plot.phases(
        tl.phase_diagram(ell=3), "theta", [Point(2.0, 0.0, -0.004, 0.3, True)]
    ).axes[0]
    assert (
        drawn(near) == {"o": [(2.0, 0.0)]} and not near.texts
    )  # which reads 0.00 and is one
    far = tl.plot.phases(
        tl.phase_diagram(ell=3), "delta", [Point(9.0, 0.0, 0.5, 0.1, True)]
    ).axes[0]
    assert drawn(far) == {">": [(4.0, 0.0)]}
    assert [text.get_text() for text in far.texts] == ["(9, 0.00) 0.50 (0.50)"]


def test_giant_steps_are_drawn_only_where_something_is_learned() -> None:
    """Rates beyond 1/κ undo what they learn on the squared loss: its diagram has no areas of one or few steps."""
    from twolayer.plot.phases import COLOURS

    def areas(loss: str) -> set[str]:
        ax = tl.plot.phases(tl.phase_diagram(ell=3, loss=loss), "delta").axes[0]
        return {
            to_hex(c.get_facecolor()[0])
            for c in ax.collections
            if len(c.get_facecolor())
        }

    blue = {COLOURS["constant"], COLOURS["single"]}
    assert blue <= areas("correlation")
    assert not blue & areas("squared")
    ax = tl.plot.phases(tl.phase_diagram(ell=3), "theta").axes[0]
    assert [label.get_text() for label in ax.get_xticklabels()] == [
        "$0$",
        r"$\ell/2$",
        r"$\ell-1$",
        r"$\ell$",
    ]
    assert ax.get_xticks().tolist() == [0.0, 1.5, 2.0, 3.0]
    panels = Figure().subplots(1, 2)
    tl.plot.phases(tl.phase_diagram(ell=3), ax=panels)
    assert all(panel.collections for panel in panels)


SOURCE = Path(tl.__file__).parent


@pytest.mark.parametrize(
    "path",
    sorted([*SOURCE.glob("gallery/**/*.py"), *SOURCE.glob("plot/*.py")]),
    ids=lambda p: p.stem,
)
def test_no_figure_alters_its_data(path: Path) -> None:
    """What draws does not cut numbers off: matplotlib leaves out what lies beyond the axes, arrows say that it does."""
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        draws = isinstance(function, ast.FunctionDef) and re.search(
            r"draw|frame|still|points|band", function.name
        )
        if draws and function.name != "draw_phases":  # whose regions end at the axes
            calls = [
                node.func for node in ast.walk(function) if isinstance(node, ast.Call)
            ]
            names = {call.attr for call in calls if isinstance(call, ast.Attribute)}
            assert not names & {"clip", "maximum", "minimum"}, (
                f"{path.name}: {function.name}"
            )


def test_a_gram_matrix_changes_what_is_seen_first() -> None:
    """E[h z] of z1 He2(z2) is 2 P_12 along z2: no step of gradient descent without it, one with it."""
    P = [[1.0, 0.6], [0.6, 1.0]]
    apart, oblique = (
        tl.Problem("z1*He2(z2)", "z + z**3", 2, gram=gram) for gram in (None, P)
    )
    assert tl.phase_diagram(apart).ell == 3 and tl.phase_diagram(oblique).ell == 1
    assert tl.phase_diagram("z1*He2(z2)", gram=P).ell == 1
    x = np.random.default_rng(0).normal(size=(200_000, 2))
    z = np.stack([x[:, 0], 0.6 * x[:, 0] + 0.8 * x[:, 1]], axis=1)
    seen = (z[:, 0] * (z[:, 1] ** 2 - 1))[:, None] * z
    error = seen.std(0) / np.sqrt(len(x))
    assert (np.abs(seen.mean(0) - [0.72, 1.2]) < sigmas(2) * error).all()
    for problem, moves in ((apart, False), (oblique, True)):
        start = tl.Overlaps(np.eye(2), np.zeros((2, 2)), problem.P)
        algorithm = tl.SGD(0.5, batch=3 * d)
        run = tl.solve(problem, algorithm, tl.GiantSteps(), start, steps=1, save=1)
        assert bool(np.abs(run.M.values[0, -1]).max() > 0.05) is moves


def test_a_problem_has_its_own_activation_width_and_gram_matrix() -> None:
    problem = tl.Problem("He2(z1)", "z**2 + z", 3)
    own = tl.phase_diagram("He2(z1)", activation="z**2 + z", width=3)
    for geometry in ("projected", "spherical"):
        diagram = tl.phase_diagram(problem, geometry=geometry)
        other = tl.phase_diagram(
            "He2(z1)", activation="z**2 + z", width=3, geometry=geometry
        )
        assert str(diagram) == str(other)
    assert str(tl.phase_diagram(problem)) == str(own)
    for more in ({"activation": "erf"}, {"width": 3}, {"gram": [[1.0]]}):
        with pytest.raises(tl.InputError, match="problem is given"):
            tl.phase_diagram(problem, **more)
    with pytest.raises(tl.InputError, match="gram"):
        tl.phase_diagram(ell=2, gram=[[1.0]])
