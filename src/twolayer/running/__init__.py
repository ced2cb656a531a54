"""From a description to a result: solve, compare, stages."""
