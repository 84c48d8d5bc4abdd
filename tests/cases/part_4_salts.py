"""Part 4, salts."""

import json
from typing import Any

from tests.cases.discovery import Case
from tests.cases.kv_events import events

BLOCK_SIZE = 16
SECRET = b"a key of the runner's own"


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

    return {
        "valid": {row["id"]: is_valid(row["value"]) for row in case.input["samples"]},
        "own_salts_valid": all(is_valid(_own_salt(t)) for t in case.input["tenants"]),
    }


def _own_salt(tenant: str) -> str:
    from warmturn.session.tenant import SaltKey

    return SaltKey(SECRET).salt("tenant", tenant)


def gateway_salt(case: Case) -> dict[str, Any]:
    requests = {r["id"]: r for r in case.input["requests"]}
    identity = case.input["identity"]
    strict, lenient = (
        {name: _salt_of(r, identity, anonymous) for name, r in requests.items()}
        for anonymous in ("refuse", "session")
    )
    refused = [name for name, salt in strict.items() if salt is None]
    own = [lenient[name] for name in refused]
    return {
        "equal_salt": [g for g in case.asked["equal_salt"] if _num_values(strict, g) == 1],
        "different_salt": [
            g for g in case.asked["different_salt"] if _num_values(strict, g) == len(g)
        ],
        "anonymous": refused,
        "anonymous_share_a_salt": len(set(own)) < len(own),
        "client_value_used": any(
            r["body"].get("cache_salt") in {strict[name], lenient[name]} - {None}
            for name, r in requests.items()
        ),
        "raw_identity_in_salt": any(
            _shows(salt, value.split()[-1])
            for name, r in requests.items()
            if (salt := strict[name]) is not None
            for key, value in r["headers"].items()
            if key.lower() == identity["header"].lower()
        ),
        # The value that is forwarded is the one the index is asked with: two different ones would
        # have to miss each other's blocks.
        "routing_namespace_equals_forwarded_salt": all(
            _finds_its_own_blocks(salt) for salt in lenient.values()
        ),
    }


def _salt_of(request: dict[str, Any], identity: dict[str, Any], anonymous: str) -> str | None:
    from warmturn.errors import InvalidRequest
    from warmturn.session.tenant import Anonymous, IdentityRule, SaltKey, SaltRule

    rule = SaltRule(
        key=SaltKey(SECRET),
        identity=IdentityRule(identity["header"], identity["scheme"]),
        anonymous=Anonymous(anonymous),
    )
    try:
        return rule.salt_for(request["headers"], once=request["id"].encode())
    except InvalidRequest:
        return None


def _shows(salt: str, identity: str) -> bool:
    """A short identity may stand among hexadecimal digits by chance."""
    return identity == salt or (len(identity) >= 4 and identity in salt)


def _num_values(salts: dict[str, str | None], group: list[str]) -> int:
    """Count different salts of a group; none at all where one of them was refused."""
    return 0 if None in (values := {salts[name] for name in group}) else len(values)


def _finds_its_own_blocks(salt: str | None) -> bool:
    """Announce a block as an engine does that was sent this salt, and look for it in routing."""
    import numpy as np

    from warmturn.cache.events import BlockStored, encode_batch
    from warmturn.fleet import FleetConsumer, FleetIndex, IndexScope, SourceId, index_chain
    from warmturn.types import ReplicaId

    tokens = np.arange(BLOCK_SIZE, dtype=np.int32)
    keys = None if salt is None else (salt,)
    event = BlockStored((1,), None, tokens, BLOCK_SIZE, extra_keys=(keys,))
    index, replica = FleetIndex(), ReplicaId("replica")
    FleetConsumer(index).receive(replica, 0, encode_batch([event], timestamp_s=0.0))
    chain = index_chain(tokens, IndexScope(salt=salt), block_size=BLOCK_SIZE)
    return index.match(chain).of(SourceId(replica)).device == 1


def tier_isolation(case: Case) -> dict[str, Any]:
    from warmturn.session.isolation import IsolationProbe, judge_isolation

    probes = [IsolationProbe(p["salt"], p["cached_tokens"]) for p in case.input["probes"]]
    verdict = judge_isolation(probes, case.input["store_log"])
    return {
        "isolation_holds": verdict.holds,
        "evidence": list(verdict.evidence),
        "action": verdict.action,
    }


ANSWERS = {
    "events": (events, ()),
    "namespaces": (namespaces, ()),
    "salt-format": (salt_format, ()),
    "gateway-salt": (gateway_salt, ()),
    "tier-isolation": (tier_isolation, ()),
}
