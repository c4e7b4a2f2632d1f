"""vLLM behind the engine port: one `LLMEngine` in this process, and a KV connector of our own.

The connector is loaded by module path, as any other would be. It never waits: what a sequence takes
from elsewhere lies in host memory before its vLLM request is made, and is written into the request's
blocks in the step that schedules it. So no request is ever parked, and nothing polls. Moving the
bytes is the worker's business (plain TCP, shaped by the link like everything else).
"""
