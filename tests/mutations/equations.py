"""Errors planted in what one step does."""

from __future__ import annotations

from . import Mutant, planted_in


def plain(*settings: str) -> tuple[str, ...]:
    """SGD written down in NumPy, for some settings and methods."""
    return tuple(
        f"tests/test_plain_sgd.py::test_a_few_steps_have_the_law_of_the_definition[{x}]"
        for x in settings
    )


LIMITS = "tests/test_limit_options.py::test_the_limit_is_that_of_long_runs"
RATIOS = ("tests/test_one_step_noise.py::test_the_mean_of_ratios",)
MAP = (
    "tests/test_map.py::test_one_step_has_the_mean_of_the_chain_at_any_dimension",
    "tests/test_map.py::test_no_correction_can_be_left_out_at_small_dimension",
)
BLOCK_MAP = (
    "tests/test_inputs.py::test_the_map_of_a_linear_student_is_its_exact_recursion",
    "tests/test_inputs.py::test_giant_steps_in_blocks",
    "tests/test_inputs.py::test_the_mean_of_the_chain_is_the_map",
)

MUTANTS: list[Mutant] = [
    *planted_in(
        "equations/increment_kernel.py",
        plain("plain, projected-Chain"),
        (
            "kernel-residual-sign",
            "g = a * self.activation.slope(sample.student) * e\n",
            "g = -a * self.activation.slope(sample.student) * e\n",
            "sign of the gradient in JAX",
        ),
    ),
    *planted_in(
        "equations/increment_kernel.py",
        plain("private, projected, momentum-Chain"),
        (
            "kernel-slope",
            "g = a * self.activation.slope(sample.student) * e\n",
            "g = a * self.activation(sample.student) * e\n",
            "σ' → σ in the gradient",
        ),
        (
            "kernel-output",
            "f = (a * sigma).sum(-1) / divisor(self.normalisation, a.shape[-1])\n        e =",
            "f = sigma.sum(-1) / divisor(self.normalisation, a.shape[-1])\n        e =",
            "a dropped in the output",
        ),
    ),
    *planted_in(
        "equations/increment_kernel.py",
        ("tests/test_rules.py::test_path_by_path",),
        (
            "kernel-shift-products",
            "return rate / (N * loss.batch) * sample.products @ g",
            "return rate / N * sample.products @ g",
            "1/n_b of a step of the batch that a rule looks at",
        ),
        (
            "kernel-ruled-scale",
            "return s * loss.rule.push(seen)",
            "return loss.rule.push(seen) / s",
            "scale of a ruled gradient",
        ),
    ),
    *planted_in(
        "equations/optimiser_step.py",
        plain("momentum, decay, both layers-Chain"),
        (
            "step-shrink",
            "return 1.0 - self.decay",
            "return 1.0 + self.decay",
            "sign of the decay",
        ),
        (
            "step-momentum",
            "return new if previous is None else new + rates.momentum * (now - previous)",
            "return new if previous is None else new - rates.momentum * (now - previous)",
            "sign of the momentum",
        ),
        (
            "step-second-rate",
            "return combine(rates._replace(step=rates.second, decay=0.0), a, push, previous) if form.trained else a",
            "return combine(rates._replace(decay=0.0), a, push, previous) if form.trained else a",
            "rate of the second layer is that of the first",
        ),
        (
            "step-second-decay",
            "return combine(rates._replace(step=rates.second, decay=0.0), a, push, previous) if form.trained else a",
            "return combine(rates._replace(step=rates.second), a, push, previous) if form.trained else a",
            "second layer decays",
        ),
        (
            "step-decay-rate",
            "lr / divisor, lr * algorithm.weight_decay, algorithm.momentum, second / divisor, weight, dim=size, divisor=N",
            "lr / divisor, lr * algorithm.weight_decay / divisor, algorithm.momentum, second / divisor, weight, dim=size, divisor=N",
            "decay divided by N",
        ),
    ),
    *planted_in(
        "equations/optimiser_step.py",
        plain("nesterov, both layers-Chain"),
        (
            "step-ahead",
            "return now + rates.momentum * (now - previous)\n\n\ndef rates_now",
            "return now\n\n\ndef rates_now",
            "Nesterov's gradients are not taken ahead",
        ),
    ),
    *planted_in(
        "equations/optimiser_step.py",
        plain("spherical, decay, sum-Chain"),
        (
            "step-tangent",
            "else (W * push.first).sum(-1) / (W * W).sum(-1)",
            "else (W * push.first).sum(-1) / (2 * (W * W).sum(-1))",
            "half of the radial part is taken off",
        ),
        (
            "step-radial",
            "keep = rates.shrink if radial is None else (rates.shrink - rates.step * radial)[:, None]",
            "keep = rates.shrink if radial is None else (rates.shrink + rates.step * radial)[:, None]",
            "sign of the radial part",
        ),
    ),
    *planted_in(
        "equations/optimiser_step.py",
        plain("private, projected, momentum-Vectors"),
        (
            "step-normalised",
            "new, square = new / jnp.sqrt(square)[..., None], on_sphere(square)",
            "new, square = new / square[..., None], on_sphere(square)",
            "rows divided by their squared norms",
        ),
    ),
    *planted_in(
        "equations/optimiser_step.py",
        (
            "tests/test_chain.py::test_path_by_path",
            "tests/test_plain_sgd.py::test_vectors_without_momentum",
        ),
        (
            "step-known-products",
            "square = keep**2 * products.ww + 2 * keep * rates.step * products.wg + rates.step**2 * products.gg",
            "square = keep**2 * products.ww + keep * rates.step * products.wg + rates.step**2 * products.gg",
            "2 of a squared norm",
        ),
    ),
    *planted_in(
        "equations/optimiser_step.py",
        (LIMITS,),
        (
            "limit-jitter",
            "jitter = quickening(algorithm) ** 2 * jitter * rate",
            "jitter = quickening(algorithm) * jitter * rate",
            "private noise with momentum: f² → f",
        ),
        (
            "limit-noise-momentum",
            "return Limit(moves * flow * f, moves * noise * f**2, moves * decay, second * flow * f)",
            "return Limit(moves * flow * f, moves * noise * f, moves * decay, second * flow * f)",
            "momentum in the noise: f² → f",
        ),
        (
            "limit-decay",
            "decay = flow * f * divisor * algorithm.weight_decay",
            "decay = flow * f * algorithm.weight_decay",
            "N of the decay dropped",
        ),
        (
            "limit-second",
            "return Limit(moves * flow * f, moves * noise * f**2, moves * decay, second * flow * f)",
            "return Limit(moves * flow * f, moves * noise * f**2, moves * decay, flow * f)",
            "rate of the second layer in the limit",
        ),
        (
            "motion-decay",
            "dQ = limit.flow * (average.phi + average.phi.T) - 2 * limit.decay * Q\n    if noisy:\n        dQ = dQ + limit.noise * (average",
            "dQ = limit.flow * (average.phi + average.phi.T) - limit.decay * Q\n    if noisy:\n        dQ = dQ + limit.noise * (average",
            "2 of the decay of Q",
        ),
        (
            "motion-noise",
            "dQ = dQ + limit.noise * (average.chi + average.chi.T) / 2",
            "dQ = dQ + limit.noise * (average.chi + average.chi.T)",
            "χ counted twice",
        ),
        (
            "motion-jitter",
            "dQ = dQ + limit.jitter * jnp.eye(len(Q))",
            "dQ = dQ + limit.jitter * jnp.ones((len(Q), len(Q)))",
            "private noise between neurons",
        ),
    ),
    *planted_in(
        "equations/optimiser_step.py",
        (
            "tests/test_ode.py::test_phase_retrieval_has_the_exact_solution",
            "tests/test_ode.py::test_every_regime_against_equations_written_once_more",
        ),
        (
            "motion-tangent",
            "return dQ - Q * (own[:, None] + own[None, :]), dM - M * own[:, None]",
            "return dQ - Q * (own[:, None] + own[None, :]), dM + M * own[:, None]",
            "sign of the radial part of M",
        ),
        (
            "motion-tangent-half",
            "own = change / (2 * norm)",
            "own = change / norm",
            "½ of the radial part",
        ),
        (
            "limit-ratio",
            "ratio = algorithm.lr.coefficient / (divisor * algorithm.batch.coefficient)",
            "ratio = algorithm.lr.coefficient / divisor",
            "batch in the noise of the limit",
        ),
    ),
    *planted_in(
        "equations/optimiser_step.py",
        ("tests/test_schedules.py",),
        (
            "limit-scaled",
            "noise=self.noise * f**2 / b",
            "noise=self.noise * f**2 * b",
            "scheduled batches: 1/b → b",
        ),
        (
            "adagrad-growth",
            "growth = 1 / (divisor * algorithm.lr.coefficient * algorithm.batch.coefficient)",
            "growth = 1 / (algorithm.lr.coefficient * algorithm.batch.coefficient)",
            "N of the growth of AdaGrad's sum",
        ),
        (
            "limit-scaled-lr",
            "noise=self.noise * f**2 / b",
            "noise=self.noise * f / b",
            "scheduled lr in the noise: f² → f",
        ),
    ),
    *planted_in(
        "equations/optimiser_step.py",
        ("tests/test_rules.py::test_rules_of_the_mean_are_those_of_explicit_sgd",),
        (
            "rule-adagrad",
            "f = 1 / jnp.sqrt(rule.adapts**2 + total)",
            "f = 1 / (rule.adapts + total)",
            "root of AdaGrad's sum",
        ),
        (
            "rule-adam",
            "m, v = b1 * m + (1 - b1) * own, b2 * v + (1 - b2) * own**2",
            "m, v = b1 * m + (1 - b1) * own, b2 * v + (1 - b1) * own**2",
            "β₂ → β₁ in Adam",
        ),
    ),
    *planted_in(
        "equations/optimiser_step.py",
        (
            "tests/test_layer_rates.py",
            "tests/test_plain_sgd.py::test_the_average_of_the_iterates",
        ),
        (
            "average-weights",
            "mean = Layers(*((1.0 - w) * old + w * new for old, new in zip(state.average, after.now, strict=True)))",
            "mean = Layers(*(w * old + (1.0 - w) * new for old, new in zip(state.average, after.now, strict=True)))",
            "weights of the average exchanged",
        ),
    ),
    *planted_in(
        "equations/orthogonal.py",
        plain(
            "correlation, two directions-Chain", "private, projected, momentum-Chain"
        ),
        (
            "chain-jitter-own",
            "star, own = sums.star + at.form.jitter * jitter[:, :r], sums.own + at.form.jitter * jitter[:, r:]\n        C =",
            "star, own = sums.star + at.form.jitter * jitter[:, :r], sums.own\n        C =",
            "private noise along the students' own directions dropped",
        ),
        (
            "chain-jitter-outside",
            "C = jnp.concatenate([sums.C, at.form.jitter * jnp.eye(p)], axis=1)\n        sums",
            "C = jnp.concatenate([sums.C, 0.5 * at.form.jitter * jnp.eye(p)], axis=1)\n        sums",
            "private noise outside the known directions halved",
        ),
    ),
    *planted_in(
        "equations/orthogonal.py",
        plain("blocks, private, both layers-Chain"),
        (
            "chain-block-jitter",
            "own = jnp.concatenate([own, noise], axis=2)",
            "own = jnp.concatenate([own, 0 * noise], axis=2)",
            "private noise with inputs in blocks: none outside the known directions",
        ),
        (
            "chain-block-spread",
            "own = spread[first : first + group.members, None, None] * sums.C",
            "own = spread[first : first + group.members, None, None] ** 2 * sums.C",
            "√s → s outside the known directions",
        ),
        (
            "chain-block-fields",
            "return gram(scaled), (scaled * scale)[..., : L.shape[1]] @ L.T",
            "return gram(scaled), scaled[..., : L.shape[1]] @ L.T",
            "√s of the overlaps with the target",
        ),
    ),
    *planted_in(
        "equations/block_coordinates.py",
        plain("blocks, free-Chain", "blocks, private, both layers-Chain"),
        (
            "block-outside",
            "left = (self.sizes[i] - self.frames[i].shape[1] - self.own[i] for i in self.order)",
            "left = (self.sizes[i] - self.own[i] for i in self.order)",
            "degrees of freedom outside a block",
        ),
    ),
    *planted_in(
        "equations/block_coordinates.py",
        plain("blocks, private, both layers-Vectors"),
        (
            "block-scale",
            "return np.sqrt(np.asarray(self.variances))[self.block]",
            "return np.asarray(self.variances)[self.block]",
            "√s_i → s_i of a coordinate",
        ),
    ),
    *planted_in(
        "equations/blocks.py",
        (
            "tests/test_inputs.py::test_the_ode_of_three_blocks_with_decay",
            "tests/test_inputs.py::test_the_ode_of_two_blocks_on_the_sphere_with_a_trained_second_layer",
        ),
        (
            "blocks-pull",
            "star = s * (gradient.own @ y.M + gradient.star @ blocks.P)",
            "star = s * (gradient.own @ y.M) + gradient.star @ blocks.P",
            "variance of the pull of the target",
        ),
        (
            "blocks-noise",
            "dQ = dQ + limit.noise * (blocks.variance * blocks.share)[:, None, None] * chi",
            "dQ = dQ + limit.noise * blocks.variance[:, None, None] * chi",
            "share d_i/d of the noise",
        ),
        (
            "blocks-own",
            "return star, s * (gradient.own @ y.Q + gradient.star @ y.M.swapaxes(-1, -2))",
            "return star, s * (gradient.own @ y.Q - gradient.star @ y.M.swapaxes(-1, -2))",
            "sign of the target's part in dQ",
        ),
        (
            "blocks-decay",
            "dM = limit.flow * star - limit.decay * y.M",
            "dM = limit.flow * star - 2 * limit.decay * y.M",
            "decay of M in blocks",
        ),
    ),
    *planted_in(
        "equations/blocks.py",
        (LIMITS,),
        (
            "blocks-jitter",
            "dQ = dQ + limit.jitter * blocks.share[:, None, None] * jnp.eye(Q.shape[-1])",
            "dQ = dQ + limit.jitter * (blocks.variance * blocks.share)[:, None, None] * jnp.eye(Q.shape[-1])",
            "private noise scaled with the variance of a block",
        ),
    ),
    *planted_in(
        "equations/mean_step.py",
        MAP,
        (
            "map-pairs",
            "extra = weights.norm * average.chi - jnp.where(weights.pairs, weights.single, 1.0) * pairs",
            "extra = weights.norm * average.chi - jnp.where(weights.pairs, 0.0, 1.0) * pairs",
            "1 − 1/n_b → 1 for pairs of samples",
        ),
        (
            "map-norm",
            "weights.norm * average.chi - jnp.where(weights.pairs, weights.single, 1.0)",
            "2 * weights.norm * average.chi - jnp.where(weights.pairs, weights.single, 1.0)",
            "χ doubled in the mean step",
        ),
        (
            "map-finite",
            "extra = extra + weights.single * self.samples.finite_dimension(now, seen)",
            "extra = extra - weights.single * self.samples.finite_dimension(now, seen)",
            "sign of the terms of a finite dimension",
        ),
        (
            "map-eta",
            "new_Q = with_all @ T.T + eta**2 * (extra + extra.T) / 2",
            "new_Q = with_all @ T.T + eta**2 * (extra + extra.T)",
            "½ of a symmetrised matrix",
        ),
    ),
    *planted_in(
        "equations/mean_step.py",
        RATIOS,
        (
            "map-ratio",
            "v = 3 / 8 * jnp.diagonal(norms)",
            "v = 1 / 8 * jnp.diagonal(norms)",
            "3/8 → 1/8 in the second-order term of Map",
        ),
        (
            "map-ratio-cross",
            "return Q * (1 + v[:, None] + v + norms / 4) - (Q_own + Q_own.T) / 2, M * (1 + v[:, None]) - M_own / 2",
            "return Q * (1 + v[:, None] + v - norms / 4) - (Q_own + Q_own.T) / 2, M * (1 + v[:, None]) - M_own / 2",
            "sign of Cov(Q_jj, Q_ll)",
        ),
        (
            "map-ratio-own",
            "(Q_own + Q_own.T) / 2, M * (1 + v[:, None]) - M_own / 2",
            "(Q_own + Q_own.T) / 2, M * (1 + v[:, None]) + M_own / 2",
            "sign of Cov(M, Q)",
        ),
        (
            "map-gamma",
            "gamma = eta**2 * norm * step.chi / 2",
            "gamma = eta**2 * norm * step.chi",
            "½ of Γ",
        ),
    ),
    *planted_in(
        "equations/mean_step.py",
        ("tests/test_plain_sgd.py::test_the_mean_step_of_spherical_rows", *RATIOS),
        (
            "map-normal",
            "normal = jnp.diagonal(average.phi) / jnp.diagonal(Q) if form.tangent else None",
            "normal = jnp.diagonal(average.phi) * jnp.diagonal(Q) if form.tangent else None",
            "φ_jj/Q_jj → φ_jj Q_jj",
        ),
        (
            "map-normal-pairs",
            "pairs = pairs - cross - cross.T + normal[:, None] * normal * Q",
            "pairs = pairs - cross - cross.T - normal[:, None] * normal * Q",
            "sign of the radial part of pairs",
        ),
    ),
    *planted_in(
        "equations/mean_step.py",
        ("tests/test_one_step_noise.py::test_the_band_of_one_giant_step",),
        (
            "map-spread",
            "return slopes.T @ y.spread @ slopes + kick",
            "return slopes @ y.spread @ slopes.T + kick",
            "transposed linearised map",
        ),
        (
            "map-difference",
            "(after(x + h) - after(x - h)) / (2 * DIFFERENCE), height)",
            "(after(x + h) - after(x - h)) / DIFFERENCE, height)",
            "2 of a central difference",
        ),
        (
            "map-kick",
            "units = pack(s[:, None] * s, jnp.broadcast_to(s[:, None], (p, k)), jnp.ones(p), trained)",
            "units = pack(s[:, None] + 0 * s, jnp.broadcast_to(s[:, None], (p, k)), jnp.ones(p), trained)",
            "scale of Q_jl by one row only",
        ),
    ),
    *planted_in(
        "equations/mean_step.py",
        (
            "tests/test_schedules.py::test_the_mean_of_a_nesterov_step_and_its_limit",
            "tests/test_schedules.py",
        ),
        (
            "map-scheduled-batch",
            "norm=self.weights.norm * fewer, single=self.weights.single * fewer",
            "norm=self.weights.norm * fewer, single=self.weights.single / fewer",
            "1/n_b of a scheduled batch",
        ),
    ),
    *planted_in(
        "equations/mean_step_in_blocks.py",
        BLOCK_MAP,
        (
            "block-map-pairs",
            "pairs = s * (own @ gradient.own.T + star @ gradient.star.T)",
            "pairs = own @ gradient.own.T + star @ gradient.star.T",
            "s_i² → s_i in pairs of samples",
        ),
        (
            "block-map-norm",
            "extra = weights.norm * (s * blocks.share[:, None, None]) * average.chi",
            "extra = weights.norm * blocks.share[:, None, None] * average.chi",
            "variance of a block in χ",
        ),
        (
            "block-map-keep",
            "new_Q = keep**2 * here.Q + cross + cross.swapaxes(1, 2) + eta**2 * extra",
            "new_Q = keep * here.Q + cross + cross.swapaxes(1, 2) + eta**2 * extra",
            "κ² → κ",
        ),
        (
            "block-map-lengths",
            "return self.several.variance[:, None, None] ** 2 * length",
            "return self.several.variance[:, None, None] * length",
            "s_i² → s_i of the lengths",
        ),
        (
            "block-map-trace",
            "- trace * at.mean.pair",
            "+ trace * at.mean.pair",
            "sign of a trace",
        ),
    ),
    *planted_in(
        "equations/sample_source.py",
        (
            "tests/test_plain_sgd.py::test_samples_come_back_as_their_pattern_says",
            "tests/test_inputs.py::test_full_batches_of_rows_are_a_plain_loop",
        ),
        (
            "source-sequence",
            "number = number % (spec.dataset // spec.batch)",
            "number = number % spec.dataset",
            "a set in sequence never comes back in time",
        ),
        (
            "source-repeat",
            "batch = _drawn(spec, keys, jnp.asarray(number) // spec.repeat, chunk)",
            "batch = _drawn(spec, keys, jnp.asarray(number), chunk)",
            "batches are not used again",
        ),
        (
            "source-reshuffled",
            "(batch % parts).astype(jnp.uint32) * np.uint32(spec.batch), batch // parts",
            "(batch % parts).astype(jnp.uint32) * np.uint32(spec.batch), batch",
            "cut anew before every batch",
        ),
    ),
    *planted_in(
        "equations/state.py",
        ("tests/test_one_step_noise.py::test_the_noise_of_one_step",),
        (
            "state-unpack",
            "upper + jnp.triu(upper, 1).T,",
            "upper,",
            "lower triangle dropped",
        ),
    ),
]
