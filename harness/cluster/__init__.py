"""The live driver: a router that runs the policy, workers that run engines, and what they say to each other."""
