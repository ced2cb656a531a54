"""Closed answers and measurements: escape times, optimal learning rates, first
passages.
"""
