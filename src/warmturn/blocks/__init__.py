"""Token ids to the chain of block hashes that names cached content.

In go token ids and a `CacheScope` (model, adapter, images, salt); out comes one hash per full
block, each standing for its block and everything before it. Knows no pool: where the content
lies, and whether it is there at all, is `cache`'s business.
"""

from warmturn.blocks.chain import ChainBuilder, chain_words
from warmturn.blocks.keys import AdapterKey, CacheScope, ImageKey, extra_keys_of, validate_salt
from warmturn.blocks.schemes import HashScheme, scheme_named

__all__ = [
    "AdapterKey",
    "CacheScope",
    "ChainBuilder",
    "HashScheme",
    "ImageKey",
    "chain_words",
    "extra_keys_of",
    "scheme_named",
    "validate_salt",
]
