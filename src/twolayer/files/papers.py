"""The papers behind the formulas, by the key that methods and results carry."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from twolayer.files.bibtex import entry_of
from twolayer.numerics.errors import choice, reject
from twolayer.numerics.foreign_files import reading

__all__ = ["PAPERS", "cite"]

TITLE = "twolayer: exact learning dynamics of two-layer neural networks"

PAPERS: dict[str, str] = {
    "saad1995": (
        "D. Saad and S. A. Solla, On-line learning in soft committee machines, Phys."
        " Rev. E 52, 4225 (1995)."
    ),
    "saad1995prl": (
        "D. Saad and S. A. Solla, Exact solution for on-line learning in multilayer"
        " neural networks, Phys. Rev. Lett. 74, 4337 (1995)."
    ),
    "goldt2019": (
        "S. Goldt, M. Advani, A. Saxe, F. Krzakala and L. Zdeborová, Dynamics of"
        " stochastic gradient descent for two-layer neural networks in the"
        " teacher-student setup, NeurIPS 32 (2019), arXiv:1906.08632."
    ),
    "goldt2019online": (
        "S. Goldt, M. Advani, A. Saxe, F. Krzakala and L. Zdeborová, Generalisation"
        " dynamics of online learning in over-parameterised neural networks,"
        " arXiv:1901.09085 (2019)."
    ),
    "refinetti2021": (
        "M. Refinetti, S. d'Ascoli, R. Ohana and S. Goldt, Align, then memorise: the"
        " dynamics of learning with feedback alignment, ICML (2021), arXiv:2011.12428."
    ),
    "veiga2022": (
        "R. Veiga, L. Stephan, B. Loureiro, F. Krzakala and L. Zdeborová, Phase diagram"
        " of stochastic gradient descent in high-dimensional two-layer neural networks,"
        " NeurIPS 35 (2022), arXiv:2202.00293."
    ),
    "benarous2021": (
        "G. Ben Arous, R. Gheissari and A. Jagannath, Online stochastic gradient"
        " descent on non-convex losses from high-dimensional inference, J. Mach. Learn."
        " Res. 22(106) (2021), arXiv:2003.10409."
    ),
    "arnaboldi2023dimensionless": (
        "L. Arnaboldi, L. Stephan, F. Krzakala and B. Loureiro, From high-dimensional &"
        " mean-field dynamics to dimensionless ODEs: a unifying approach to SGD in"
        " two-layers networks, COLT (2023), arXiv:2302.05882."
    ),
    "chizat2018": (
        "L. Chizat and F. Bach, On the global convergence of gradient descent for"
        " over-parameterized models using optimal transport, NeurIPS 31 (2018),"
        " arXiv:1805.09545."
    ),
    "arnaboldi2023escaping": (
        "L. Arnaboldi, F. Krzakala, B. Loureiro and L. Stephan, Escaping mediocrity:"
        " how two-layer networks learn hard generalized linear models with SGD,"
        " arXiv:2305.18502 (2023)."
    ),
    "arnaboldi2024": (
        "L. Arnaboldi, Y. Dandi, F. Krzakala, B. Loureiro, L. Pesce and L. Stephan,"
        " Online learning and information exponents: on the importance of batch size,"
        " and time/complexity tradeoffs, ICML (2024), arXiv:2406.02157."
    ),
    "arnaboldi2024repetita": (
        "L. Arnaboldi, Y. Dandi, F. Krzakala, L. Pesce and L. Stephan, Repetita iuvant:"
        " data repetition allows SGD to learn high-dimensional multi-index functions,"
        " arXiv:2405.15459 (2024)."
    ),
    "arnaboldithesis": (
        "L. Arnaboldi, Effective dynamics of stochastic gradient descent in"
        " high-dimensional neural networks, PhD thesis, EPFL."
    ),
    "abbe2022": (
        "E. Abbe, E. Boix-Adserà and T. Misiakiewicz, The merged-staircase property: a"
        " necessary and nearly sufficient condition for SGD learning of sparse"
        " functions on two-layer neural networks, COLT (2022), arXiv:2202.08658."
    ),
    "abbe2023": (
        "E. Abbe, E. Boix-Adserà and T. Misiakiewicz, SGD learning on neural networks:"
        " leap complexity and saddle-to-saddle dynamics, COLT (2023), arXiv:2302.11055."
    ),
    "berthier2023": (
        "R. Berthier, A. Montanari and K. Zhou, Learning time-scales in two-layers"
        " neural networks, arXiv:2303.00055 (2023)."
    ),
    "bietti2022": (
        "A. Bietti, J. Bruna, C. Sanford and M. J. Song, Learning single-index models"
        " with shallow neural networks, NeurIPS 35 (2022), arXiv:2210.15651."
    ),
    "damian2022": (
        "A. Damian, J. D. Lee and M. Soltanolkotabi, Neural networks can learn"
        " representations with gradient descent, COLT (2022), arXiv:2206.15144."
    ),
    "damian2024": (
        "A. Damian, L. Pillaud-Vivien, J. D. Lee and J. Bruna,"
        " Computational-statistical gaps in Gaussian single-index models, COLT (2024),"
        " arXiv:2403.05529."
    ),
    "dandi2023": (
        "Y. Dandi, F. Krzakala, B. Loureiro, L. Pesce and L. Stephan, Learning"
        " two-layer neural networks, one (giant) step at a time, arXiv:2305.18270"
        " (2023)."
    ),
    "dandi2024": (
        "Y. Dandi, E. Troiani, L. Arnaboldi, L. Pesce, L. Zdeborová and F. Krzakala,"
        " The benefits of reusing batches for gradient descent in two-layer networks:"
        " breaking the curse of information and leap exponents, ICML (2024),"
        " arXiv:2402.03220."
    ),
    "gerbelot2024": (
        "C. Gerbelot, E. Troiani, F. Mignacco, F. Krzakala and L. Zdeborová, Rigorous"
        " dynamical mean-field theory for stochastic gradient descent methods, SIAM J."
        " Math. Data Sci. 6, 400 (2024), arXiv:2210.06591."
    ),
    "celentano2021": (
        "M. Celentano, C. Cheng and A. Montanari, The high-dimensional asymptotics of"
        " first order methods with random data, arXiv:2112.07572 (2021)."
    ),
    "xu2023": (
        "W. Xu and S. S. Du, Over-parameterization exponentially slows down gradient"
        " descent for learning a single neuron, COLT (2023), arXiv:2302.10034."
    ),
    "yehudai2020": (
        "G. Yehudai and O. Shamir, Learning a single neuron with gradient methods, COLT"
        " (2020)."
    ),
    "safran2021": (
        "I. Safran, G. Yehudai and O. Shamir, The effects of mild over-parameterization"
        " on the optimization landscape of shallow ReLU neural networks, COLT (2021),"
        " arXiv:2006.01005."
    ),
    "barbier2019": (
        "J. Barbier, F. Krzakala, N. Macris, L. Miolane and L. Zdeborová, Optimal"
        " errors and phase transitions in high-dimensional generalized linear models,"
        " Proc. Natl. Acad. Sci. 116, 5451 (2019), arXiv:1708.03395."
    ),
    "mondelli2019": (
        "M. Mondelli and A. Montanari, Fundamental limits of weak recovery with"
        " applications to phase retrieval, Found. Comput. Math. 19, 703 (2019),"
        " arXiv:1708.05932."
    ),
    "troiani2025": (
        "E. Troiani, Y. Dandi, L. Defilippis, L. Zdeborová, B. Loureiro and F."
        " Krzakala, Fundamental computational limits of weak learnability in"
        " high-dimensional multi-index models, AISTATS (2025), arXiv:2405.15480."
    ),
    "mei2018": (
        "S. Mei, A. Montanari and P.-M. Nguyen, A mean field view of the landscape of"
        " two-layer neural networks, Proc. Natl. Acad. Sci. 115(33), E7665 (2018),"
        " arXiv:1804.06561."
    ),
}


def package() -> str:
    """The package itself, as a line like those of the papers."""
    from twolayer import __version__

    return f"The twolayer developers, {TITLE}, version {__version__}."


def cite(*results: object, style: str = "text") -> str:
    """The papers behind methods or results, and the package itself.

    Parameters
    ----------
    *results : Method, Dataset or Comparison
        Methods, or results of `solve`, `compare` and `sweep`; without any, the package
        alone.
    style : str
        ``"text"``: one line each; ``"bibtex"``: entries of BibTeX.

    Examples
    --------
    >>> from twolayer.methods.ode import ODE
    >>> cite(ODE()).splitlines()[0][:21]
    'D. Saad and S. A. Sol'
    >>> print(cite(style="bibtex").splitlines()[0])
    @software{twolayer,
    """
    import xarray as xr

    from twolayer.task.method import Method

    keys: list[str] = []
    for result in results:
        tree = getattr(result, "tree", result)  # of a comparison
        if isinstance(result, Method):
            keys += result.papers
        elif isinstance(tree, xr.DataTree):
            for child in [tree, *tree.children.values()]:
                keys += _keys(child.attrs)
        elif isinstance(result, xr.Dataset):
            keys += _keys(result.attrs)
        else:
            reject("results", result, "methods or results of twolayer")
    return written(keys, style)


def written(keys: Iterable[str], style: str = "text") -> str:
    """Papers by their keys, each once, and the package itself.

    Examples
    --------
    >>> written(["xu2023"]).splitlines()[0][:8]
    'W. Xu an'
    """
    choice("style", style, ("text", "bibtex"))
    chosen = list(dict.fromkeys(keys))
    if style == "text":
        return "\n".join([*(PAPERS.get(key, key) for key in chosen), package()])
    return "\n\n".join(
        [*(entry_of(key, PAPERS.get(key, key)) for key in chosen), _software()]
    )


def _keys(attrs: Mapping[Hashable, Any]) -> list[str]:
    """The papers that a result names."""
    with reading("Argument `results`"):
        found = json.loads(attrs.get("papers", "[]"))
        if not isinstance(found, list) or not all(
            isinstance(key, str) for key in found
        ):
            raise TypeError("papers")
    return found


def _software() -> str:
    from twolayer import __version__

    rows = {
        "author": "{The twolayer developers}",
        "title": f"{{{TITLE}}}",
        "version": __version__,
    }
    return (
        "@software{twolayer,\n"
        + "".join(f"  {name} = {{{text}}},\n" for name, text in rows.items())
        + "}"
    )
