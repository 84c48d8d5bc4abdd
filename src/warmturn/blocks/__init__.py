"""Token ids to the chain of block hashes that names cached content. Knows no pool."""
