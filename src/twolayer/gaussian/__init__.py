"""Averages over the fields (λ, λ*) ~ N(0, Ω), each with its error."""
