"""Straight-line machine code for chains of small networks on CPUs."""
