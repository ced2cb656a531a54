"""The lenses: each turns the same problem, algorithm and start into a trajectory of the
overlaps.
"""
