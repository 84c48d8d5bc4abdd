"""Part 4, salts. Built so far: what the hash chain and the salt's form decide."""

import json
from typing import Any

from tests.cases.discovery import Case

BLOCK_SIZE = 16


def namespaces(case: Case) -> dict[str, Any]:
    first = [_first_block_hash(**_fields(space)) for space in case.input["namespaces"]]
    pairs = [[_first_block_hash(**_fields(side)) for side in pair] for pair in case.input["same"]]
    return {
        "distinct_namespaces": len(set(first)),
        "equal_pairs": sum(len(set(pair)) == 1 for pair in pairs),
    }


def _fields(space: dict[str, Any]) -> dict[str, Any]:
    return {key: space[key] for key in ("extra_key", "cache_salt", "lora")}


def _first_block_hash(*, extra_key: str | None, cache_salt: str | None, lora: str | None) -> bytes:
    """Hash one fixed block in the name space.

    warmturn has no free-form extra key: it has the model, the name space around the chain.
    The case's extra key therefore goes in as part of the model's name.
    """
    import numpy as np

    from warmturn.blocks import AdapterKey, CacheScope, chain_words, scheme_named

    scope = CacheScope(
        model=json.dumps(["model", extra_key]),
        adapter=None if lora is None else AdapterKey(name=lora, path=lora),
        salt=cache_salt,
    )
    token_ids = np.arange(BLOCK_SIZE, dtype=np.int32)
    words = chain_words(token_ids, scope, block_size=BLOCK_SIZE, scheme=scheme_named("native"))
    return words[0].tobytes()


def salt_format(case: Case) -> dict[str, Any]:
    from warmturn.blocks import validate_salt
    from warmturn.errors import InvalidRequest

    def is_valid(value: Any) -> bool:
        try:
            validate_salt(value)
        except InvalidRequest:
            return False
        return True

    return {"valid": {row["id"]: is_valid(row["value"]) for row in case.input["samples"]}}


ANSWERS = {
    "namespaces": (namespaces, ()),
    # The salts of tenants are derived by the gateway, which is not built yet.
    "salt-format": (salt_format, ("own_salts_valid",)),
}
