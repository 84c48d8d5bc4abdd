"""What of the pool others must take before a conversation is really gone."""

import pytest

from warmturn.probe.returning import evict, resend


class FakeClient:
    """Notes prompts; its metrics grow by what the test says."""

    def __init__(self, pages=()):
        self.prompts, self.salts, self.pages = [], [], list(pages)

    def complete(self, prompt, *, cache_salt, **fields):
        self.prompts.append(prompt)
        self.salts.append(cache_salt)
        return self

    def get_text(self, path):
        return self.pages.pop(0)


def facts(**changes):
    tiers = {"staging_blocks": changes.pop("staging", 0)}
    return {"num_blocks": 10, "block_size": 4, "max_model_len": 1000, "tiers": tiers} | changes


@pytest.mark.parametrize(
    ("changes", "lengths"),
    [
        ({}, [39, 39]),
        ({"staging": 30}, [39] * 4),
        ({"max_model_len": 17}, [16] * 3),
    ],
)
def test_foreign_prompts_fill_the_pool_and_what_blocks_pass_through(changes, lengths):
    """39 tokens hold 10 blocks, 9 of them full: a second prompt takes what the first left."""
    client = FakeClient()
    evict(client, facts(**changes))
    assert [len(prompt) for prompt in client.prompts] == lengths
    assert len(set(client.salts)) == len(lengths), "none is a hit of another"


def page(**counts):
    line = 'vllm:prompt_tokens_cached_by_source_total{{engine="0",source="{}"}} {}'
    return "\n".join(line.format(source, float(n)) for source, n in counts.items())


def test_where_tokens_came_from_is_what_the_counters_grew_by():
    class Recorded:
        prompt_token_ids = (1, 2, 3)

    class Shape:
        reply_tokens = 2

    client = FakeClient([page(device=5, host=10), page(device=5, host=42, disk=3)])
    returned = resend(client, Recorded, Shape, salt="a")
    assert returned.tokens_by_source == {"host": 32, "disk": 3}
    assert client.prompts == [[1, 2, 3]]
