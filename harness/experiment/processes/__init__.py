"""The processes of a live cell. Each reads its configuration from the first line of stdin, says 'ready'
in one line of JSON on stdout, and ends when stdin does: whatever happens to the runner, none outlives it.
"""
