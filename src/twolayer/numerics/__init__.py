"""Random streams, statistics, precision, errors and files written whole."""
