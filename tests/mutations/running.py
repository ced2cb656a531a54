"""Errors planted in verdicts, finite size, labels, clocks and what else stands between a description and a number."""

from __future__ import annotations

from . import Mutant, planted_in

VERDICTS = "tests/test_verdicts.py"

MUTANTS: list[Mutant] = [
    *planted_in(
        "numerics/verdict.py",
        (VERDICTS,),
        (
            "trial-seen",
            "return self.deviation + self.tolerance",
            "return self.deviation",
            "tolerance dropped from what would be seen",
        ),
        (
            "trial-deviation",
            "return np.abs(self.difference)",
            "return self.difference",
            "deviations downwards do not count",
        ),
        (
            "trial-noise",
            "return self.limit * np.asarray(self.error, float)",
            "return np.asarray(self.error, float)",
            "one standard error instead of c",
        ),
        (
            "trial-allowance",
            "return np.asarray(self.allowance, float) + self.noise",
            "return self.noise",
            "allowance dropped",
        ),
        (
            "trial-differ",
            "if (self.deviation > self.tolerance).any():",
            "if (self.deviation > self.tolerance).all():",
            "one deviating entry among many is no difference",
        ),
        (
            "trial-decisive",
            "return AGREE if self.decisive.all() else UNDECIDED",
            "return AGREE if self.decisive.any() else UNDECIDED",
            "one decisive entry among many is agreement",
        ),
    ),
    *planted_in(
        "running/judging.py",
        (VERDICTS,),
        (
            "judge-share",
            "trial = Trial(mean, 0.0, error, resolution * size, room + rounding, limit)",
            "trial = Trial(mean, 0.0, error, 3 * resolution * size, room + rounding, limit)",
            '"agree" three times looser',
        ),
        (
            "judge-noise",
            "trial = Trial(mean, 0.0, error, resolution * size, room + rounding, limit)",
            "trial = Trial(mean, 0.0, 2 * error, resolution * size, room + rounding, limit)",
            "standard errors doubled",
        ),
        (
            "judge-resolution",
            "reason=_explain(trial, times, n, resolution),",
            "reason=_explain(trial, times, n, SHARE),",
            "seeds and dimensions that would decide, for another resolution",
        ),
        (
            "judge-shift",
            "mean = deviation.mean + known.shift",
            "mean = deviation.mean - known.shift",
            "sign of a known shift",
        ),
        (
            "judge-own-error",
            "error = np.hypot(deviation.error, own.get(name, 0.0))",
            "error = deviation.error + 0 * own.get(name, 0.0)",
            "errors of the theory dropped",
        ),
        (
            "judge-freedom",
            "found[name] = Deviation(mean, spread / np.sqrt(n), path_length(correlation), loud.sum(axis=0))",
            "found[name] = Deviation(mean, spread / n, path_length(correlation), loud.sum(axis=0))",
            "√n → n in a standard error",
        ),
        (
            "judge-variance",
            "spread = np.sqrt((gap**2).sum(axis=0) / (n - 1))",
            "spread = np.sqrt((gap**2).sum(axis=0) / (2 * n - 2))",
            "variance halved",
        ),
        (
            "judge-unit",
            "gap = mine[name] - at_times(theory.time.values, other[name], times / unit)",
            "gap = mine[name] - at_times(theory.time.values, other[name], times * unit)",
            "unit of time the wrong way round",
        ),
        (
            "judge-lost",
            "lost = 0.0 if dim is None else natural * dim**-0.5",
            "lost = 0.0 if dim is None else natural / dim",
            "d^(−1/2) → 1/d",
        ),
        (
            "judge-room",
            "room = np.broadcast_to(known.allowance + averages * size, mean.shape)",
            "room = np.broadcast_to(known.allowance + 0 * averages * size, mean.shape)",
            "error of the averages not allowed for",
        ),
        (
            "judge-entries",
            'found |= {f"M{r + 1}": M[..., r] for r in range(M.shape[-1])}',
            'found |= {f"M{r + 1}": M[..., 0] for r in range(M.shape[-1])}',
            "index of a direction",
        ),
    ),
    *planted_in(
        "running/finite_size.py",
        (VERDICTS, "tests/test_compare.py::test_what_finite_size_adds"),
        (
            "finite-noise",
            "noise = up * last_error + np.hypot(up * last_error, down * before_error)",
            "noise = 0 * up * last_error",
            "allowance for finite size without its noise",
        ),
        (
            "finite-ratio",
            "up, down = r / (1 - r), r * s / (1 - s)",
            "up, down = r / (1 + r), r * s / (1 - s)",
            "sign in r/(1 − r)",
        ),
        (
            "finite-below",
            "below = slow * np.abs(near.mean) + r * np.abs(near.mean - s * far.mean) + 2 * noise",
            "below = slow * np.abs(near.mean) + r * np.abs(near.mean + s * far.mean) + 2 * noise",
            "sign of the extrapolation from below",
        ),
        (
            "finite-extrapolate",
            "here, below = (values[0] - r * values[1]) / (1 - r), (values[1] - s * values[2]) / (1 - s)",
            "here, below = (values[0] + r * values[1]) / (1 + r), (values[1] - s * values[2]) / (1 - s)",
            "Richardson's extrapolation",
        ),
    ),
    *planted_in(
        "running/finite_size.py",
        (
            "tests/test_compare.py::test_exponents_of_finite_size_are_those_of_the_mean_step",
            VERDICTS,
        ),
        (
            "finite-exponent",
            '"pure noise": (1 - mu - delta, 2 * delta + mu - 1),',
            '"pure noise": (1 - mu - delta, delta + mu),',
            "exponent of the finite steps in pure noise",
        ),
    ),
    *planted_in(
        "numerics/significance.py",
        ("src/twolayer/numerics/significance.py", "tests/test_statistics.py"),
        (
            "significance-sides",
            "tail = level / (2 * count)",
            "tail = level / count",
            "one side instead of two",
        ),
        (
            "significance-path",
            "one + kappa / np.pi * np.exp(tail)",
            "one + kappa * np.exp(tail)",
            "κ/π → κ",
        ),
    ),
    *planted_in(
        "task/labels.py",
        (
            "tests/test_labels.py::test_laws_are_those_of_their_names",
            "tests/test_labels.py::test_flips_and_noise_come_from_one_normal_and_are_independent",
        ),
        (
            "labels-uniform",
            "return math.sqrt(3) * erf(x / math.sqrt(2))",
            "return 3 * erf(x / math.sqrt(2))",
            "√3 → 3 of uniform noise",
        ),
        (
            "labels-flips",
            "right = jnp.where(flipped, (q - below) / q, ndtr(-x) / (1 - q))",
            "right = jnp.where(flipped, q - below, ndtr(-x))",
            "flipped labels not renormalised",
        ),
        (
            "labels-laplace",
            "return jnp.sign(x) * (-math.log(2) - log_ndtr(-size)) / math.sqrt(2)",
            "return jnp.sign(x) * (-math.log(2) - log_ndtr(-size))",
            "√2 of Laplace noise",
        ),
    ),
    *planted_in(
        "task/rules.py",
        (
            "tests/test_rules.py::test_clipped_averages_of_a_linear_neuron_in_closed_form",
            "tests/test_rules.py::test_noise_in_closed_form_is_that_of_its_nodes",
        ),
        (
            "rules-clip",
            "(mean**2 + width**2) * inside + 2 * mean * slope",
            "(mean**2 + width**2) * inside + mean * slope",
            "2 of a clipped second moment",
        ),
        (
            "rules-clip-beyond",
            "return mean * inside + slope + c * (beyond - below)",
            "return mean * inside + slope + c * (beyond + below)",
            "sign of the lower cut",
        ),
    ),
    *planted_in(
        "task/losses.py",
        (
            "tests/test_brute_averages.py::test_averages_are_integrals_over_the_fields[logistic]",
        ),
        (
            "loss-logistic",
            'Loss("logistic", lambda y, f: y * jax.nn.sigmoid(-y * f)',
            'Loss("logistic", lambda y, f: y * jax.nn.sigmoid(y * f)',
            "sign in the logistic residual",
        ),
    ),
    *planted_in(
        "task/losses.py",
        ("tests/test_labels.py::test_averages_are_those_of_samples", VERDICTS),
        (
            "loss-hinge",
            'Loss("hinge", lambda y, f: y * (y * f < 1), None',
            'Loss("hinge", lambda y, f: y * (y * f < 0), None',
            "margin of the hinge loss",
        ),
        (
            "loss-huber",
            "return jax.numpy.where(size < delta, size**2 / 2, delta * (size - delta / 2))",
            "return jax.numpy.where(size < delta, size**2 / 2, delta * size)",
            "δ/2 of the Huber loss",
        ),
    ),
    *planted_in(
        "task/schedule_factors.py",
        ("tests/test_schedules.py",),
        (
            "clock-batch",
            "n = n * course(clock)",
            "n = n / course(clock)",
            "batches shrink where they should grow",
        ),
    ),
    *planted_in(
        "numerics/wishart.py",
        (
            "tests/test_plain_sgd.py::test_a_few_steps_have_the_law_of_the_definition[plain, spherical-Chain]",
            "tests/test_random.py",
            VERDICTS,
        ),
        (
            "wishart-degrees",
            "dof = [self.columns - i for i in range(self.rows)]",
            "dof = [self.columns for i in range(self.rows)]",
            "degrees of freedom of Bartlett's factor",
        ),
        (
            "wishart-quantile",
            "+ 2 / 3 * (x**2 - 1)",
            "+ 1 / 3 * (x**2 - 1)",
            "Cornish–Fisher series",
        ),
    ),
    *planted_in(
        "loops/runge_kutta.py",
        (
            "tests/test_ode.py::test_phase_retrieval_has_the_exact_solution",
            "tests/test_ode.py::test_plain_norm_relaxes_to_its_fixed_point",
            VERDICTS,
        ),
        (
            "integrator-error",
            "-22 / 525, 1 / 40])",
            "-22 / 525, 1 / 30])",
            "error weights of the integrator, 1/40 → 1/30",
        ),
        (
            "integrator-weights",
            "A[6, :6] = [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84]",
            "A[6, :6] = [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 80]",
            "weights of the integrator",
        ),
        (
            "integrator-stage",
            "A[3, :3] = [44 / 45, -56 / 15, 32 / 9]",
            "A[3, :3] = [44 / 45, -56 / 15, 31 / 9]",
            "a stage of the integrator",
        ),
        (
            "integrator-dense",
            "[0, -282668133 / 205662961, 2019193451 / 616988883, -1453857185 / 822651844],",
            "[0, 282668133 / 205662961, 2019193451 / 616988883, -1453857185 / 822651844],",
            "sign in the dense output",
        ),
    ),
    *planted_in(
        "loops/stopping.py",
        (
            "tests/test_map.py::test_thresholds_and_divergence_are_seen",
            "tests/test_ode.py::test_until_finds_the_crossing",
        ),
        (
            "stop-part",
            "part = jnp.where(gap == 0, 1.0, (lane.watched - watch.level) / jnp.where(gap == 0, 1.0, gap))",
            "part = jnp.where(gap == 0, 1.0, 0.0 * gap)",
            "crossings are not interpolated",
        ),
        (
            "stop-risk",
            'return excess + engine.irreducible(noise) if quantity == "risk" else excess',
            'return excess - engine.irreducible(noise) if quantity == "risk" else excess',
            "sign of the noise in a watched risk",
        ),
    ),
    *planted_in(
        "loops/adagrad.py",
        ("tests/test_limit_options.py::test_adagrad_slows_down_as_long_runs_do",),
        (
            "adagrad-rate",
            "f = 1 / jnp.sqrt(self.b**2 + y.more)",
            "f = 1 / jnp.sqrt(self.b + y.more)",
            "b² → b",
        ),
    ),
    *planted_in(
        "task/clocks.py",
        (
            "src/twolayer/task/clocks.py",
            "tests/test_schedules.py",
            "tests/test_solve.py",
        ),
        (
            "clock-step",
            "return self.algorithm.lr.plain / self.problem.divisor",
            "return self.algorithm.lr.plain / self.problem.p",
            "N → p in the time of a step",
        ),
    ),
    *planted_in(
        "files/results.py",
        ("tests/test_strangers.py::test_filters_that_hdf5_does_not_bring_are_refused",),
        (
            "filters",
            "or filters != [x for x in FILTERS if x in filters]",
            "or False",
            "the HDF5 filter check",
        ),
    ),
    *planted_in(
        "sweeps/planning.py",
        ("tests/test_sweep.py", "tests/test_sweep_store.py"),
        (
            "sweep-blocks",
            "(np.diff(absent // SEED_BLOCK) > 0)",
            "(np.diff(absent // SEED_BLOCK) > 9)",
            "a unit may straddle two blocks of seeds",
        ),
    ),
    *planted_in(
        "analysis/escape_formulas.py",
        ("tests/test_escape.py::test_the_default_threshold_stays_within_its_bounds",),
        (
            "escape-least",
            "return min(max(math.ceil(1000 * least) / 1000, low), high)",
            "return min(math.ceil(1000 * least) / 1000, high)",
            "lower bound of the default threshold of twolayer escape",
        ),
    ),
]
