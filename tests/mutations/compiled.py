"""Errors planted in the machine code of the chain."""

from __future__ import annotations

from . import Mutant, planted_in

FORMULAS = ("tests/test_compiled.py::test_formulas_and_their_slopes_are_those_of_jax",)
LIMITS = ("tests/test_compiled.py::test_functions_keep_their_limits",)
PINNED = ("tests/test_compiled.py::test_the_random_numbers_are_the_pinned_ones",)


def law(*settings: str) -> tuple[str, ...]:
    """The law of the definition, of settings that have machine code."""
    return tuple(
        f"tests/test_plain_sgd.py::test_a_few_steps_have_the_law_of_the_definition[{x}-Chain]"
        for x in settings
    )


MUTANTS: list[Mutant] = [
    *planted_in(
        "compiled/elementary.py",
        FORMULAS,
        (
            "code-tanh-slope",
            "return value, code.fma(-value, value, 1.0)",
            "return value, code.fma(value, value, 1.0)",
            "slope of tanh: 1 + tanh²",
        ),
        (
            "code-sigmoid-slope",
            "return code.where(x >= 0.0, 1.0 / (1.0 + e), small), small / (1.0 + e)",
            "return code.where(x >= 0.0, 1.0 / (1.0 + e), small), small * (1.0 + e)",
            "slope of sigmoid",
        ),
        (
            "code-sigmoid-side",
            "return code.where(x >= 0.0, 1.0 / (1.0 + e), small), small / (1.0 + e)",
            "return code.where(x <= 0.0, 1.0 / (1.0 + e), small), small / (1.0 + e)",
            "sides of sigmoid exchanged",
        ),
        (
            "code-erf-slope",
            "bell * (2 / math.sqrt(math.pi))",
            "bell * (1 / math.sqrt(math.pi))",
            "2 of the slope of erf",
        ),
        (
            "code-gelu-slope",
            "return x * cumulative, code.fma(x * slope, math.sqrt(0.125), cumulative)",
            "return x * cumulative, code.fma(x * slope, math.sqrt(0.5), cumulative)",
            "factor in the slope of gelu",
        ),
        (
            "code-cos-slope",
            "sine, cosine = sine_and_cosine(code, x)\n    return cosine, -sine",
            "sine, cosine = sine_and_cosine(code, x)\n    return cosine, sine",
            "sign of the slope of a cosine",
        ),
        (
            "code-quarter",
            "odd = quarter.equals(1.0) | quarter.equals(3.0)",
            "odd = quarter.equals(1.0) | quarter.equals(2.0)",
            "quarter turns of a sine",
        ),
        (
            "code-sqrt-slope",
            "return value, 0.5 / value",
            "return value, 1.0 / value",
            "½ in the slope of a root",
        ),
        (
            "code-softplus",
            "return code.where(x > 0.0, x, 0.0) + tail, sigmoid(code, x)[0]",
            "return code.where(x > 0.0, x, 0.0) + tail, sigmoid(code, x)[1]",
            "slope of softplus",
        ),
        (
            "code-abs-slope",
            "return code.abs(x), _sign(code, x)[0]",
            "return code.abs(x), -_sign(code, x)[0]",
            "sign of the slope of |x|",
        ),
        (
            "code-erf-range",
            "code.where(size < 6.0, size, 6.0)",
            "code.where(size < 2.0, size, 2.0)",
            "erf cut off at 2",
        ),
    ),
    *planted_in(
        "compiled/elementary.py",
        LIMITS,
        (
            "code-exp-overflow",
            "value = code.where(x > LARGEST, math.inf, code.where(x < LEAST, 0.0, value))",
            "value = code.where(x > LARGEST, 0.0, code.where(x < LEAST, 0.0, value))",
            "overflow of exp",
        ),
    ),
    *planted_in(
        "compiled/calculus.py",
        FORMULAS,
        (
            "calculus-product",
            "return u * v, plus(times(du, v), times(u, dv))",
            "return u * v, plus(times(du, v), times(-1.0, times(u, dv)))",
            "sign in the rule of products",
        ),
        (
            "calculus-quotient",
            "inner = plus(du, times(-1.0, times(quotient, dv)))",
            "inner = plus(du, times(quotient, dv))",
            "sign in the rule of quotients",
        ),
        (
            "calculus-power",
            "return result, times(times(float(n), below), slope)",
            "return result, times(times(float(n - 1), below), slope)",
            "n → n − 1 in the slope of a power",
        ),
        (
            "calculus-negative-power",
            "result, below = 1.0 / result, -1.0 / (result * value)",
            "result, below = 1.0 / result, 1.0 / (result * value)",
            "sign of the slope of a negative power",
        ),
        (
            "calculus-hermite",
            "following = plus(times(x, current), times(-float(m), previous))",
            "following = plus(times(x, current), times(-float(m + 1), previous))",
            "m → m + 1 in Hermite polynomials",
        ),
        (
            "calculus-hermite-norm",
            'scale = 1.0 / math.sqrt(math.factorial(n)) if kind == "h" else 1.0',
            'scale = 1.0 / math.factorial(n) if kind == "h" else 1.0',
            "√n! → n! of orthonormal Hermite polynomials",
        ),
        (
            "calculus-hermite-slope",
            "return times(scale, current), times(scale * n, previous)",
            "return times(scale, current), times(scale, previous)",
            "n of the slope of a Hermite polynomial",
        ),
        (
            "calculus-difference",
            "return u - v, plus(du, times(-1.0, dv))",
            "return u - v, plus(du, dv)",
            "sign of the slope of a difference",
        ),
        (
            "calculus-real-power",
            "return result, times(exponent * result / value, slope)",
            "return result, times(exponent * result, slope)",
            "slope of a real power",
        ),
    ),
    *planted_in(
        "compiled/formula.py",
        (
            "tests/test_compiled.py::test_targets_of_several_directions_and_teachers",
            "tests/test_plain_sgd.py::test_machine_code_knows_teachers",
        ),
        (
            "formula-teacher",
            'Binary("*", Number(weight / target.directions), _renamed(neuron.tree, name))',
            'Binary("*", Number(weight), _renamed(neuron.tree, name))',
            "1/k of a teacher",
        ),
    ),
    *planted_in(
        "compiled/normals.py",
        PINNED,
        (
            "code-normal-tail",
            "(code.sqrt(w) - first) * (2.0 / (last - first)) - 1.0), z)",
            "(code.sqrt(w) - first) * (2.0 / (last - first)) - 1.1), z)",
            "tails of the normal numbers",
        ),
        (
            "code-normal-centre",
            "code.fma(w, 2.0 / random.SPLIT, -1.0)",
            "code.fma(w, 2.0 / random.SPLIT, -0.9)",
            "centre of the normal numbers",
        ),
    ),
    *planted_in(
        "compiled/batch.py",
        law("plain", "plain, projected"),
        (
            "code-student",
            "e = code.fma(f, -shape.student / shape.p, e)",
            "e = code.fma(f, shape.student / shape.p, e)",
            "sign of the output in e",
        ),
        (
            "code-mean",
            "e = code.fma(f, -shape.student / shape.p, e)",
            "e = code.fma(f, -shape.student, e)",
            "1/p of the output",
        ),
        (
            "code-noise",
            "e = code.fma(root, noise, e)",
            "e = code.fma(root * 0.5, noise, e)",
            "label noise halved",
        ),
        (
            "code-second",
            "return first, [value * weighted for value, _ in pairs] if shape.form.trained else []",
            "return first, [slope * weighted for _, slope in pairs] if shape.form.trained else []",
            "σ → σ' in the push of the second layer",
        ),
    ),
    *planted_in(
        "compiled/batch.py",
        law("plain, projected", "plain, spherical"),
        (
            "code-batch",
            "weighted = e if shape.batch == 1 else e * (1.0 / shape.batch)",
            "weighted = e",
            "1/n_b",
        ),
        (
            "code-along",
            "along = [[dot(code, C[j], [xi[i] for xi in draws]) for i in range(n)] for j in range(p)]",
            "along = [[dot(code, C[j], [xi[max(i - 1, 0)] for xi in draws]) for i in range(n)] for j in range(p)]",
            "index of a coordinate",
        ),
    ),
    *planted_in(
        "compiled/step.py",
        law("plain, spherical", "plain, projected"),
        (
            "code-tangent",
            "keep = keep - numbers.step * dot(code, W[j], along[j]) / dot(code, W[j], W[j])",
            "keep = keep + numbers.step * dot(code, W[j], along[j]) / dot(code, W[j], W[j])",
            "sign of the radial part",
        ),
        (
            "code-outside",
            "new += [numbers.step * g for g in full[n:]]",
            "new += [2.0 * numbers.step * g for g in full[n:]]",
            "what is outside the known directions doubled",
        ),
        (
            "code-degrees",
            "T.append([normal(below + l) for l in range(i)] + [table[i][DEGREE + 1] * c * code.sqrt(c)])",
            "T.append([normal(below + l) for l in range(i)] + [table[i][DEGREE + 1] * c])",
            "power of a χ quantile",
        ),
    ),
    *planted_in(
        "compiled/step.py",
        law("plain"),
        (
            "code-layer",
            "layer = [code.fma(numbers.step, s, x) for s, x in zip(second, a, strict=True)]",
            "layer = [code.fma(numbers.step * 2.0, s, x) for s, x in zip(second, a, strict=True)]",
            "rate of the second layer doubled",
        ),
    ),
    *planted_in(
        "compiled/in_blocks.py",
        law("blocks, free"),
        (
            "code-blocks",
            "scale = numbers.step * self._shared(2, i)",
            "scale = numbers.step * self._shared(2, i) * self._shared(2, i)",
            "√s → s outside the known directions of a block",
        ),
        (
            "code-blocks-fields",
            "square = self._shared(0, c) * self._shared(0, c)",
            "square = self._shared(0, c)",
            "s → √s of the overlaps with the target",
        ),
    ),
]
