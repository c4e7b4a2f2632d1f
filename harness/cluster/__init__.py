"""The live driver: a router that runs the policy, workers that run engines, and their wire protocol."""
