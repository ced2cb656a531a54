"""What is learned, and with what: expressions, activations, targets and their Hermite
structure.
"""
