"""The training algorithm: stochastic gradient descent with its rates as powers of the
dimension.

W ← (1 − lr·λ) W + (lr/p) mean_ν g^ν (z^ν)ᵀ + β (W − W_previous),    then the geometry:
free: as it is;   projected: rows divided by their norm;   spherical: tangent gradient,
then divided

Samples are new, or come back: `dataset` fixes a set of them, `sampling` says how
batches are taken from it, and `repeat` how many steps in a row have the same batch.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from twolayer.numerics.arguments import Json
from twolayer.numerics.errors import (
    InputError,
    choice,
    finite_number,
    flag,
    positive_integer,
    reject,
    require,
)
from twolayer.numerics.tracing import traced
from twolayer.task.losses import Loss
from twolayer.task.rules import Rule, driven
from twolayer.task.scaling import Scaling
from twolayer.task.schedules import Law, law_of

__all__ = ["SGD"]

GEOMETRIES = ("free", "projected", "spherical")
SAMPLINGS = ("sequence", "reshuffled", "subset", "replacement")
WHOLE = (
    "sequence",
    "reshuffled",
)  # every pass visits every sample once: a set is a whole number of batches
AVERAGES = "None, 'uniform' or a weight between 0 and 1"
MAX_COUNT = 2**53  # larger numbers of samples are not integers in double precision


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent on the first layer, and on the second if asked.

    Parameters
    ----------
    lr : Scaling, float or str
        Raw step on w with the batch-mean loss, such as ``0.2 / d``; with a schedule,
        such as ``0.2 / d * tl.schedules.cosine(horizon=5)``, it changes along the run.
    batch : Scaling, int or str
        Samples per step n_b, such as 1, ``64`` or ``2 * d**1.5``; it may have a
        schedule too.
    loss : str or Loss
        ``"squared"``, ``"correlation"``, for labels ±1 ``"logistic"``, ``"hinge"`` or
        ``"exponential"``, against outliers ``"huber(0.5)"``, or a registered one.
    rule : str or Rule, optional
        What is made of gradients: ``tl.rules.clip(0.25)`` and others, or their text;
        None leaves them as they are.
    geometry : str
        ``"free"``, ``"projected"`` or ``"spherical"``.
    momentum : float
        β of the heavy ball, in [0, 1).
    nesterov : bool
        Whether gradients (and the decay) are taken ahead, at W + β (W − W_previous),
        and the step is made from there.
    weight_decay : float
        λ: rows shrink by the factor 1 − lr·λ at each step (first layer only).
    dataset : Scaling, int or str, optional
        None: every sample is new. Otherwise this many samples are fixed and batches are
        drawn from them.
    sampling : str
        How batches are drawn from a dataset. ``"sequence"``: it is cut into batches,
        which are visited in turn, over and over; ``"reshuffled"``: it is cut anew, at
        random, before every pass; ``"subset"``: every batch is a random subset;
        ``"replacement"``: every sample of every batch is any of them, with equal
        chance.
    repeat : int
        r: every batch is used in r steps one after the other, then comes the next,
        which is a fresh one where there is no dataset.
    train_first_layer, train_second_layer : bool
        Which layers move: W as above, a by the step (second_lr/p) mean_ν e^ν σ(λ^ν).
    second_lr : Scaling, float or str, optional
        The raw step on a; that on w if it is left out.
    average : str or float, optional
        Follow the average of the iterates too: ``"uniform"`` of all of them, or a
        weight w for x̄ ← (1 − w) x̄ + w x. It is looked at and never used.

    Examples
    --------
    >>> from twolayer.task.scaling import d
    >>> SGD(lr=0.2 / d, geometry="projected")
    SGD(lr='0.2/d', batch='1', geometry='projected')
    """

    lr: Scaling
    batch: Scaling
    loss: Loss
    rule: Rule | None
    geometry: str
    momentum: float
    nesterov: bool
    weight_decay: float
    dataset: Scaling | None
    sampling: str
    repeat: int
    train_first_layer: bool
    train_second_layer: bool
    second_lr: Scaling | None
    average: str | float | None

    def __init__(
        self,
        lr: Law,
        batch: Law = 1,
        loss: str | Loss = "squared",
        geometry: str = "free",
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        dataset: Law | None = None,
        sampling: str = "sequence",
        repeat: int = 1,
        train_first_layer: bool = True,
        train_second_layer: bool = False,
        second_lr: Law | None = None,
        average: str | float | None = None,
        nesterov: bool = False,
        rule: str | Rule | None = None,
    ) -> None:
        momentum = finite_number(
            "momentum", momentum, minimum=0.0, accepted="a number in [0, 1)"
        )
        require(
            traced(momentum) or momentum < 1, "momentum", momentum, "a number in [0, 1)"
        )
        decay = finite_number(
            "weight_decay", weight_decay, minimum=0.0, accepted="a finite number ≥ 0"
        )
        flag("train_first_layer", train_first_layer)
        flag("train_second_layer", train_second_layer)
        flag("nesterov", nesterov)
        if not (train_first_layer or train_second_layer):
            reject(
                "train_second_layer", False, "True where the first layer is not trained"
            )
        if second_lr is not None and not train_second_layer:
            reject(
                "second_lr", second_lr, "left out where the second layer is not trained"
            )
        if nesterov and not traced(momentum):
            require(
                momentum > 0, "momentum", momentum, "positive where nesterov = True"
            )
        choice("sampling", sampling, SAMPLINGS)
        if dataset is None:
            require(
                sampling == "sequence",
                "sampling",
                sampling,
                "left out where every sample is new (dataset=None)",
            )
        for name, value in {
            "lr": law_of(lr, "lr"),
            "batch": _count(batch, "batch"),
            "loss": Loss.of(loss),
            "rule": Rule.of(rule),
            "geometry": choice("geometry", geometry, GEOMETRIES),
            "momentum": momentum,
            "nesterov": nesterov,
            "weight_decay": decay,
            "dataset": None if dataset is None else _count(dataset, "dataset"),
            "sampling": sampling,
            "repeat": positive_integer("repeat", repeat),
            "train_first_layer": train_first_layer,
            "train_second_layer": train_second_layer,
            "second_lr": None if second_lr is None else law_of(second_lr, "second_lr"),
            "average": _average(average),
        }.items():
            object.__setattr__(self, name, value)
        self._check_rule()
        if self.second_lr is not None and self.second_lr.schedule is not None:
            reject(
                "second_lr",
                self.second_lr,
                "constant: the schedule of lr is that of both layers",
            )
        if self.scheduled and not train_first_layer:
            reject("lr", self.lr, "constant where the first layer is not trained")
        if self.dataset is not None:
            for name in ("batch", "dataset"):
                require(
                    getattr(self, name).schedule is None,
                    name,
                    getattr(self, name),
                    "constant on a fixed set",
                )
        if self.dataset is not None and self.dataset.exponent == self.batch.exponent:
            self._check_parts(self.batch.coefficient, self.dataset.coefficient, "")

    @property
    def reused(self) -> str | None:
        """How samples come back, in words; None where every step has new ones."""
        parts = [] if self.dataset is None else [f"dataset = {self.dataset}"]
        parts += [f"repeat = {self.repeat}"] if self.repeat > 1 else []
        return ", ".join(parts) or None

    @property
    def delta(self) -> float:
        """δ in lr = γ0 d^(−δ)."""
        return 0.0 - self.lr.exponent  # not −0

    @property
    def mu(self) -> float:
        """μ in batch = n0 d^μ."""
        return self.batch.exponent

    @property
    def drive(self) -> Loss:
        """The loss with what the rule makes of the gradients of single samples."""
        rule = None if self.rule is None or self.rule.coordinates else self.rule
        return driven(self.loss, rule, self.batch, self.lr)

    @property
    def mean_drive(self) -> Loss:
        """The same for averages in the limit d → ∞, where signs of coordinates are
        those of fields.
        """
        return driven(self.loss, self.rule, self.batch, self.lr)

    @property
    def first_order(self) -> bool:
        """Whether steps are those of a general first-order method (`FirstOrder`)."""
        return False

    def _check_rule(self) -> None:
        """Refuse what a rule does not go with."""
        rule = self.rule
        if rule is None:
            return
        if rule.products:
            plain = self.batch.exponent == 0 and self.batch.schedule is None
            require(
                plain,
                "batch",
                self.batch,
                f"a number for the rule {rule}, which looks ahead on whole batches",
            )
        if rule.name in ("polyak", "two_step"):
            law = self.lr.exponent == -1 and self.lr.schedule is None
            require(
                law,
                "lr",
                self.lr,
                f"a constant law such as 1/d for the rule {rule}, which takes its size"
                " from it",
            )
        if rule.name == "polyak":
            require(
                self.loss.name == "squared",
                "loss",
                self.loss.name,
                "'squared' for the rule polyak",
            )

    @property
    def scheduled(self) -> bool:
        """Whether lr or batch change along a run."""
        return self.lr.schedule is not None or self.batch.schedule is not None

    def check_plain(self, who: str) -> None:
        """Refuse schedules and rules, for what is defined for plain gradients at a
        constant rate only.

        ``who`` refuses, as the message names it.
        """
        self.check_gradient_steps(who)
        if self.rule is not None:
            raise InputError(
                f"Argument `rule` must be left out for {who}, but got {self.rule}."
            )
        self.check_constant(who)

    def check_gradient_steps(self, who: str) -> None:
        """Refuse general first-order methods, for what ``who`` names knows gradient
        steps only.
        """

    def check_constant(self, who: str) -> None:
        """Refuse schedules, for what ``who`` names is defined at a constant rate
        only.
        """
        self.check_gradient_steps(who)
        for name in ("lr", "batch"):
            law = getattr(self, name)
            if law.schedule is not None:
                raise InputError(
                    f"Argument `{name}` must be constant for {who}, but got {law}."
                )

    def batch_at(self, dim: int) -> int:
        """n_b at dimension ``dim``, rounded to the nearest integer, that of a schedule
        left out.

        Examples
        --------
        >>> SGD(lr="1/d", batch="0.5*d").batch_at(100)
        50
        """
        return _rounded(self.batch, dim, "batch")

    def dataset_at(self, dim: int) -> int | None:
        """Number of fixed samples at dimension ``dim``, or None for fresh data.

        Laws of the same power keep their ratio where every pass visits all samples:
        batches of 0.6 d in sequence are five of them to a dataset of 3 d at every d.

        Examples
        --------
        >>> SGD(lr=0.1, batch="0.6*d", dataset="3*d").dataset_at(1001)
        3005
        """
        if self.dataset is None:
            return None
        batch = self.batch_at(dim)
        if self.sampling in WHOLE and self.dataset.exponent == self.batch.exponent:
            return batch * round(self.dataset.coefficient / self.batch.coefficient)
        size = _rounded(self.dataset, dim, "dataset")
        self._check_parts(batch, size, f" at dim = {dim}")
        return size

    def _check_parts(self, batch: float, size: float, where: str) -> None:
        """Refuse a dataset that batches do not fit into."""
        said = f"batch = {self.batch} and dataset = {self.dataset}"
        if where:
            said += f" are {batch:g} and {size:g}{where}"
        if batch > size * (1 + 1e-12):
            raise InputError(
                f"Argument `batch` must be at most the dataset, but {said}."
            )
        if self.sampling in WHOLE and abs(size / batch - round(size / batch)) > 1e-9:
            raise InputError(
                "Argument `dataset` must be a whole number of batches where every pass"
                " visits all samples (or give sampling='subset' or 'replacement'), but"
                f" {said}."
            )

    def replace(self, **changes: object) -> SGD:
        """The same algorithm with some arguments changed, by name (``changes``).

        Examples
        --------
        >>> SGD(lr="0.1/d").replace(batch=4).batch
        Scaling(4)
        """
        known = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name in changes:
            choice("changes", name, known)
        return SGD(**{**known, **changes})

    def describe(self) -> Json:
        """The arguments as plain values, as written to files."""
        known = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)} | {
            "loss": self.loss.name
        }
        return {
            name: str(x) if isinstance(x, Scaling | Rule) else x
            for name, x in known.items()
        }

    def _repr_html_(self) -> str:
        from twolayer.task.notebook import sgd_html

        return sgd_html(self)

    def __repr__(self) -> str:
        defaults = SGD(lr=self.lr).describe()
        shown = {
            k: v
            for k, v in self.describe().items()
            if k in ("lr", "batch") or v != defaults[k]
        }
        return f"SGD({', '.join(f'{k}={v!r}' for k, v in shown.items())})"


def _average(value: object) -> str | float | None:
    if value is None or (isinstance(value, str) and value == "uniform"):
        return None if value is None else "uniform"
    weight = finite_number("average", value, minimum=0.0, accepted=AVERAGES)
    require(traced(weight) or 0 < weight < 1, "average", value, AVERAGES)
    return weight


def _count(value: object, argument: str) -> Scaling:
    law = law_of(value, argument)
    if (
        law.exponent == 0
        and not traced(law.coefficient)
        and law.coefficient != round(law.coefficient)
    ):
        reject(argument, value, "a positive integer or a scaling law in d")
    return law


def _rounded(law: Scaling, dim: int, argument: str) -> int:
    value = law(dim)
    if not 0.5 < value < MAX_COUNT:
        accepted = "at least 1" if value < 1 else "less than 2**53"
        raise InputError(
            f"Argument `{argument}` must be {accepted}, but {law} is {value:.3g} at dim"
            f" = {dim}."
        )
    return round(value)
