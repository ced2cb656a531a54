"""What the variables of results are called in words: ``long_name`` and ``units`` of
each.

Everything is dimensionless but for the clocks of limits, whose units are powers of d
(task/clocks.py).
"""

from __future__ import annotations

import xarray as xr

__all__ = ["MEANINGS", "with_meanings"]

MEANINGS = {
    # clocks
    "time": "time t = lr·step/p, or the sum of lr/p",
    "step": "steps of SGD",
    "sample": "samples used, step·n_b",
    "alpha": "samples over dimension, sample/d",
    "save_point": "save point on the clock of the method",
    # axes
    "seed": "number of the run",
    "neuron": "neuron j",
    "neuron_": "neuron l",
    "direction": "target direction r",
    "block": "block i of the inputs",
    "stage": "number of the stage",
    "stage_number": "number of the stage",
    "bin": "centre of a bin",
    "visit": "visit to the samples",
    "visit_": "earlier visit to the samples",
    # states
    "M": "overlaps of neurons and target directions, w_j·w*_r",
    "Q": "overlaps between neurons, w_j·w_l",
    "M_block": "overlaps of neurons and target directions inside a block of the inputs",
    "Q_block": "overlaps between neurons inside a block of the inputs",
    "variance": "variance of the inputs in a block",
    "Q_perp": "overlaps outside the target directions, Q − M P⁺ Mᵀ",
    "q": "squared norm outside the target directions, |w⊥|²",
    "a": "second layer a_j",
    "weight": "weight of a particle",
    "overlap": "Frobenius norm of M",
    "risk": "population risk ½ E[(y − f)²], with Δ/2",
    "excess_risk": "population risk less Δ/2",
    "train_risk": "risk on the samples that are reused",
    "generalisation_gap": "population risk less the risk on the samples",
    "passes": "passes through the fixed set of samples",
    "loss": "mean of the loss that is trained",
    "error": "probability of the wrong sign",
    "lr": "learning rate in force",
    "batch": "batch size in force",
    "outcome": "how the run ended",
    "stop_step": "step at which the run stopped",
    "stop_time": "time at which the run stopped",
    "exit_time": "time at which the threshold was reached",
    "exit_step": "step at which the threshold was reached",
    "runs": "finished runs of the cell",
    "cell_seed": "seed of the cell",
    "start_M": "M at the start",
    "start_Q": "Q at the start",
    "start_q": "q at the start",
    "start_a": "a at the start",
    "start_P": "overlaps between target directions inside a block of the inputs",
    # errors and spreads
    "M_band": "standard deviation of M times √d",
    "Q_band": "standard deviation of Q times √d",
    "M_error": "standard error of M",
    "Q_error": "standard error of Q",
    "risk_error": "standard error of the risk",
    "train_risk_error": "standard error of the training risk",
    # memory of reused samples
    "C_theta": "correlation of the weights at two visits",
    "C_F": "correlation of the forces at two visits",
    "R_theta": "response of the weights",
    "R_F": "response of the forces",
    "R_theta_error": "standard error of the response of the weights",
    "R_F_error": "standard error of the response of the forces",
    # the measure of neurons, and ridge fits
    "direction_": "target direction s",
    "mean_m": "mean overlap with each target direction",
    "second_m": "second moments of the overlaps",
    "mean_q": "mean of q",
    "variance_q": "variance of q",
    "mean_norm": "mean squared norm of a neuron",
    "excess_per_sample": "first order in 1/n₂ of the excess risk",
    # rows of a comparison
    "row": "row of the table of verdicts",
    "method": "method that is judged",
    "dim": "its dimension d, 0 for a limit",
    "quantity": "quantity that is judged",
    "entry": "entry with the largest deviation over its tolerance",
    "verdict": "agree, differ or undecided",
    "reason": "why it does not agree",
    "reference": "value of the reference at the end",
    "mean": "mean over seeds at the end",
    "standard_error": "its standard error",
    "deviation": "mean less reference at the end",
    "allowance": "what finite size may add, at the end",
    "tolerance": "allowance and standard errors together, at the end",
    "worst_ratio": "largest deviation over its tolerance",
    "worst_time": "time at which that is",
    "worst_deviation": "deviation there",
    "worst_tolerance": "tolerance there",
    "seen": "smallest deviation that would have been seen",
    "range": "range of the quantity",
    "limit": "standard errors that are allowed",
    "resolution": "part of the range up to which an agreement is one",
}
"""By name."""


def with_meanings(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset, each variable with its ``long_name`` and ``units``; what it says of
    itself already stays.
    """
    for name, variable in dataset.variables.items():
        word = str(name)
        known = MEANINGS.get(word, word.replace(".", " ").replace("_", " "))
        variable.attrs = {"long_name": known, "units": "1", **variable.attrs}
    return dataset
