"""Problems, algorithms, scaling laws and overlaps: what they mean and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from chance import sigmas
from scipy import stats

import twolayer as tl
from twolayer import d
from twolayer.task.regimes import regime_of
from twolayer.task.scaling import Scaling


@pytest.mark.parametrize(
    ("law", "coefficient", "exponent", "text"),
    [
        (0.2 / d, 0.2, -1, "0.2/d"),
        (2 * d**1.5, 2, 1.5, "2*d**1.5"),
        ("64", 64, 0, "64"),
        ("3*d", 3, 1, "3*d"),
        (d / 2, 0.5, 1, "0.5*d"),
        ("2/(4*d**0.5)", 0.5, -0.5, "0.5*d**-0.5"),
        (1 / (3 * d**2), 1 / 3, -2, "0.3333333333333333*d**-2"),
        (d, 1, 1, "d"),
    ],
)
def test_scaling_laws(
    law: object, coefficient: float, exponent: float, text: str
) -> None:
    scaling = Scaling.of(law)
    assert scaling.coefficient == pytest.approx(coefficient, rel=1e-15)
    assert scaling.exponent == exponent
    assert str(scaling) == text
    assert Scaling.of(str(scaling)) == scaling
    assert scaling(100) == pytest.approx(coefficient * 100**exponent)


def test_sgd_evaluates_at_a_dimension() -> None:
    algorithm = tl.SGD(lr=0.5 / d, batch="2*d**0.5", dataset=3 * d)
    assert (algorithm.delta, algorithm.mu) == (1, 0.5)
    assert algorithm.batch_at(100) == 20
    assert algorithm.dataset_at(100) == 300
    assert tl.SGD(**algorithm.describe()) == algorithm
    assert algorithm.replace(batch=4).batch_at(10**6) == 4
    with pytest.raises(tl.InputError, match="at most the dataset"):
        tl.SGD(lr=0.1, batch=10, dataset=5).dataset_at(50)
    with pytest.raises(tl.InputError, match=r"at least 1, but 0.001\*d"):
        tl.SGD(lr=0.1, batch="0.001*d").batch_at(100)


@pytest.mark.parametrize(
    ("lr", "batch", "regime"),
    [
        (1 / d, 1, "Saad–Solla"),
        (d**-0.5, d**0.5, "Saad–Solla"),
        (d**-1.5, 1, "gradient flow"),
        (d**-0.1, d, "gradient flow"),
        (d**-0.75, 1, "pure noise"),
        (d**-0.5, 1, "noise map"),
        (0.1, d, "giant steps"),
        (0.1, d**2, "giant steps"),
        (0.1, 1, "blow-up"),
        (d**-0.2, 1, "blow-up"),
        (d**0.5, d**3, "blow-up"),
    ],
)
def test_every_region_of_the_scaling_table(
    lr: object, batch: object, regime: str
) -> None:
    assert regime_of(tl.SGD(lr=lr, batch=batch)).name == regime


NAN = float("nan")
PROBLEM = tl.Problem("z1 + z2", "relu", width=2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: tl.Problem("z1", "relu", width=0),
            ["`width`", "0", "positive integer"],
        ),
        (
            lambda: tl.Problem("z1", "relu", width=2.5),
            ["`width`", "2.5", "positive integer"],
        ),  # type: ignore[arg-type]
        (lambda: tl.Problem("z1", "relu", width=True), ["`width`", "True"]),
        (lambda: tl.Problem("z1", "relu", noise=-0.1), ["`noise`", "-0.1", "≥ 0"]),
        (lambda: tl.Problem("z1", "relu", noise=NAN), ["`noise`", "nan"]),
        (
            lambda: tl.Problem("z1", "relu", second_layer="one"),
            ["`second_layer`", "'one'", "'ones'"],
        ),
        (
            lambda: tl.Problem("z1", "relu", width=2, second_layer=[1.0]),
            ["`second_layer`", "2 numbers"],
        ),
        (lambda: tl.Problem("z1*z2", "relu", gram=[[1.0]]), ["`gram`", "2 × 2"]),
        (
            lambda: tl.Problem("z1*z2", "relu", gram=[[1, 2], [2, 1]]),
            ["`gram`", "positive semidefinite", "-1"],
        ),
        (
            lambda: tl.Problem("z1*z2", "relu", gram=[[1, 0], [1, 1]]),
            ["`gram`", "symmetric"],
        ),
        (lambda: PROBLEM.replace(widht=3), ["widht", "'width'"]),
        (lambda: tl.SGD(lr=0), ["`lr`", "0", "positive"]),
        (lambda: tl.SGD(lr=-1 / d), ["`lr`", "-1/d", "positive"]),
        (lambda: tl.SGD(lr=NAN), ["`lr`", "nan"]),
        (lambda: tl.SGD(lr="0.1/d + 1"), ["`lr`", "single power law"]),
        (lambda: tl.SGD(lr="sin(d)"), ["`lr`", "single power law"]),
        (lambda: tl.SGD(lr="0.1/n"), ["`lr`", "unknown name 'n'"]),
        (lambda: tl.SGD(lr=None), ["`lr`", "None"]),
        (lambda: tl.SGD(lr=1 / d, batch=0.3), ["`batch`", "0.3", "positive integer"]),
        (lambda: tl.SGD(lr=1 / d, batch=0), ["`batch`", "0"]),
        (lambda: tl.SGD(lr=1 / d, momentum=1), ["`momentum`", "1", "[0, 1)"]),
        (lambda: tl.SGD(lr=1 / d, weight_decay=-1), ["`weight_decay`", "-1"]),
        (
            lambda: tl.SGD(lr=1 / d, loss="square"),
            ["`loss`", "'square'", "did you mean 'squared'"],
        ),
        (
            lambda: tl.SGD(lr=1 / d, geometry="sphere"),
            ["`geometry`", "'sphere'", "did you mean 'spherical'"],
        ),
        (
            lambda: tl.SGD(lr=1 / d, train_second_layer=1),
            ["`train_second_layer`", "True or False"],
        ),  # type: ignore[arg-type]
        (
            lambda: tl.Overlaps([[1, 2], [2, 1]], [[0], [0]]),
            ["`Q`", "positive semidefinite", "-1"],
        ),
        (lambda: tl.Overlaps([[1.0]], [[1.5]]), ["`M`", "compatible with Q and P"]),
        (lambda: tl.Overlaps([[1.0, 0], [0.5, 1]], [[0], [0]]), ["`Q`", "symmetric"]),
        (lambda: tl.Overlaps([[NAN]], [[0.0]]), ["`Q`", "finite", "nan"]),
        (lambda: tl.Overlaps([[1.0]], [[0.0, 0.0]], P=[[1.0]]), ["`P`", "2 × 2"]),
        (lambda: tl.Overlaps([[1.0]], [[0.0]], a=[1.0, 2.0]), ["`a`"]),
        (lambda: tl.Overlaps([[1.0]], [["x"]]), ["`M`", "array of numbers"]),
        (lambda: tl.Overlaps.random(PROBLEM, dim=1), ["`dim`", "1", "at least the 2"]),
        (lambda: tl.Overlaps.random(PROBLEM, dim=0), ["`dim`", "0"]),
        (
            lambda: tl.Overlaps.random(PROBLEM, dim=10, law="uniform"),
            ["`law`", "'uniform'"],
        ),
        (
            lambda: tl.Overlaps.from_weights([[1.0, 0.0]], [[1.0]]),
            ["`W_star`", "(k, 2)"],
        ),
        (
            lambda: PROBLEM.replace(gram=np.eye(3)),
            ["`gram`", "2 × 2 matrix", "array([[1., 0., 0.], [0., 1., 0.]"],
        ),
        (lambda: tl.Until("norm", 1.0), ["`quantity`", "'norm'"]),
        (lambda: tl.Until("risk", -1.0), ["`value`", "-1.0"]),
        (lambda: tl.Chain(dim=0), ["`dim`", "0"]),
        (lambda: tl.Chain(dim=10, batch_sums="fast"), ["`batch_sums`", "'fast'"]),
        (lambda: tl.ODE(averages=tl.Averages(engine="magic")), ["`engine`", "'magic'"]),
        (lambda: tl.ODE(rtol=0.0), ["`rtol`", "0.0"]),
        (lambda: tl.extend.register_loss("no good"), ["`name`", "identifier"]),
    ],
)
def test_bad_input_is_one_sentence_with_name_value_and_remedy(
    make: object, words: list[str]
) -> None:
    with pytest.raises(tl.InputError) as error:
        make()  # type: ignore[operator]
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


@pytest.mark.parametrize(
    ("dim", "P"), [(3, None), (30, None), (500, [[1.0, 0.4], [0.4, 2.0]]), (2, None)]
)
@pytest.mark.parametrize("law", ["sphere", "gaussian"])
def test_random_starts_have_the_law_of_random_vectors(
    dim: int, P: object, law: str
) -> None:
    problem = tl.Problem("z1 + z2", "relu", width=3, gram=P)
    n = 6000
    ours = tl.Overlaps.random(problem, dim, seed=5, size=n, law=law)
    rng = np.random.default_rng(1)
    L = np.linalg.cholesky(problem.P)
    W_star = np.zeros((2, dim))
    W_star[:, :2] = L
    W = rng.normal(size=(n, 3, dim)) / np.sqrt(dim)
    if law == "sphere":
        W /= np.linalg.norm(W, axis=2, keepdims=True)
        np.testing.assert_allclose(np.diagonal(ours.Q, axis1=1, axis2=2), 1, atol=1e-14)
    Q, M = W @ W.swapaxes(1, 2), W @ W_star.T
    pairs = [
        (ours.Q[:, 0, 1], Q[:, 0, 1]),
        (ours.M[:, 1, 1], M[:, 1, 1]),
        (ours.M[:, 0, 0], M[:, 0, 0]),
    ]
    if law == "gaussian":
        pairs.append((ours.Q[:, 2, 2], Q[:, 2, 2]))
    pairs.append(
        (
            ours.Q[:, 0, 1] * ours.M[:, 0, 0] * ours.M[:, 1, 0],
            Q[:, 0, 1] * M[:, 0, 0] * M[:, 1, 0],
        )
    )
    for a, b in pairs:
        assert stats.ks_2samp(a, b).pvalue > 1e-5


def test_targets_without_any_direction_have_starts_too() -> None:
    start = tl.Overlaps.random(
        tl.Problem("relu(z1)", "relu", 2, gram=[[0.0]]), 10, size=3, law="hemisphere"
    )
    assert start.M.tolist() == [[[0.0], [0.0]]] * 3
    np.testing.assert_allclose(np.diagonal(start.Q_perp, axis1=1, axis2=2), 1.0)


def test_starts_are_reproducible_and_independent_of_company() -> None:
    problem = tl.Problem("z1", "relu", width=2, second_layer="gaussian")
    one, many = (
        tl.Overlaps.random(problem, 100, seed=3),
        tl.Overlaps.random(problem, 100, seed=3, size=4),
    )
    for name in ("Q", "M", "a"):
        np.testing.assert_array_equal(getattr(one, name), getattr(many, name)[0])
    assert many.batch == (4,)
    assert len({float(x) for x in many.M[:, 0, 0]}) == 4
    signs = tl.Problem("z1", "relu", width=1000, second_layer="signs").a(seed=1)
    assert set(signs) == {-1.0, 1.0}
    assert abs(signs.sum()) < sigmas() * np.sqrt(1000)


@pytest.mark.parametrize(
    "P", [np.eye(2), np.array([[1.0, 0.3], [0.3, 0.5]]), np.ones((2, 2))]
)
def test_decomposition(P: np.ndarray) -> None:
    """W = M P⁺ W* + W⊥ with W⊥ orthogonal to the target, also when P is singular."""
    rng = np.random.default_rng(2)
    values, vectors = np.linalg.eigh(P)
    W_star = (
        vectors
        @ np.diag(np.sqrt(np.maximum(values, 0)))
        @ np.linalg.qr(rng.normal(size=(9, 2)))[0].T
    )
    W = rng.normal(size=(3, 9))
    start = tl.Overlaps.from_weights(W, W_star)
    inside, perp = start.decompose()
    rest = W - inside @ W_star
    np.testing.assert_allclose(rest @ W_star.T, 0, atol=1e-10)
    np.testing.assert_allclose(rest @ rest.T, perp, atol=1e-10)
    L, A, B = start.factors()
    np.testing.assert_allclose(L @ L.T, W_star @ W_star.T, atol=1e-12)
    np.testing.assert_allclose(A @ L.T, start.M, atol=1e-12)
    np.testing.assert_allclose(A @ A.T + B @ B.T, start.Q, atol=1e-12)


def test_replace_keeps_the_rest() -> None:
    problem = tl.Problem("z1*z2", "erf", width=3, noise=0.5, gram=[[1, 0.2], [0.2, 1]])
    assert problem.replace(noise=0.1).gram == problem.gram
    assert problem.replace(target="z1 + z2**2").gram == problem.gram
    assert problem.replace(gram=[[2, 0], [0, 3]]).replace(target="z1").gram == ((2.0,),)
    assert tl.Problem("z1", "erf").replace(target="z1*z2").gram == (
        (1.0, 0.0),
        (0.0, 1.0),
    )
    with pytest.raises(
        tl.InputError,
        match=r"`gram` must be given with a target over 3 directions, but .* is for 2",
    ):
        problem.replace(target="z1*z2*z3")
    assert problem.replace(target="z1").k == 1
    assert repr(problem).startswith(
        "Problem(target='z1*z2', activation='erf', width=3, noise=0.5, gram="
    )
