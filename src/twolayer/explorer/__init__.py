"""The explorer: a page on which every theory of the package answers at once, and the
server behind it.
"""
