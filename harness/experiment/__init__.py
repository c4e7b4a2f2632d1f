"""Experiments: the file, the matrix of cells, the processes of a run, and its records."""
