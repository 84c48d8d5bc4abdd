"""Live measurements against any OpenAI-compatible server.

In: a base URL. Out: what was sent, what came back and when. Knows nothing of the
embedded engine; the same code measures vLLM.
"""
