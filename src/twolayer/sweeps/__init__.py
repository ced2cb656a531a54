"""Sweeps: a grid of problems and algorithms, many seeds, a reduction; resumable, on one machine or on a cluster."""
