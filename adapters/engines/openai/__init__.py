"""A worker in front of an OpenAI-compatible server that knows nothing of it: a production vLLM, say.

Such a server gives no KV away. What "moves" between two of them are ids; the receiver's server computes
them itself, which its own prefix cache then has. So PDD works, degraded: the prompt is computed once in
each cluster. Nothing is known of the server's cache, and nothing is reported of it.
"""
