"""What is asked: problem, algorithm, start, clocks."""
