"""The load generator: replays a plan of sessions exactly on time, and knows its own error.

Runs as a process of its own (`python -m harness.loadgen JOB.json`); `harness.loadgen.job` is all that
others need to import and pulls in neither Locust nor gevent.
"""
