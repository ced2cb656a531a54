"""Averages beside brute force: engines × functions, thousands of cases drawn from a grammar.

    uv run python -m tests.battery --cases 3000 --seed 0 --out FOLDER      everything; the same command goes on
    tests/test_battery.py                                                  a fixed share of it

functions.py   values, slopes and kinks of the functions, in NumPy
grammar.py     tasks (target, activation, loss, rule, noise, normalisation, engine) and points (Q, M, a) drawn from them
witness.py     brute force: exact product rules, panels in two dimensions, randomly shifted lattices
judge.py       |package − witness| ≤ stated error + c·(standard error of the witness)

Nothing of the package takes part in the brute force: formulas are given to it as texts, and evaluated beside it from a
table of their own.
"""
