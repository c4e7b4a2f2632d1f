"""The PDD report's results (arXiv:2609.13161), simulated and held against the report's own figures.

`targets.py` lists what is held against what, `calibration.py` reads the parameters with their sources,
and each experiment module has one function `measure(calibration, effort) -> Findings`.
"""
