"""The best possible with n = αd samples: what y shows of the directions, state
evolution, message passing.
"""
