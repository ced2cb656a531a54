"""Errors planted in the averages."""

from __future__ import annotations

from . import Mutant, planted_in

AVERAGES = "tests/test_brute_averages.py"
CORNERS = "tests/test_battery.py::test_corners_in_which_stated_errors_were_too_small"


def brute(*cases: str) -> tuple[str, ...]:
    """Integrals over the fields in NumPy, of some tasks."""
    return tuple(
        f"{AVERAGES}::test_averages_are_integrals_over_the_fields[{case}]"
        for case in cases
    )


MUTANTS: list[Mutant] = [
    *planted_in(
        "gaussian/linear_rules.py",
        (
            "tests/test_order_parameters.py::test_rules_that_are_linear_in_e_are_told_from_others",
        ),
        (
            "linear-share",
            "share = (moved - fixed) / first",
            "share = moved / first",
            "fixed weights of a push left in the share of a",
        ),
        (
            "linear-far",
            "RESIDUALS = 8.0",
            "RESIDUALS = 2.0",
            "decades of the residuals at which a rule is tried",
        ),
    ),
    *planted_in(
        "gaussian/rectifier.py",
        brute("relu, polynomial"),
        (
            "relu-mean-density",
            "return mean * above + width * density, above, density",
            "return mean * above - width * density, above, density",
            "sign of the density in E[max(x, 0)]",
        ),
    ),
    *planted_in(
        "gaussian/rectifier.py",
        brute("relu teacher"),
        (
            "relu-angle-of-opposite",
            "ff = same * (sine + (math.pi - theta) * c12) - opposite",
            "ff = same * (sine + (math.pi + theta) * c12) - opposite",
            "π − θ → π + θ in E[σσ]",
        ),
        (
            "relu-kinks-in-hd",
            "return Pair(ff / TWO_PI, dd / TWO_PI, kinks * sine / (TWO_PI * c11))",
            "return Pair(ff / TWO_PI, dd / TWO_PI, kinks * sine / (TWO_PI * c22))",
            "C11 → C22 in E[δ σ]",
        ),
        (
            "relu-orthant-of-three",
            "return 1 / 8 + sum(arcsine(r) for r in correlations) / (4 * math.pi)",
            "return 1 / 8 - sum(arcsine(r) for r in correlations) / (4 * math.pi)",
            "sign in the orthant of three fields",
        ),
        (
            "relu-own-square",
            "square = (math.pi - theta + sine * R) / TWO_PI",
            "square = (math.pi - theta - sine * R) / TWO_PI",
            "sign in E[H σ²]",
        ),
        (
            "relu-pairs-weight",
            "rest = squares + 2 * (own + own.T) - 2 * (ends + ends.T) - 2 * pairs",
            "rest = squares + 2 * (own + own.T) - 2 * (ends + ends.T) - pairs",
            "doubly counted pairs once instead of twice",
        ),
        (
            "relu-three-edges",
            "edges = [jax.lax.rsqrt(jnp.maximum(1 - r**2, 1e-14)) / (2 * TWO_PI) for r in (xy, xz, yz)]",
            "edges = [jax.lax.rsqrt(jnp.maximum(1 - r**2, 1e-14)) / (3 * TWO_PI) for r in (xy, xz, yz)]",
            "factor of the edges of three fields",
        ),
    ),
    *planted_in(
        "gaussian/rectifier.py",
        brute("relu, signed ridges"),
        (
            "relu-orthant-start",
            "return 1 / 16 + ((density * chance) @ dt).sum(0)",
            "return 1 / 8 + ((density * chance) @ dt).sum(0)",
            "P4 without correlations",
        ),
        (
            "relu-boundary",
            "return qx * (sy - xy * sx) + qy * (sx - xy * sy)",
            "return qx * (sy - xy * sx) + qy * (sx + xy * sy)",
            "sign in the coefficient of a boundary",
        ),
        (
            "relu-given-zero",
            "return 0.25 + sign[x, m] * sign[x, n] * arcsine",
            "return 0.25 - sign[x, m] * sign[x, n] * arcsine",
            "sign of the arcsine of a quadrant",
        ),
        (
            "relu-orthant-measure",
            "s, dt = (1 - u) ** 4, 4 * (1 - u) ** 3 * weight",
            "s, dt = (1 - u) ** 4, 3 * (1 - u) ** 3 * weight",
            "measure of the coupling",
        ),
        (
            "relu-sets-twice",
            "share = jnp.where((S[y] < p) & used, 2 * v[S[m]] * v[S[n]] * value, 0.0)",
            "share = jnp.where((S[y] < p) & used, v[S[m]] * v[S[n]] * value, 0.0)",
            "both orders of two rectifiers",
        ),
    ),
    *planted_in(
        "gaussian/rectifier.py",
        brute("leaky student, relu teacher"),
        (
            "rectifier-left-of-chi",
            "slopes = jnp.asarray([self.right, self.left])",
            "slopes = jnp.asarray([self.right, -self.left])",
            "left slope of rectifiers in χ",
        ),
        (
            "rectifier-opposite",
            "opposite = self.right * other.left + self.left * other.right",
            "opposite = self.right * other.left - self.left * other.right",
            "sign of the slopes on opposite sides",
        ),
        (
            "rectifier-left-half",
            "halves = jnp.concatenate([self.right * weights[:p], -self.left * weights[:p], weights[p:]])",
            "halves = jnp.concatenate([self.right * weights[:p], self.left * weights[:p], weights[p:]])",
            "σ as r σ₊(λ) + l σ₊(−λ) in χ",
        ),
    ),
    *planted_in(
        "gaussian/rectifier.py",
        brute("relu, polynomial"),
        (
            "rectifier-single-bend",
            "kink = self.right - self.left\n        return Single(self.left * mean + kink * value",
            "kink = self.right + 2 * self.left + 0.1\n        return Single(self.left * mean + kink * value",
            "size of the kink at one field",
        ),
        (
            "rectifier-width",
            "bend = density / jnp.where(width > 0, width, 1.0)",
            "bend = density * jnp.where(width > 0, width, 1.0)",
            "density at the kink times the width instead of over it",
        ),
    ),
    *planted_in(
        "gaussian/rectifier.py",
        (
            "tests/test_meanfield.py::test_hermite_coefficients_of_a_field_in_closed_form_and_by_quadrature",
        ),
        (
            "rectifier-ladder",
            "steps = kink * density * orthonormal(-x, orders - 1) / np.sqrt(count)",
            "steps = kink * density * orthonormal(x, orders - 1) / np.sqrt(count)",
            "sign of the place of the step",
        ),
    ),
    *planted_in(
        "gaussian/erf.py",
        brute("erf at nodes"),
        (
            "erf-slope",
            "slope = math.sqrt(TWO_OVER_PI) * jnp.exp(-(mean**2) / (2 * wide)) / jnp.sqrt(wide)\n",
            "slope = math.sqrt(TWO_OVER_PI) * jnp.exp(-(mean**2) / wide) / jnp.sqrt(wide)\n",
            "width of the slope of a smeared erf",
        ),
        (
            "erf-value",
            "value = error_function(mean / jnp.sqrt(2 * wide))",
            "value = error_function(mean / jnp.sqrt(wide))",
            "√2 in a smeared erf",
        ),
        (
            "erf-bend",
            "return Single(value, slope, -mean / wide * slope)",
            "return Single(value, slope, mean / wide * slope)",
            "sign of E[σ'']",
        ),
        (
            "erf-nodes-cross",
            "total = total - 2 * student * (t.weights * t.h * f) @ density",
            "total = total - student * (t.weights * t.h * f) @ density",
            "2 of the mixed term h f in χ",
        ),
        (
            "erf-nodes-spread",
            'spread = jnp.diagonal(perp) - jnp.einsum("mi,ij,mj->m", to, inverse, to)',
            'spread = jnp.diagonal(perp) + jnp.einsum("mi,ij,mj->m", to, inverse, to)',
            "sign of the tilted variance",
        ),
        (
            "erf-nodes-tilt",
            "tilted = mean - shift @ to.T",
            "tilted = mean + shift @ to.T",
            "sign of the tilted mean",
        ),
    ),
    *planted_in(
        "gaussian/erf.py",
        brute("erf committee"),
        (
            "erf-pair-dd",
            "dd = TWO_OVER_PI / jnp.sqrt(wide - c12**2)",
            "dd = TWO_OVER_PI / jnp.sqrt(wide + c12**2)",
            "sign in Λ of two erf",
        ),
        (
            "erf-pair-hd",
            "return Pair(ff, dd, -dd * c12 / (1 + c11))",
            "return Pair(ff, dd, -dd * c12 / (1 + c22))",
            "C11 → C22 in E[σ''σ]",
        ),
        (
            "erf-four-determinant",
            "determinant = jj * ll - jl**2",
            "determinant = jj * ll + jl**2",
            "sign in a determinant of χ",
        ),
        (
            "erf-four-u",
            "u, v = (ll * cj - jl * cl) / determinant, (jj * cl - jl * cj) / determinant",
            "u, v = (ll * cj - jl * cl) / determinant, (ll * cl - jl * cj) / determinant",
            "index in the inverse of a 2 × 2 matrix",
        ),
        (
            "erf-four-narrow",
            "narrow = jax.lax.rsqrt(1 + variance - u * cj - v * cl)",
            "narrow = jax.lax.rsqrt(1 + variance - u * cj)",
            "dropped term of the tilted variance",
        ),
        (
            "erf-four-power",
            "return TWO_OVER_PI**2 * (weights @ (arcsine(ratio) @ weights)) / jnp.sqrt(determinant)",
            "return TWO_OVER_PI * (weights @ (arcsine(ratio) @ weights)) / jnp.sqrt(determinant)",
            "power of 2/π in χ",
        ),
    ),
    *planted_in(
        "gaussian/erf.py",
        (
            "tests/test_meanfield.py::test_hermite_coefficients_of_a_field_in_closed_form_and_by_quadrature",
        ),
        (
            "erf-ladder",
            "slope * orthonormal(x, orders, -width * narrow)",
            "slope * orthonormal(x, orders, width * narrow)",
            "sign of the odd Hermite coefficients of erf",
        ),
    ),
    *planted_in(
        "gaussian/quadratic.py",
        brute("quadratic form", "quadratic, correlation"),
        (
            "quadratic-A",
            "first = t1 * omega + 2 * A",
            "first = t1 * omega + A",
            "2 of the connected part",
        ),
        (
            "quadratic-variance-4",
            "variance = (square + noise) * omega + 4 * t1 * A + 8 * omega @ B @ A",
            "variance = (square + noise) * omega + 2 * t1 * A + 8 * omega @ B @ A",
            "4 → 2 in χ",
        ),
        (
            "quadratic-variance-8",
            "variance = (square + noise) * omega + 4 * t1 * A + 8 * omega @ B @ A",
            "variance = (square + noise) * omega + 4 * t1 * A + 4 * omega @ B @ A",
            "8 → 4 in χ",
        ),
        (
            "quadratic-noise",
            "variance = (square + noise) * omega",
            "variance = (square + noise / 2) * omega",
            "half of the noise in χ",
        ),
        (
            "quadratic-second-moment",
            "return t1, t1**2 + 2 * t2, BO",
            "return t1, t1**2 + t2, BO",
            "2 of the variance of a form",
        ),
        (
            "quadratic-second",
            "second=scale * jnp.diagonal(first)[:p] + shift * t1",
            "second=scale * jnp.diagonal(first)[:p] - shift * t1",
            "sign of the shift in E[e σ]",
        ),
        (
            "quadratic-shift",
            "h0 - weight * shift * a.mean()",
            "h0 + weight * shift * a.mean()",
            "sign of the constant of the output",
        ),
        (
            "quadratic-off-diagonal",
            "H[index[1], index[0]] += c / 2",
            "H[index[1], index[0]] += c",
            "half of a mixed coefficient",
        ),
        (
            "quadratic-rows",
            "rows = (2 * scale * w)[:, None] * (2 * OB[:p] + t1 * jnp.eye(p, len(omega)))",
            "rows = (2 * scale * w)[:, None] * (OB[:p] + t1 * jnp.eye(p, len(omega)))",
            "2 in the gradient as rows",
        ),
    ),
    *planted_in(
        "gaussian/polynomial.py",
        brute("cubic ridges", "cubic, product", "cubic at nodes"),
        (
            "wick-moments",
            "moments.append(mean * moments[m - 1] + (m - 1) * variance * moments[m - 2])",
            "moments.append(mean * moments[m - 1] + m * variance * moments[m - 2])",
            "m − 1 → m in the moments of a field",
        ),
        (
            "wick-mehler",
            "total = total + power * f[n] * g[n] / math.factorial(n)\n        power = power * covariance",
            "total = total + power * f[n] * g[n]\n        power = power * covariance",
            "1/n! of Mehler's sum",
        ),
        (
            "wick-orders",
            "return Pair(mehler(f, g, c), mehler(f[1:], g[1:], c), mehler(f[2:], g, c))",
            "return Pair(mehler(f, g, c), mehler(f[1:], g[1:], c), mehler(f[1:], g, c))",
            "order of the derivative in E[f'' g]",
        ),
        (
            "wick-node-cross",
            "total = total - 2 * student * cross + student**2 * own",
            "total = total - student * cross + student**2 * own",
            "2 of the mixed term in χ",
        ),
        (
            "wick-graphs",
            "weight = np.array([1 / math.prod(math.factorial(n) for n in row) for row in found])",
            "weight = np.array([1 / math.prod(max(n, 1) for n in row) for row in found])",
            "n! → n in the weight of a graph",
        ),
        (
            "wick-four-degree",
            "right = power[js][:p, None, :] * power[ls][None, :p, :] * weighted[js + ls + qs]",
            "right = power[js][:p, None, :] * power[ls][None, :p, :] * weighted[js + ls]",
            "dropped edge in the degree of a vertex",
        ),
        (
            "wick-two-point",
            'jnp.einsum("n,nj,nl->jl", node, slope[n], slope[n]) / math.factorial(n)',
            'jnp.einsum("n,nj,nl->jl", node, slope[n], slope[n])',
            "1/n! of the two-point sum",
        ),
        (
            "wick-perm",
            "row = row + coefficients[m] * math.perm(m, n) * moments[m - n]",
            "row = row + coefficients[m] * math.comb(m, n) * moments[m - n]",
            "permutations → combinations in a derivative",
        ),
    ),
    *planted_in(
        "gaussian/targets.py",
        brute("erf committee", "erf, product"),
        (
            "target-student-hd",
            "return Linear(K @ M + D * M, K @ Q + D * Q, pair.ff @ weight, weight @ pair.ff @ weight), pair",
            "return Linear(K @ M + D * M, K @ Q - D * Q, pair.ff @ weight, weight @ pair.ff @ weight), pair",
            "sign of E[σ'' f] Q",
        ),
        (
            "target-gram",
            "return Linear(K @ (self.V @ self.P) + D * M, K @ cross.T + D * Q, pair.ff @ self.c, self.square())",
            "return Linear(K @ self.V + D * M, K @ cross.T + D * Q, pair.ff @ self.c, self.square())",
            "P of the ridges dropped in psi",
        ),
        (
            "target-signed-weights",
            "return jnp.concatenate([-student * a / a.shape[0], jnp.asarray(self.c)])",
            "return jnp.concatenate([student * a / a.shape[0], jnp.asarray(self.c)])",
            "sign of the student in h − f",
        ),
        (
            "target-conditional",
            "return self.xi @ A.T, Q - A @ A.T",
            "return self.xi @ A.T, Q + A @ A.T",
            "sign of Q⊥",
        ),
        (
            "target-curvature",
            "slope.T @ mean + curvature[:, None] * perp,",
            "slope.T @ mean - curvature[:, None] * perp,",
            "sign of E[h σ''] Q⊥ in phi",
        ),
        (
            "target-rows",
            "inside = slope.T @ self.xi - curvature[:, None] * (M @ self.inverse.T)",
            "inside = slope.T @ self.xi + curvature[:, None] * (M @ self.inverse.T)",
            "sign in the gradient as rows at nodes",
        ),
        (
            "target-ridge-rows",
            "return TargetRows(jnp.diag(pair.hd @ self.c), (pair.dd * self.c) @ self.V, pair.ff @ self.c)",
            "return TargetRows(jnp.diag(pair.hd @ self.c), pair.dd @ self.V, pair.ff @ self.c)",
            "weights of ridges dropped in the rows",
        ),
    ),
    *planted_in(
        "gaussian/two_point.py",
        brute("tanh teacher", "softplus"),
        (
            "mehler-sum",
            "sums.ff * rho + f_weak * g_weak / (n + 1)",
            "sums.ff * rho + f_weak * g_weak / (n + 2)",
            "n + 1 → n + 2 in Mehler's sum",
        ),
        (
            "mehler-lift",
            "lift = np.sqrt(n + 1.0)",
            "lift = np.sqrt(n + 0.0)",
            "√(n + 1) → √n in E[f'' g]",
        ),
        (
            "mehler-bend",
            "bend = sums.hd / jnp.where(width > 0, width, 1.0)",
            "bend = sums.hd / jnp.where(width > 0, width**2, 1.0)",
            "a width too many in E[f'' g] by Mehler's sum",
        ),
        (
            "hermite-recursion",
            "above = (x * pair[1] - jnp.sqrt(n) * square * pair[0]) / jnp.sqrt(n + 1)",
            "above = (x * pair[1] - n * square * pair[0]) / jnp.sqrt(n + 1)",
            "√n → n in the recursion of Hermite polynomials",
        ),
    ),
    *planted_in(
        "gaussian/two_point.py",
        brute("gelu, correlation"),
        (
            "numeric-single-order",
            'jnp.einsum("...m,nm->n...", slope, hermite_table(orders - 1, x))',
            'jnp.einsum("...m,nm->n...", slope, hermite_table(orders - 1, 0.99 * x))',
            "nodes of Hermite coefficients scaled",
        ),
    ),
    *planted_in(
        "gaussian/two_point.py",
        (
            "tests/test_gaussian.py::test_every_activation_against_sobol_points[leaky_relu-1]",
            "tests/test_gaussian.py::test_pairs_by_quadrature_and_closed_form_near_coincidence",
            "tests/test_one_step_noise.py::test_kinked_pairs_by_panels_have_their_closed_forms",
        ),
        (
            "cross-pair-hd",
            "hd = ((w1 * slope * x1 * mean).sum() - r * dd) / width",
            "hd = ((w1 * slope * x1 * mean).sum() + r * dd) / width",
            "sign in E[f'' g] by panels",
        ),
        (
            "cross-pair-rest",
            "s = root(c22 - r**2)",
            "s = root(c22 + r**2)",
            "sign of the conditional variance",
        ),
    ),
    *planted_in(
        "gaussian/by_parts.py",
        brute("erf teacher"),
        (
            "parts-noise",
            "chi = w[:, None] * w[None, :] * (self.variance(Q, M, a, s) + noise * pair.dd)",
            "chi = w[:, None] * w[None, :] * (self.variance(Q, M, a, s) + noise * pair.ff)",
            "E[σ'σ'] → E[σσ] times the noise",
        ),
        (
            "parts-second-layer",
            "psi=w[:, None] * (h.star - s * f.star),",
            "psi=h.star - s * f.star,",
            "a dropped in psi",
        ),
        (
            "parts-risk",
            "return jnp.maximum(keep**2 * h.square - 2 * keep * (a / a.shape[0]) @ h.value + f.square, 0.0) / 2",
            "return jnp.maximum(keep**2 * h.square - keep * (a / a.shape[0]) @ h.value + f.square, 0.0) / 2",
            "2 of the mixed term of the risk",
        ),
    ),
    *planted_in(
        "gaussian/by_parts.py",
        brute("logistic"),
        (
            "fitted-sign",
            "basis = jnp.stack([e.h, -e.f], -1)",
            "basis = jnp.stack([e.h, e.f], -1)",
            "sign of f in the fit of a loss",
        ),
    ),
    *planted_in(
        "gaussian/rescaled_students.py",
        brute("flipped, squared"),
        (
            "flips-second",
            "second = (1 - q) * second - q * other.second\n            risk",
            "second = (1 - q) * second + q * other.second\n            risk",
            "sign of E[e σ] of flipped labels",
        ),
        (
            "flips-risk",
            "risk = jnp.maximum(risk - 2 * q * (1 - q) * self.square, 0.0)",
            "risk = jnp.maximum(risk - q * (1 - q) * self.square, 0.0)",
            "2 of the variance of flipped labels",
        ),
        (
            "flips-rows",
            "own, star = (1 - q) * own + q * other.own, (1 - q) * star + q * other.star",
            "own, star = (1 - q) * own - q * other.own, (1 - q) * star + q * other.star",
            "sign in the rows of flipped labels",
        ),
    ),
    *planted_in(
        "gaussian/rescaled_students.py",
        ("tests/test_normalisation.py",),
        (
            "scale-of-chi",
            "return Expectations(psi / s, phi / s, chi / s**2, second, risk)",
            "return Expectations(psi / s, phi / s, chi / s, second, risk)",
            "(N/p)² → N/p in χ of students that are sums",
        ),
    ),
    *planted_in(
        "gaussian/all_fields.py",
        brute("logistic", "flipped labels"),
        (
            "fields-chi",
            "((w * e.square)[:, None] * slope).T @ slope,",
            "((w * e.mean**2)[:, None] * slope).T @ slope,",
            "E[e²] → E[e]² over the labels in χ",
        ),
        (
            "fields-chances",
            "mean, square = mean + chance * e, square + chance * e**2\n            continue",
            "mean, square = mean + e / 2, square + chance * e**2\n            continue",
            "chances of the signs of labels",
        ),
        (
            "fields-keep",
            "w @ (kernel.labels.keep * e.h - e.f) ** 2 / 2,\n        )\n\n    return rule.summed(terms, rule.fields(Q, M, a))\n\n\ndef _ruled",
            "w @ (e.h - e.f) ** 2 / 2,\n        )\n\n    return rule.summed(terms, rule.fields(Q, M, a))\n\n\ndef _ruled",
            "mean label in the risk",
        ),
    ),
    *planted_in(
        "gaussian/all_fields.py",
        (
            "tests/test_rules.py::test_clipped_averages_of_a_linear_neuron_in_closed_form",
            "tests/test_rules.py::test_noise_in_closed_form_is_that_of_its_nodes",
        ),
        (
            "rules-strength",
            "square = ((a * self.kernel.activation.slope(student)) ** 2).sum(-1)",
            "square = (self.kernel.activation.slope(student) ** 2).sum(-1)",
            "a dropped in the norm that a rule sees",
        ),
        (
            "rules-closed-square",
            "chi = chi + ((chance * w * square)[:, None] * along).T @ along",
            "chi = chi + ((chance * w * mean**2)[:, None] * along).T @ along",
            "E[ρ²] → E[ρ]² over the noise in χ of a rule",
        ),
    ),
    *planted_in(
        "gaussian/increment_covariance.py",
        ("tests/test_one_step_noise.py::test_the_covariance_of_one_sample",),
        (
            "spread-rho",
            "c2 = jnp.concatenate([blank, rho * slope[rows] * slope[columns], 0 * second])",
            "c2 = jnp.concatenate([blank, 2 * rho * slope[rows] * slope[columns], 0 * second])",
            "ρ of g g in 𝒳_Q doubled",
        ),
        (
            "spread-fourth",
            "+ V[i][np.ix_(x, y)] * V[j][np.ix_(y, x)]",
            "+ V[i][np.ix_(x, y)] * V[j][np.ix_(x, y)]",
            "index of the third pairing",
        ),
        (
            "spread-series",
            "V.append(2.0**n * power)",
            "V.append(2.0 * n * power)",
            "2ⁿ → 2n of the generating function",
        ),
        (
            "spread-noise",
            "logarithm[2] = logarithm[2] + noise / 2",
            "logarithm[2] = logarithm[2] + noise",
            "s² Δ/2 → s² Δ",
        ),
        (
            "spread-mean",
            "return square + cross + cross.T + jnp.outer(c0, c0) * 2 * G[2] - jnp.outer(mean, mean)",
            "return square + cross + cross.T + jnp.outer(c0, c0) * G[2] - jnp.outer(mean, mean)",
            "2 G_2 → G_2",
        ),
        (
            "spread-parts",
            "quadratic = mixed + mixed.swapaxes(1, 2) + rho * at.pair",
            "quadratic = mixed + mixed.swapaxes(1, 2) - rho * at.pair",
            "sign of ρ g g of the parts",
        ),
    ),
    *planted_in(
        "gaussian/increment_covariance_in_blocks.py",
        ("tests/test_one_step_noise.py::test_the_noise_of_one_step_in_blocks",),
        (
            "block-spread-weight",
            "weight = rho * (blocks.variance * blocks.share)[:, None, None]",
            "weight = rho * blocks.share[:, None, None]",
            "variance of a block in g g",
        ),
        (
            "block-spread-rest",
            'rest = rest + jnp.einsum("il,iab->ialb", jnp.eye(b), s * omega)',
            'rest = rest + jnp.einsum("il,iab->ialb", jnp.eye(b), omega)',
            "variance in the conditional covariance of a block",
        ),
        (
            "block-spread-minus",
            'rest = -jnp.einsum("iax,lbx->ialb", mean, mean)',
            'rest = 0 * jnp.einsum("iax,lbx->ialb", mean, mean)',
            "what the fields tell of a block is not taken off",
        ),
    ),
    *planted_in(
        "gaussian/step_fluctuations.py",
        ("tests/test_one_step_noise.py::test_the_mean_of_ratios",),
        (
            "ratio-orthogonal",
            'jnp.einsum("nj,njl->jl", weighted, square) + 2 * (c[:, None] * gamma + chi * g[:, None]),',
            'jnp.einsum("nj,njl->jl", weighted, square) + (c[:, None] * gamma + chi * g[:, None]),',
            "2 of the Wishart part of Cov(Q_jl, Q_jj)",
        ),
        (
            "ratio-norms",
            "(weighted.T @ norms) + 4 * chi * gamma,",
            "(weighted.T @ norms) - 4 * chi * gamma,",
            "sign of the Wishart part of Cov(Q_jj, Q_ll)",
        ),
        (
            "ratio-features",
            "return star, mixed + mixed.swapaxes(1, 2) + ratio * at.pair",
            "return star, mixed + mixed.swapaxes(1, 2) + 2 * ratio * at.pair",
            "g g of a sample doubled",
        ),
    ),
    *planted_in(
        "gaussian/step_fluctuations.py",
        (
            "tests/test_map.py::test_one_step_has_the_mean_of_the_chain_at_any_dimension",
        ),
        (
            "finite-rank",
            "total = total - pull.shape[2] * at.mean.pair",
            "total = total + pull.shape[2] * at.mean.pair",
            "sign of the rank in the length of inputs",
        ),
    ),
    *planted_in(
        "gaussian/step_fluctuations.py",
        (
            "tests/test_map.py::test_the_band_is_the_spread_of_runs",
            "tests/test_one_step_noise.py::test_the_band_of_one_giant_step",
        ),
        (
            "band-wishart",
            "ends = ((j, l), (l, j))",
            "ends = ((j, l), (j, l))",
            "pairings of the Wishart part of the band",
        ),
    ),
    *planted_in(
        "gaussian/batch_sums.py",
        (
            "tests/test_one_step_noise.py::test_gaussian_sums_have_the_moments_of_a_batch",
        ),
        (
            "sums-root-batch",
            "@ normals / jnp.sqrt(batch)",
            "@ normals / batch",
            "1/√n_b → 1/n_b in the noise of Gaussian sums",
        ),
        (
            "sums-gram",
            "symmetric_root(gram / batch),",
            "symmetric_root(gram),",
            "1/n_b of the Gram matrix of Gaussian sums",
        ),
        (
            "sums-own",
            "mean_own = (average.phi - mean_star @ A.T) @ jnp.linalg.pinv(B).T",
            "mean_own = (average.phi + mean_star @ A.T) @ jnp.linalg.pinv(B).T",
            "sign of the part along the target",
        ),
    ),
    *planted_in(
        "gaussian/batch_sums.py",
        ("tests/test_chain.py::test_the_tail_decides_between_exact_and_gaussian_sums",),
        (
            "sums-tail",
            "whitened = frame.inverse @ at.pair @ frame.inverse.T",
            "whitened = frame.inverse @ at.pair @ frame.inverse.T / 2",
            "half of the fluctuations of whitened gradients",
        ),
    ),
    *planted_in(
        "gaussian/population_gradient.py",
        (
            "tests/test_population.py::test_the_mean_gradient_is_the_derivative_of_the_loss",
            "tests/test_population.py::test_relu_closed_forms_are_quadrature_and_its_autodiff",
        ),
        (
            "population-half",
            "first = a[:, None] * (residual / 2 + (bend[:, None] * unit[:p] - turn) / TWO_PI)",
            "first = a[:, None] * (residual / 2 + (bend[:, None] * unit[:p] + turn) / TWO_PI)",
            "sign of the turned rows",
        ),
        (
            "population-risk",
            "return ((c[:, None] * u).sum(0) ** 2).sum() / 4",
            "return ((c[:, None] * u).sum(0) ** 2).sum() / 2",
            "¼ → ½ in the risk",
        ),
        (
            "population-second",
            "return Push(first, rows @ residual / 2 + norm[:p] * excess / TWO_PI)",
            "return Push(first, rows @ residual / 2 + excess / TWO_PI)",
            "norm dropped in E[e σ]",
        ),
    ),
    *planted_in(
        "gaussian/population_gradient.py",
        ("tests/test_witness.py::test_nothing_is_said_where_all_is_right[descent]",),
        (
            "population-stein",
            "return Push(gradient.own @ rows + gradient.star @ star, gradient.second)",
            "return Push(gradient.own.T @ rows + gradient.star @ star, gradient.second)",
            "transposed coefficients",
            "the same program: off its diagonal own is a_j a_l E[σ'_j σ'_l ∂e/∂f]/N, which is symmetric",
        ),
    ),
    *planted_in(
        "gaussian/population_gradient.py",
        ("tests/test_population.py::test_the_sine_excess_keeps_its_digits",),
        (
            "sine-series",
            "series = (-1.0) ** (n + 1) * 2 * n / math.factorial(2 * n + 1) + x**2 * series",
            "series = (-1.0) ** n * 2 * n / math.factorial(2 * n + 1) + x**2 * series",
            "sign of a series",
        ),
    ),
    *planted_in(
        "gaussian/loss_and_error.py",
        (
            "src/twolayer/gaussian/loss_and_error.py",
            "tests/test_labels.py::test_results_hold_the_loss_and_the_error",
        ),
        (
            "error-side",
            "side = np.sign(a[..., 0]) * np.sign(ridge.weights[0])",
            "side = np.sign(ridge.weights[0])",
            "sign of a in the error",
        ),
        (
            "error-flips",
            "return labels.flips + labels.keep * wrong, rule",
            "return labels.flips + wrong, rule",
            "1 − 2q of the error",
        ),
        (
            "error-correlation",
            'found["loss"] = 1 - (other - excess) / 2, "as the risk"',
            'found["loss"] = 1 - (other - excess), "as the risk"',
            "half of the difference of two risks",
        ),
    ),
    *planted_in(
        "gaussian/ensemble.py",
        (
            "tests/test_meanfield.py::test_square_closes_on_moments_and_agrees_by_nodes_and_pairs",
        ),
        (
            "ensemble-across",
            "ds = 2 * scale * a * s * (mean - 2 * across)",
            "ds = 2 * scale * a * s * (mean - across)",
            "2 of the interaction in ds",
        ),
        (
            "ensemble-mean",
            "return jnp.trace(B) + self.h0 - student * (scale * T + self.shift * u.sum()), B",
            "return jnp.trace(B) + self.h0 - student * (self.shift * u.sum()), B",
            "orthogonal part of the output dropped",
        ),
        (
            "ensemble-risk",
            "risk = (risk_mean**2 + 2 * (risk_form**2).sum() + 2 * (scale * T) ** 2 * c2) / 2",
            "risk = (risk_mean**2 + 2 * (risk_form**2).sum() + (scale * T) ** 2 * c2) / 2",
            "2 of the spread of directions in the risk",
        ),
        (
            "ensemble-own",
            "ds = ds - push * a * 2 * s * (norm - c2 * s**2)",
            "ds = ds - push * a * 2 * s * (norm + c2 * s**2)",
            "sign of the own term in ds",
        ),
        (
            "ensemble-nodes-up",
            "ds = (e * np.sqrt(n + 1) * odd).sum((0, 2))",
            "ds = (e * np.sqrt(n + 2) * odd).sum((0, 2))",
            "√(n + 1) of a raised order",
        ),
        (
            "ensemble-pair-bend",
            "ds = bend * s - self.student * (tilted * u) @ s",
            "ds = bend * s + self.student * (tilted * u) @ s",
            "sign of the pairs in ds",
        ),
    ),
    *planted_in(
        "gaussian/ensemble_rules.py",
        (
            "src/twolayer/gaussian/ensemble_rules.py",
            "tests/test_meanfield.py::test_correlations_of_random_directions",
        ),
        (
            "sphere-moments",
            "steps = [(2 * i + 1) / (dimension + 2 * i) if dimension > 0 else 0.0 for i in range(count - 1)]",
            "steps = [(2 * i + 1) / (dimension + i) if dimension > 0 else 0.0 for i in range(count - 1)]",
            "moments of a correlation on the sphere",
        ),
    ),
    *planted_in(
        "gaussian/ensemble_rules.py",
        ("tests/test_meanfield.py::test_one_side_of_the_nodes_has_the_weight_of_both",),
        (
            "folded-origin",
            "twice[-1] /= 2  # the origin has no partner",
            "twice[-1] /= 1",
            "weight of the origin",
        ),
    ),
    *planted_in(
        "gaussian/nodes.py",
        brute("cubic at nodes", "cubic, product"),
        (
            "nodes-exact",
            "n, r = highest // 2 + 1, L.shape[1]",
            "n, r = highest // 4 + 1, L.shape[1]",
            "too few nodes for a polynomial",
        ),
    ),
    *planted_in(
        "gaussian/quadrature.py",
        (
            "tests/test_gaussian.py::test_panel_rules_integrate_gaussians",
            "src/twolayer/gaussian/quadrature.py",
        ),
        (
            "panels-crossing",
            "return xp.where(moves, (kink - offset) / xp.where(moves, slope, 1.0), 2 * REACH)",
            "return xp.where(moves, (kink + offset) / xp.where(moves, slope, 1.0), 2 * REACH)",
            "sign of the place of a kink",
        ),
        ("panels-reach", "REACH = 9.0", "REACH = 4.0", "tails cut off"),
    ),
    *planted_in(
        "gaussian/risk.py",
        (
            "src/twolayer/gaussian/risk.py",
            "tests/test_labels.py::test_results_hold_the_loss_and_the_error",
        ),
        (
            "risk-noise",
            "if not problem.labels.flips:\n        return problem.noise / 2",
            "if not problem.labels.flips:\n        return problem.noise",
            "Δ/2 → Δ in the risk",
        ),
    ),
    *planted_in(
        "gaussian/engines.py",
        (f"{CORNERS}[orders that agree by chance]",),
        (
            "stated-least",
            "SEVERAL = 1e-5",
            "SEVERAL = 1e-12",
            "two orders that agree by chance state their difference",
        ),
    ),
    *planted_in(
        "gaussian/engines.py",
        (f"{CORNERS}[lines of few nodes]",),
        (
            "stated-lines",
            "line=x.line - 1",
            "line=x.line",
            "what lines of few nodes miss is not stated",
        ),
    ),
    *planted_in(
        "gaussian/steps_between_nodes.py",
        (f"{CORNERS}[a step of the student between two nodes]",),
        (
            "stated-steps",
            "abs(a[j] * jump) * change",
            "abs(a[j] * jump) * 0 * change",
            "steps between nodes are not stated",
        ),
    ),
    *planted_in(
        "gaussian/series_tail.py",
        (f"{CORNERS}[a sum that has hardly begun, under a loss that is fitted]",),
        (
            "stated-fitted",
            "if isinstance(engine, FittedEngine):",
            "if isinstance(engine, FittedEngine):\n        return nothing\n    elif False:",
            "what sums leave out under a loss that is fitted is not stated",
        ),
    ),
    *planted_in(
        "gaussian/all_fields.py",
        (f"{CORNERS}[panels of the label noise]",),
        (
            "stated-noise",
            "return 4 + self.order // 3 if self.normals is None else NOISE_ORDER",
            "return NOISE_ORDER",
            "panels of the label noise that no order refines",
        ),
    ),
    *planted_in(
        "task/losses.py",
        (f"{CORNERS}[a loss in the name of a rule]",),
        (
            "loss-in-a-rule",
            r"([^()]*)",
            "(.*)",
            "a rule with a bent loss is taken for a bent loss",
        ),
    ),
]
