"""Errors planted in the analysis: escape, recovery, phases, stability, thresholds, layers."""

from __future__ import annotations

from . import Mutant, planted_in

A = "src/twolayer/analysis"

MUTANTS: list[Mutant] = [
    *planted_in(
        "analysis/escape_formulas.py",
        (
            "tests/test_escape.py::test_the_average_over_starts_of_two_neurons",
            f"{A}/escape_formulas.py",
        ),
        (
            "quenched-curvature",
            "return (math.log1p(-T) + mean - curvature) / (2 * c)",
            "return (math.log1p(-T) + mean + curvature) / (2 * c)",
            "sign of the second-order term of quenched_time",
        ),
        (
            "quenched-spread",
            "tau, spread = p * (p - 1), 4 * p * (p - 1) * (dim - 1) / (dim + 2)",
            "tau, spread = p * (p - 1), 2 * p * (p - 1) * (dim - 1) / (dim + 2)",
            "spread of τ0 halved",
        ),
        (
            "quenched-tau",
            "b = (T * p * (p + 1) * dim - (1 - T) * tau) / (2 * p * dim * (1 - T))",
            "b = (T * p * (p + 1) * dim + (1 - T) * tau) / (2 * p * dim * (1 - T))",
            "sign of the overlaps between neurons",
        ),
        (
            "quenched-rate",
            "return (math.log1p(-T) + mean - curvature) / (2 * c)",
            "return (math.log1p(-T) + mean - curvature) / c",
            "2c → c",
        ),
    ),
    *planted_in(
        "analysis/escape_formulas.py",
        (
            "tests/test_escape.py::test_growth_rate_is_that_of_the_ode",
            f"{A}/escape_formulas.py",
        ),
        (
            "contraction",
            "return 1 + 1 / p + 4 / p**2 + noise / 2",
            "return 1 + 1 / p + 4 / p**2 + noise",
            "Δ/2 → Δ in C_p",
        ),
        (
            "contraction-p",
            "return 1 + 1 / p + 4 / p**2 + noise / 2",
            "return 1 + 1 / p + 2 / p**2 + noise / 2",
            "4/p² → 2/p² in C_p",
        ),
    ),
    *planted_in(
        "analysis/escape_formulas.py",
        (
            "tests/test_escape.py::test_the_noise_of_an_escape_is_that_of_single_samples",
            "tests/test_escape.py::test_noise_strength_is_the_variance_of_one_step",
        ),
        (
            "noise-strength",
            "return 4 * (10 - 6 / p + 8 / p**2 + noise)",
            "return 4 * (10 + 6 / p + 8 / p**2 + noise)",
            "sign of 6/p in V_p",
        ),
        (
            "cross-noise",
            "return 16 * (second + 2 * rho * third + rho**2 * fourth)",
            "return 16 * (second + rho * third + rho**2 * fourth)",
            "2ρ → ρ in W_p",
        ),
        (
            "cross-noise-power",
            "(p / 2 + 2) * (-2 / p) ** n / n",
            "(p / 2 + 1) * (-2 / p) ** n / n",
            "power in the generating function of W_p",
        ),
    ),
    *planted_in(
        "analysis/escape_formulas.py",
        (
            f"{A}/escape_formulas.py",
            f"{A}/escape.py",
            "tests/test_escape.py::test_single_neuron_against_the_ode",
        ),
        (
            "annealed",
            "return math.log((1 + 1 / p) * (T * dim + 1 - T) / 2) / (2 * c)",
            "return math.log((1 + 1 / p) * (T * dim + 1 + T) / 2) / (2 * c)",
            "1 − T → 1 + T",
        ),
        (
            "exact-limit",
            "c, limit = growth_of(1, noise, rho), 1 - rho * noise / (2 * (1 - 6 * rho))",
            "c, limit = growth_of(1, noise, rho), 1 - rho * noise / (1 - 6 * rho)",
            "2 in u∞",
        ),
        (
            "from-zero",
            "zero = float(2 / c * integrate.quad(special.dawsn, 0, x, limit=200)[0])",
            "zero = float(1 / c * integrate.quad(special.dawsn, 0, x, limit=200)[0])",
            "2/c → 1/c from zero",
        ),
        (
            "mean-path-fade",
            "fade = 8 / p * (1 - 8 * rho / p)",
            "fade = 8 / p * (1 - 4 * rho / p)",
            "8ρ/p → 4ρ/p in h",
        ),
        (
            "mean-path",
            "return 2 * ((1 + gain) * math.exp(2 * c * t) - gain) - share * (lasting + kick * made) - level",
            "return 2 * ((1 + gain) * math.exp(2 * c * t) + gain) - share * (lasting + kick * made) - level",
            "sign of s in u",
        ),
    ),
    *planted_in(
        "analysis/escape_formulas.py",
        (f"{A}/escape.py", "tests/test_escape.py"),
        (
            "escape-correction",
            "return float(ode - np.log1p(s) / (2 * c)), None",
            "return float(ode + np.log1p(s) / (2 * c)), None",
            "sign of the shift by noise",
        ),
    ),
    *planted_in(
        "analysis/escape.py",
        (f"{A}/escape.py", "tests/test_escape.py"),
        (
            "escape-linear",
            "level = T * p * (p + 1) * dim + (2 * p * mu - tau) * (1 - T)",
            "level = T * p * (p + 1) * dim + (2 * p * mu + tau) * (1 - T)",
            "sign of τ0 at sampled starts",
        ),
    ),
    *planted_in(
        "analysis/escape_setting.py",
        (
            "tests/test_escape.py::test_growth_rate_is_that_of_the_ode",
            "tests/test_escape_cases.py::test_other_units_of_phase_retrieval",
        ),
        (
            "rate-ratio",
            "rho = algorithm.lr.coefficient / (divisor * batch)",
            "rho = algorithm.lr.coefficient / divisor",
            "batch in ρ",
        ),
        (
            "retrieval-unit",
            "problem.p, problem.noise / b**2, b**2 * problem.divisor / problem.p",
            "problem.p, problem.noise / b**2, b * problem.divisor / problem.p",
            "b² → b in the unit of time",
        ),
    ),
    *planted_in(
        "analysis/optimal_lr.py",
        (
            f"{A}/optimal_lr.py",
            "tests/test_escape.py::test_optimal_rate_minimises_the_steps",
            "tests/test_escape_cases.py::test_best_rates_by_hand",
        ),
        (
            "optimal-half",
            "return RateWindow(largest / 2, largest, True)",
            "return RateWindow(largest, largest, True)",
            "½ of the best rate",
        ),
        (
            "optimal-unequal",
            "fewest = int(np.argmax(gain**2 / loss))",
            "fewest = int(np.argmax(gain / loss))",
            "which neuron escapes first",
        ),
        (
            "stationary",
            "return size * rho * noise / (1 - 6 * rho)",
            "return size * rho * noise / (1 + 6 * rho)",
            "sign in the stationary risk",
        ),
    ),
    *planted_in(
        "analysis/mediocrity.py",
        (
            f"{A}/mediocrity.py",
            "tests/test_escape_cases.py::test_the_flat_dynamics_is_that_of_the_averages",
            "tests/test_escape_cases.py::test_overlaps_between_neurons_decay_and_are_kicked",
            "tests/test_escape_cases.py::test_the_risk_and_the_norms_feel_overlaps_to_second_order",
        ),
        (
            "flat-own",
            "alpha = a * (own.curvature * (h.mean - others) - share * own.square_curved / 2)",
            "alpha = a * (own.curvature * (h.mean - others) - share * own.square_curved)",
            "½ of what a neuron sees of itself",
        ),
        (
            "flat-norm",
            "alpha = alpha - self.drift(q, a, none, none)[0] / (2 * q)",
            "alpha = alpha - self.drift(q, a, none, none)[0] / q",
            "radial part of the growth",
        ),
        (
            "flat-variance",
            "return np.asarray(label - 2 * product + student + self.noise * b0)",
            "return np.asarray(label - product + student + self.noise * b0)",
            "2 of E[h f] in E[σ'² e²]",
        ),
        (
            "flat-kicks",
            "curved = np.diagonal(vectors.T @ h.of_square @ vectors)",
            "curved = 2 * np.diagonal(vectors.T @ h.of_square @ vectors)",
            "curvature of h² in V",
        ),
        (
            "flat-between",
            "+ 2 * share[j] * share[l] * doubled**2",
            "+ share[j] * share[l] * doubled**2",
            "both own parts of e² in the decay of Q_jl",
        ),
        (
            "flat-bent",
            "+ own.radial_curved * bent / 2",
            "+ own.radial_curved * bent",
            "½ of the second order of a norm",
        ),
    ),
    *planted_in(
        "analysis/alike_neurons.py",
        (
            f"{A}/alike_neurons.py",
            "tests/test_escape.py::test_identical_neurons_move_as_the_ode_says",
        ),
        (
            "identical-product",
            "+ self.cross @ (n[:, None] * other.cross)",
            "+ self.cross @ other.cross",
            "n of a product in the algebra",
        ),
        (
            "identical-length",
            "return np.asarray(flow + 4 * self.rho * (square * o + 4 * t1 * a + 8 * c))",
            "return np.asarray(flow + 2 * self.rho * (square * o + 4 * t1 * a + 8 * c))",
            "4ρ → 2ρ",
        ),
        (
            "identical-radial",
            'dq = second("cross") - q * (norm[:, None] + norm[None, :]) / 2',
            'dq = second("cross") - q * (norm[:, None] + norm[None, :]) / 4',
            "radial part of q",
        ),
    ),
    *planted_in(
        "analysis/phases.py",
        (
            "tests/test_phase_diagram.py::test_exponents_of_the_plane",
            "tests/test_phase_diagram.py::test_lines_points_and_samples",
            f"{A}/phases.py",
        ),
        (
            "phase-noise-order",
            "return max(self.ell / 2, 1.0)",
            "return max(self.ell / 2 - 0.5, 1.0)",
            "ℓ/2 → (ℓ − 1)/2",
        ),
        (
            "phase-optimum",
            "return max(self.ell - 1.0, 1.0) if self.free else self.noise_order",
            "return max(self.ell - 2.0, 1.0) if self.free else self.noise_order",
            "ℓ − 1 → ℓ − 2 in the optimal μ",
        ),
        (
            "phase-delta",
            "return self.noise_order - min(_mu(mu), self.optimal_mu)",
            "return self.noise_order + min(_mu(mu), self.optimal_mu)",
            "sign of μ in the optimal δ",
        ),
    ),
    *planted_in(
        "analysis/recovery_steps.py",
        (
            "tests/test_phase_diagram.py::test_prefactors_of_the_sheet",
            "tests/test_phase_diagram.py::test_closed_solutions_of_the_drift",
            "tests/test_phase_diagram.py::test_the_unstable_point_separates_starts",
        ),
        (
            "recovery-effective",
            "growth, contraction = gamma * drift / (1 - own), x / (1 - own) ** 2",
            "growth, contraction = gamma * drift / (1 + own), x / (1 - own) ** 2",
            "sign of the self-interaction",
        ),
        (
            "recovery-noise",
            "x = algorithm.lr(dim) ** 2 * noise * dim / algorithm.batch_at(dim)",
            "x = algorithm.lr(dim) * noise * dim / algorithm.batch_at(dim)",
            "γ² → γ in x",
        ),
        (
            "recovery-unstable",
            "unstable = (contraction / (2 * growth)) ** (1 / order) if ell > 2 else 0.0",
            "unstable = (contraction / growth) ** (1 / order) if ell > 2 else 0.0",
            "2 in the unstable point",
        ),
        (
            "recovery-order",
            "steps = (first - last) / (order * growth)",
            "steps = (first - last) / growth",
            "ℓ − 2 dropped",
        ),
    ),
    *planted_in(
        "analysis/small_overlap.py",
        (
            "tests/test_phase_diagram.py::test_prefactors_of_the_sheet",
            "tests/test_phase_diagram.py::test_activations_decide_about_order_and_self_interaction",
        ),
        (
            "small-drift",
            "return Expansion(ell, ell * float(c[ell]) * size,",
            "return Expansion(ell, float(c[ell]) * size,",
            "ℓ of the drift",
        ),
        (
            "small-kappa",
            "kappa = float((w * (x**2 - 1) * sigma.on_host(x) ** 2).sum()) / 2",
            "kappa = float((w * (x**2 + 1) * sigma.on_host(x) ** 2).sum()) / 2",
            "sign in κ",
        ),
    ),
    *planted_in(
        "analysis/population_loss.py",
        (
            f"{A}/population_loss.py",
            "tests/test_recovery.py",
            "tests/test_escape.py::test_the_population_loss_of_one_neuron",
        ),
        (
            "critical-alpha",
            "return math.log(n) if ell == 2 else float(n) ** max(ell - 2, 0)",
            "return math.log(n) if ell == 2 else float(n) ** max(ell - 1, 0)",
            "N^{k−2} → N^{k−1}",
        ),
        (
            "population-flow",
            "free = -self.derivative(x) * (1 - x**2)",
            "free = -self.derivative(x) * (1 + x**2)",
            "sign on the sphere",
        ),
        (
            "population-step",
            "return np.asarray(free - step / 2 * self.noise(x) * x if step else free)",
            "return np.asarray(free - step * self.noise(x) * x if step else free)",
            "½ of what a step costs",
        ),
        (
            "population-growth",
            "return float(k * self.products[k])",
            "return float(self.products[k])",
            "k of the growth",
        ),
        (
            "largest-step",
            "float(2 * self.growth * n ** (-(k - 2) / 2) / self.noise())",
            "float(2 * self.growth * n ** (-(k - 1) / 2) / self.noise())",
            "power of N in the largest step",
        ),
    ),
    *planted_in(
        "analysis/second_layer.py",
        (
            "tests/test_second_layer.py::test_the_fit_is_the_best_second_layer",
            "tests/test_second_layer.py::test_what_a_sample_costs_by_parts",
            f"{A}/second_layer.py",
        ),
        (
            "layer-half",
            'excess = (square - 2 * (c * b).sum(-1) + np.einsum("nj,njl,nl->n", c, K, c)) / 2',
            'excess = (square - (c * b).sum(-1) + np.einsum("nj,njl,nl->n", c, K, c)) / 2',
            "2 of the mixed term of the risk",
        ),
        (
            "layer-trace",
            "return float(np.trace(K @ inverse @ V @ inverse) / 2 + tau * c @ inverse @ drag)",
            "return float(np.trace(K @ inverse @ V @ inverse) + tau * c @ inverse @ drag)",
            "½ of the cost of a sample",
        ),
        (
            "layer-ridge",
            "tau = rho * problem.divisor**2",
            "tau = rho * problem.divisor",
            "N² → N of the ridge",
        ),
        (
            "layer-drag",
            "+ tau * c @ inverse @ drag)",
            "- tau * c @ inverse @ drag)",
            "sign of the ridge's part",
        ),
    ),
    *planted_in(
        "analysis/particle_velocity.py",
        (
            f"{A}/particle_velocity.py",
            "tests/test_meanfield.py::test_the_parts_of_the_ode_add_up",
        ),
        (
            "velocity-q",
            "q=2 * every[1][n:] * ds,",
            "q=every[1][n:] * ds,",
            "2 of dq = 2 s ds",
        ),
        (
            "velocity-variation",
            "variation=-layer * da,",
            "variation=layer * da,",
            "sign of δR/δμ",
        ),
    ),
    *planted_in(
        "analysis/stability/critical.py",
        (
            "tests/test_stability.py::test_the_critical_rate_in_closed_form",
            "tests/test_stability.py::test_the_critical_rate_follows_batch_and_normalisation",
            "tests/test_stability.py::test_the_critical_rate_with_blocks",
        ),
        ("critical-pull", "pull = pull + pull.T", "pull = 2.2 * pull", "JC + CJ"),
        (
            "critical-divisor",
            "return Scaling(problem.divisor**2 / (mu * spread), -1.0) * law",
            "return Scaling(problem.divisor / (mu * spread), -1.0) * law",
            "N² → N",
        ),
        (
            "critical-spread",
            "return Scaling(problem.divisor**2 / (mu * spread), -1.0) * law",
            "return Scaling(problem.divisor**2 / mu, -1.0) * law",
            "mean variance dropped",
        ),
        (
            "critical-basis",
            "size = np.where(rows == columns, 1.0, np.sqrt(0.5))",
            "size = np.where(rows == columns, 1.0, 1.0)",
            "basis of symmetric matrices",
        ),
    ),
    *planted_in(
        "analysis/stability/linear.py",
        (
            "tests/test_stability.py::test_kinks_at_perfect_learning",
            "tests/test_stability.py::test_the_linearisation_extrapolates_roots",
        ),
        (
            "linear-richardson",
            "return (4 * (2 * inner - middle) - (2 * middle - outer)) / 3",
            "return (2 * (2 * inner - middle) - (2 * middle - outer)) / 1",
            "weights of Richardson's extrapolation",
        ),
    ),
    *planted_in(
        "analysis/stability/points.py",
        (
            f"{A}/stability/points.py",
            "tests/test_stability.py::test_phase_retrieval_free",
        ),
        (
            "points-lasts",
            "return math.log(dim) / (2 * self.rate) + constant if self.unstable else math.inf",
            "return math.log(dim) / self.rate + constant if self.unstable else math.inf",
            "2κ → κ of a plateau",
        ),
    ),
    *planted_in(
        "analysis/thresholds/state_evolution.py",
        (
            "tests/test_thresholds.py::test_state_evolution_of_a_product",
            "tests/test_thresholds.py::test_the_posterior_of_several_directions",
        ),
        (
            "evolution-inside",
            "np.minimum(values / (1 + values), FULL)",
            "np.minimum(values / (1 + 2 * values), FULL)",
            "q̂/(1 + q̂)",
        ),
        (
            "evolution-push",
            "return np.asarray(inverse @ self.average(q, lambda u: u) @ inverse)",
            "return np.asarray(self.average(q, lambda u: u) @ inverse)",
            "V⁻¹ dropped",
        ),
    ),
    *planted_in(
        "analysis/thresholds/one_direction.py",
        (
            "tests/test_thresholds.py::test_linear_labels_without_noise_are_linear_equations",
            "tests/test_thresholds.py::test_one_direction_of_linear_labels_in_closed_form",
        ),
        (
            "curve-entropy",
            "return (q + math.log1p(-q) + alpha * gain) / 2",
            "return (q - math.log1p(-q) + alpha * gain) / 2",
            "sign of ln(1 − q)",
        ),
        (
            "curve-rate",
            "return (x if trivial else 1.0) / (table(1 - v ** (1 / POWER)) * v ** (1 - growth))",
            "return (x if trivial else 1.0) / (table(1 - v ** (1 / POWER)) * v ** (2 - growth))",
            "power of 1 − q",
        ),
    ),
    *planted_in(
        "analysis/thresholds/alpha_c.py",
        ("tests/test_thresholds.py::test_weak_recovery_of_one_direction",),
        (
            "alpha-inverse",
            "alpha = 0.0 if trivial else 1 / second if seen else np.inf",
            "alpha = 0.0 if trivial else second if seen else np.inf",
            "1/ρ → ρ",
        ),
    ),
]
