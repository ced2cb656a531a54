"""Errors planted in the methods, and in the loops and descriptions behind them."""

from __future__ import annotations

from . import Mutant, planted_in
from .equations import plain

NOISE = "tests/test_one_step_noise.py"

MUTANTS: list[Mutant] = [
    *planted_in(
        "methods/sde.py",
        (f"{NOISE}::test_the_noise_of_one_step[free, both layers]",),
        (
            "sde-noise",
            "return Overlap(*unpack(symmetric_root(sigma) @ normals, p, k, trained))",
            "return Overlap(*unpack(0.5 * symmetric_root(sigma) @ normals, p, k, trained))",
            "noise of the SDE × ½",
        ),
        (
            "sde-batch",
            "kick = eta * np.sqrt(stride / algorithm.batch_at(dim))",
            "kick = eta * np.sqrt(stride)",
            "batch in the noise of the SDE",
        ),
        (
            "sde-second",
            "kick = Overlap(first * kick.Q, first * kick.M, second * kick.a)",
            "kick = Overlap(first * kick.Q, first * kick.M, first * kick.a)",
            "noise of the second layer with the rate of the first",
        ),
        (
            "sde-normals",
            "kick = eta * np.sqrt(stride / algorithm.batch_at(dim))",
            "kick = eta * stride / np.sqrt(algorithm.batch_at(dim) * 1.0) * 1.1",
            "noise of the SDE 10 % too large",
        ),
    ),
    *planted_in(
        "methods/sde.py",
        (f"{NOISE}::test_the_noise_of_many_steps_in_one",),
        (
            "sde-stride",
            "kick = eta * np.sqrt(stride / algorithm.batch_at(dim))",
            "kick = eta * stride / np.sqrt(algorithm.batch_at(dim))",
            "√n → n in the noise of n steps",
        ),
        (
            "sde-heun",
            "new = jax.tree.map(lambda x, b, c, n: x + params.dt * (b + c) / 2 + n, y, slope, later, kick)",
            "new = jax.tree.map(lambda x, b, c, n: x + params.dt * (b + c) + n, y, slope, later, kick)",
            "½ of the two slopes",
        ),
        (
            "sde-dt",
            "(limit.noise / quickening(algorithm), stride * eta))",
            "(limit.noise / quickening(algorithm), stride * eta / 2))",
            "time step halved",
        ),
        (
            "sde-momentum",
            "rho, dt = (jnp.asarray(x, float) for x in (limit.noise / quickening(algorithm), stride * eta))",
            "rho, dt = (jnp.asarray(x, float) for x in (2 * limit.noise / quickening(algorithm), stride * eta))",
            "ρ of the covariance doubled",
        ),
    ),
    *planted_in(
        "methods/sde.py",
        (f"{NOISE}::test_the_noise_of_one_step_in_blocks",),
        (
            "sde-blocks",
            "return unpack_blocks(symmetric_root(sigma) @ normals, b, p, k, trained)",
            "return unpack_blocks(2 * symmetric_root(sigma) @ normals, b, p, k, trained)",
            "noise of the SDE in blocks doubled",
        ),
    ),
    *planted_in(
        "methods/sde.py",
        (f"{NOISE}::test_the_noise_of_one_step[projected]",),
        (
            "sde-tangent",
            "J = tangent(y.Q, y.M, trained)\n        sigma = J @ sigma @ J.T",
            "J = tangent(y.Q, y.M, trained)\n        sigma = J.T @ sigma @ J",
            "transposed projection of the noise",
        ),
    ),
    *planted_in(
        "methods/sde.py",
        ("tests/test_schedules.py", f"{NOISE}::test_the_noise_of_a_schedule"),
        (
            "sde-schedule",
            "return later, first + f / params.stride, second + f**2 * tempo.count / (n * params.stride)",
            "return later, first + f / params.stride, second + f * tempo.count / (n * params.stride)",
            "f² → f in the noise of a scheduled SDE",
        ),
    ),
    *planted_in(
        "methods/chain.py",
        (
            "tests/test_chain.py::test_a_streamed_batch_is_the_same_law",
            f"{NOISE}::test_streamed_batches_are_batches",
        ),
        (
            "chain-streamed",
            "C = lq(jnp.concatenate([total.C, part.C], axis=1))",
            "C = part.C",
            "only the last chunk of a streamed batch counts outside",
        ),
        (
            "chain-streamed-sum",
            "sums = Sums(total.star + part.star, total.own + part.own, C, total.second + part.second)",
            "sums = Sums(total.star + part.star, total.own - part.own, C, total.second + part.second)",
            "sign of a chunk",
        ),
    ),
    *planted_in(
        "methods/chain.py",
        plain("correlation, two directions-Chain"),
        (
            "chain-degrees",
            "return rank, columns, GramFactor(count, method.dim - rank - columns)",
            "return rank, columns, GramFactor(count, method.dim)",
            "degrees of freedom outside the known directions",
        ),
    ),
    *planted_in(
        "methods/vectors.py",
        (
            "tests/test_plain_sgd.py::test_the_training_risk_is_that_of_the_samples",
            "tests/test_reuse.py",
        ),
        (
            "vectors-training-risk",
            "scale = 1 / (2 * spec.size)",
            "scale = 1 / spec.size",
            "½ of the training risk",
        ),
    ),
    *planted_in(
        "methods/map.py",
        ("tests/test_map.py::test_the_fluctuation_of_a_step_is_that_of_chains",),
        (
            "map-fluctuation",
            "return jnp.diagonal(own.norms) * step.rates.step**2 * step.weights.single / norm**2",
            "return jnp.diagonal(own.norms) * step.rates.step * step.weights.single / norm**2",
            "η² → η in the fluctuation of a norm",
        ),
    ),
    *planted_in(
        "methods/map.py",
        (
            "tests/test_map.py::test_one_step_has_the_mean_of_the_chain_at_any_dimension",
        ),
        (
            "map-weights",
            'weights = Weights(norm, 1 / batch, "pairs" not in self.without, problem.noise)',
            'weights = Weights(norm, 1 / batch, "pairs" not in self.without, 0.0 * problem.noise)',
            "label noise of the map dropped",
        ),
    ),
    *planted_in(
        "methods/giant.py",
        (
            "tests/test_giant_steps.py::test_the_stairs_of_z1_plus_z1z2",
            "tests/test_inputs.py::test_giant_steps_in_blocks",
            f"{NOISE}::test_the_band_of_one_giant_step",
        ),
        (
            "giant-alpha",
            "norm = 1 / batch.coefficient if batch.exponent < 1 + 1e-9 else 0.0",
            "norm = batch.coefficient if batch.exponent < 1 + 1e-9 else 0.0",
            "1/α → α",
        ),
    ),
    *planted_in(
        "methods/meanfield.py",
        (
            "tests/test_meanfield.py::test_square_has_the_formula_of_the_theory_at_finite_dimension",
            "tests/test_meanfield.py::test_erf_has_the_formula_of_the_high_dimensional_limit",
            "tests/test_meanfield.py::test_thresholds_refer_to_what_they_name",
        ),
        (
            "meanfield-overlap",
            "return jnp.sqrt(self.neurons * (y.weights @ M**2).sum())",
            "return jnp.sqrt((y.weights @ M**2).sum())",
            "‖M‖_F of p neurons",
        ),
        (
            "meanfield-rest",
            "rest, own = self.dim - rank_of(problem.P), self.self_interaction",
            "rest, own = self.dim, self.self_interaction",
            "dimension of the orthogonal parts",
        ),
    ),
    *planted_in(
        "methods/meanfield.py",
        (
            "tests/test_meanfield.py::test_large_dimension_is_the_infinite_one_up_to_one_over_d",
            "tests/test_inputs.py::test_a_mean_field_in_blocks_starts_as_the_ode",
        ),
        (
            "meanfield-measure",
            "norm = ((scale * A) ** 2).sum(-1) + q @ variance",
            "norm = ((scale * A) ** 2).sum(-1) + q.sum(-1)",
            "variances of the orthogonal parts",
        ),
    ),
    *planted_in(
        "methods/population.py",
        ("tests/test_population.py::test_thresholds_stop_descent",),
        (
            "population-watched",
            'return excess + descent.irreducible(noise) if quantity == "risk" else excess\n    return watched_value',
            'return excess - descent.irreducible(noise) if quantity == "risk" else excess\n    return watched_value',
            "sign of the noise in a watched risk of descent",
        ),
    ),
    *planted_in(
        "methods/dmft/samples.py",
        (
            "tests/test_dmft.py::test_the_first_step_is_a_giant_step",
            "tests/test_dmft.py",
        ),
        (
            "dmft-onsager",
            "return rows + rows @ E / alpha**0.5",
            "return rows - rows @ E / alpha**0.5",
            "sign of the Onsager term",
        ),
        (
            "dmft-gradient",
            "gradient = batches * (jnp.where(noises, pushes, 0.0) + pushes @ E.T / alpha**0.5)",
            "gradient = batches * (jnp.where(noises, pushes, 0.0) + pushes @ E.T / alpha)",
            "√α → α of the memory",
        ),
    ),
    *planted_in(
        "methods/dmft/patterns.py",
        (
            "src/twolayer/methods/dmft/patterns.py",
            "tests/test_dmft_outcomes.py",
            "tests/test_dmft.py",
        ),
        (
            "dmft-subset",
            '"subset": DrawLaw(lambda t, B: t, lambda uniform, t, B: uniform < 1 / B),',
            '"subset": DrawLaw(lambda t, B: t, lambda uniform, t, B: uniform < 2 / B),',
            "chance of a sample in a subset",
        ),
        (
            "dmft-turn",
            "return np.asarray(np.floor(B * uniform) == t % B)",
            "return np.asarray(np.floor(B * uniform) == 0 * t % B)",
            "always the first batch",
        ),
    ),
    *planted_in(
        "methods/dmft/first_order.py",
        (
            "tests/test_first_order.py::test_message_passing_is_one_of_them_and_ends_at_the_best_possible",
            "tests/test_first_order.py::test_functions_of_coordinates_follow_numpy",
        ),
        (
            "first-order-products",
            "visited = np.where(copies[:, None] > 0, v, 0.0)",
            "visited = np.where(copies[:, None] > 0, 0.0 * v, 0.0)",
            "samples forget what was made of them",
        ),
        (
            "first-order-coordinates",
            "new[:, place] = rest @ self._axes[place] / axes.shape[1]",
            "new[:, place] = 0.0 * rest @ self._axes[place] / axes.shape[1]",
            "functions of coordinates without what they add to the span of the past",
        ),
    ),
    *planted_in(
        "methods/first_order.py",
        ("tests/test_first_order.py::test_momentum_is_one_of_them",),
        (
            "first-order-batch",
            "gradient *= self.rate / spec.batch",
            "gradient *= self.rate / spec.size",
            "the batch of a first-order method is the whole set",
        ),
    ),
]
