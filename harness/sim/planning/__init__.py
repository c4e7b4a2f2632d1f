"""The planner: which cluster gives the most throughput within the SLO for its cost.

Candidates are screened by arithmetic (`estimate`), the best of them simulated for the highest rate within
the SLO (`search`), and the answer's sensitivity told (`sensitivity`).
"""
