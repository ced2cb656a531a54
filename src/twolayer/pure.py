"""The floor for JAX users: the same equations as pure functions, for `jit`, `vmap` and `grad`.

    averages(problem, loss)(Ω)                psi, phi, chi, second, excess_risk       gaussian/
    vector_field(problem, algorithm)(Ω)       dΩ/dt                                    equations/step.py
    integrate(field, Ω, times)                Ω(t)
    increment(problem, algorithm)(u, ξ, a)    g and e σ(λ) of single samples           equations/kernel.py
    mean_step(problem, algorithm, dim)(Ω)     E[Ω after a step]                        equations/mean.py
    chain_step(problem, algorithm, dim)       Ω after a step, from its normals         equations/orthogonal.py

`solve` stands on these functions. Functions and widths are fixed when one of them is made, on the host; numbers are
data: learning rates, noise levels, overlaps and second layers may be traced, mapped over and differentiated. Results
are in the precision of JAX's configuration: call ``jax.config.update("jax_enable_x64", True)`` first.
"""

from __future__ import annotations
