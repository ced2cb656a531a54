"""What is learnt, and with what: expressions, activations, targets and their Hermite
structure.
"""
