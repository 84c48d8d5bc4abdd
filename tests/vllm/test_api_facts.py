"""What we rely on in vLLM's API. A failure here means that vLLM changed, and names what."""

import random

import httpx
import pytest

from tests.vllm.conversations import messages, token_ids

BLOCK = 32


def cached(answer) -> int:
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def next_turn(first, question):
    reply = first["choices"][0]["message"]["content"]
    return [*messages("What is the capital of France?"), {"role": "assistant", "content": reply},
            {"role": "user", "content": question}]  # fmt: skip


def test_the_version_is_the_one_whose_behaviour_was_measured(roomy):
    assert httpx.get(f"{roomy.url}/version").json() == {"version": "0.32.0"}


def test_a_second_turn_is_served_from_the_prompt_and_the_reply_before_it(roomy):
    first = roomy.chat(messages("What is the capital of France?"))
    second = roomy.chat(next_turn(first, "And of Italy?"))
    assert cached(first) == 0
    known = [*first["prompt_token_ids"], *first["choices"][0]["token_ids"]][:-1]
    assert second["prompt_token_ids"][: len(known)] == known
    assert cached(second) == len(known) // BLOCK * BLOCK


def test_of_a_prompt_known_whole_the_last_token_is_computed_again(roomy):
    ids = token_ids(random.Random(1), 4 * BLOCK)
    prompts = [roomy.post("/v1/completions", prompt=ids, max_tokens=1) for _ in range(2)]
    assert [cached(p) for p in prompts] == [0, 3 * BLOCK]


def test_salts_are_separate_and_none_is_a_space_of_its_own(roomy):
    ids = token_ids(random.Random(2), 4 * BLOCK)

    def ask(**salt):
        return cached(roomy.post("/v1/completions", prompt=ids, max_tokens=1, **salt))

    assert [ask(cache_salt="a"), ask(cache_salt="a"), ask(cache_salt="b"), ask()] == [0, 96, 0, 0]


def test_an_empty_salt_is_refused(roomy):
    body = {"model": roomy.model, "prompt": [5, 6], "cache_salt": ""}
    assert httpx.post(f"{roomy.url}/v1/completions", json=body).status_code == 400


@pytest.mark.parametrize("path", ["/tokenize", "/v1/chat/completions/render"])
def test_the_server_shows_the_prompt_it_will_serve(roomy, path):
    chat = messages("Name a river.")
    shown = roomy.post(path, messages=chat, add_generation_prompt=True)
    served = roomy.chat(chat, max_tokens=1)["prompt_token_ids"]
    assert (shown.get("tokens") or shown.get("token_ids")) == served


def test_ids_in_and_ids_out_give_what_the_chat_gives(roomy):
    chat = messages("Name three colours.")
    first = roomy.chat(chat, max_tokens=8)
    body = {"token_ids": first["prompt_token_ids"], "cache_salt": "ids",
            "sampling_params": {"temperature": 0, "max_tokens": 8}}  # fmt: skip
    answer = httpx.post(f"{roomy.url}/inference/v1/generate", json=body, timeout=60).json()
    assert answer["choices"][0]["token_ids"] == first["choices"][0]["token_ids"]


def test_a_hit_gives_the_tokens_of_a_miss(roomy):
    chat = messages("Tell me about the sea, please, in one sentence.")
    miss, hit = roomy.chat(chat), roomy.chat(chat)
    assert (cached(miss), cached(hit) > 0) == (0, True)
    assert hit["choices"][0]["token_ids"] == miss["choices"][0]["token_ids"]


def test_what_the_gateway_reads_is_on_the_metrics_page(roomy):
    roomy.chat(messages("Hello."), max_tokens=1)
    page = roomy.metrics()
    missing = [name for name in (
        "vllm:cache_config_info", "vllm:num_requests_running", "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc", "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total", "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
        "vllm:num_preemptions_total", "vllm:time_to_first_token_seconds_bucket",
        "vllm:request_prefill_time_seconds_bucket", "vllm:kv_block_lifetime_seconds",
        "vllm:kv_block_idle_before_evict_seconds", "vllm:kv_block_reuse_gap_seconds",
        "process_start_time_seconds",
    ) if name not in page]  # fmt: skip
    assert missing == []
    assert 'block_size="32"' in page


def test_the_pool_holds_one_block_less_than_was_asked_for(small):
    assert small.pool()["num_free_blocks"] == 48


def test_the_event_sockets_are_told_without_dev_mode(roomy):
    told = httpx.get(f"{roomy.url}/kv_event_sources").json()["0"]
    assert (told["endpoint"], told["replay_endpoint"]) == (roomy.endpoint, roomy.replay_endpoint)
