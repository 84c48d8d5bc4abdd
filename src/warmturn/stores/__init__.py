"""Where blocks lie below the device, and who moves them: the acting half of `cache.tiers`.

In come orders of `warmturn.cache.tiers.TierManager`, out goes what became of each. Stores know
blocks as runs of bytes under a key; they know no tokens, no requests and no torch, and they decide
nothing: what is kept, evicted or loaded is the manager's business.
"""
