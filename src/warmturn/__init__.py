"""warmturn keeps every conversation's KV cache warm in self-hosted LLM serving.

The flow and the package that owns each step:

messages --render--> token ids --blocks--> chain of block hashes --cache--> cached prefix
--replica--> a step of prefill chunks and decodes --engine--> tokens

Importing this package loads nothing heavy: no torch, no numba, no server
(`tests/test_light_import.py` compares the loaded modules with an allow-list).
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
