from statistics import median

import pytest

from tests.support.lru_replica import LruReplica
from warmturn.errors import InvalidInput
from warmturn.horizon import TimedPage, estimate_horizon, read_metrics_page
from warmturn.session.think_time import return_curve


def page(*, queries=0.0, hits=0.0, generated=0.0, usage=0.25, pool=1000, start=None, engine="0"):
    lines = [
        f'vllm:prefix_cache_queries_total{{engine="{engine}"}} {queries}',
        f'vllm:prefix_cache_hits_total{{engine="{engine}"}} {hits}',
        f'vllm:generation_tokens_total{{engine="{engine}"}} {generated}',
        f'vllm:kv_cache_usage_perc{{engine="{engine}"}} {usage}',
        f'vllm:cache_config_info{{engine="{engine}",kv_cache_size_tokens="{pool}"}} 1',
    ]
    if start is not None:
        lines.append(f"process_start_time_seconds {start}")
    return "\n".join([*lines, ""])


def timed(*texts, every_s=10.0):
    return [TimedPage(n * every_s, read_metrics_page(text)) for n, text in enumerate(texts)]


def growing(num, **per_page):
    return [page(**{name: n * value for name, value in per_page.items()}) for n in range(num)]


def test_the_horizon_by_hand():
    """Per 10 s: 500 looked up, 300 found, 50 generated: 25 new per second into 750 idle tokens."""
    found = estimate_horizon(timed(*growing(6, queries=500, hits=300, generated=50)))
    assert found.new_tokens_per_s == 25
    assert (found.miss_tokens_per_s, found.generated_tokens_per_s) == (20, 5)
    assert found.hit_tokens_per_s == 30
    assert (found.pool_tokens, found.pinned_tokens, found.horizon_tokens) == (1000, 250, 750)
    assert found.horizon_s == found.plain_s == 30
    assert found.least_s == 750 / (25 + 30)
    assert found.trailing_s == 30, "the last 750 tokens came in the last 30 s"
    assert found.is_steady
    assert [note.partition(":")[0] for note in found.notes] == [
        "hits take blocks out of the queue too"
    ]


def test_blocks_that_will_be_found_again_do_not_wait_for_eviction():
    """30 hit tokens per second idle for 10 s each: 300 of the 750 idle tokens leave by hits."""
    texts = [
        text
        + f"vllm:kv_block_reuse_gap_seconds_sum {100 * n}\n"
        + f"vllm:kv_block_reuse_gap_seconds_count {10 * n}\n"
        for n, text in enumerate(growing(6, queries=500, hits=300, generated=50))
    ]
    found = estimate_horizon(timed(*texts))
    assert found.horizon_s == (750 - 300) / 25
    assert found.horizon_tokens == 450
    assert found.notes == ()


def test_the_seed_s_figures_give_its_35_seconds():
    texts = [
        page(queries=50_000 * n, generated=10_000 * n, usage=120_000 / 327_000, pool=327_000)
        for n in range(6)
    ]
    assert estimate_horizon(timed(*texts)).horizon_s == pytest.approx(34.5)


def test_outputs_count_as_much_as_misses():
    found = estimate_horizon(timed(*growing(6, queries=100, generated=150)))
    assert found.new_tokens_per_s == 25


def test_the_tier_below_is_passed_by_the_same_stream():
    texts = growing(6, queries=250)
    assert estimate_horizon(timed(*texts), host_tokens=5000).host_extra_s == 200


def test_what_a_tier_below_delivers_enters_the_device_too():
    """Older names and external hits: only the device's own hits are taken off."""
    texts = [
        f"vllm:gpu_prefix_cache_queries_total {500 * n}\n"
        f"vllm:gpu_prefix_cache_hits_total {300 * n}\n"
        f"vllm:external_prefix_cache_hits_total {100 * n}\n"
        f"vllm:generation_tokens_total {50 * n}\n"
        for n in range(6)
    ]
    found = estimate_horizon(timed(*texts), pool_tokens=1000, pinned_tokens=250)
    assert found.horizon_s == 30


def test_engines_of_one_page_are_summed_and_told_apart():
    texts = []
    for n in range(6):
        first = page(queries=500 * n, hits=300 * n, generated=50 * n)
        second = page(queries=100 * n, generated=25 * n, engine="1", usage=0.5)
        texts.append(first + second)
    found = estimate_horizon(timed(*texts))
    assert found.pool_tokens == 2000
    assert found.pinned_tokens == 750
    assert found.new_tokens_per_s == 25 + 12.5
    assert found.by_engine == {"0": 30, "1": 40}


def test_a_reset_is_seen_and_what_came_after_it_counted():
    texts = growing(4, queries=500, generated=50)
    texts += [page(queries=400, generated=40), page(queries=900, generated=90)]
    found = estimate_horizon(timed(*texts))
    assert found.num_restarts == 1
    assert found.new_tokens_per_s == (4 * 550 + 440) / 50
    assert not found.is_steady
    assert any("1 restarts" in note for note in found.notes)


def test_one_engine_s_reset_leaves_the_others_counters_alone():
    def both(first, second):
        return page(queries=100 * first, generated=10 * first) + page(
            queries=100 * second, generated=10 * second, engine="1"
        )

    texts = [both(n, m) for n, m in zip((0, 1, 2, 3, 4, 5), (8, 9, 10, 1, 2, 3), strict=True)]
    found = estimate_horizon(timed(*texts))
    assert found.num_restarts == 1
    assert found.new_tokens_per_s == (5 * 110 + 5 * 110) / 50


def test_a_restart_between_equal_counters_is_seen_by_the_process_start():
    texts = [page(queries=500, generated=5, start=s) for s in (10, 10, 30, 30, 30)]
    assert estimate_horizon(timed(*texts)).num_restarts == 1


def test_a_load_that_changes_is_said_not_to_be_steady():
    texts = [page(queries=q) for q in (0, 100, 200, 300, 1300, 2300, 3300)]
    found = estimate_horizon(timed(*texts))
    assert not found.is_steady
    assert any("not steady: 10 new" in note and "100 in" in note for note in found.notes)


def test_a_window_shorter_than_the_horizon_is_said():
    found = estimate_horizon(timed(*growing(6, queries=10)))
    assert found.horizon_s == 750
    assert found.trailing_s is None
    assert any("shorter than the horizon" in note for note in found.notes)


def test_two_pages_give_a_figure_and_no_claim_of_steadiness():
    found = estimate_horizon(timed(*growing(2, queries=250)))
    assert found.horizon_s == 30
    assert not found.is_steady


def test_an_idle_server_keeps_everything():
    assert estimate_horizon(timed(*growing(6, queries=0))).horizon_s == float("inf")


def test_sglang_and_llama_cpp_are_read_too():
    sglang = [
        f"sglang_prompt_tokens_total {500 * n}\nsglang_cached_tokens_total {300 * n}\n"
        f"sglang_generation_tokens_total {50 * n}\nsglang_token_usage 0.25\n"
        "sglang_max_total_num_tokens 1000\n"
        for n in range(6)
    ]
    assert estimate_horizon(timed(*sglang)).horizon_s == 30
    llama = [
        f"llamacpp:prompt_tokens_total {200 * n}\nllamacpp:tokens_predicted_total {50 * n}\n"
        "llamacpp:kv_cache_usage_ratio 0.25\n"
        for n in range(6)
    ]
    found = estimate_horizon(timed(*llama), pool_tokens=1000)
    assert (found.horizon_s, found.hit_tokens_per_s) == (30, None)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([], "a rate needs two"),
        ([page()], "a rate needs two"),
        (["up 1\n"] * 2, "no known engine"),
        (["vllm:kv_cache_usage_perc 0.1\n"] * 2, "does not count prompt and generated tokens"),
        (
            [f"llamacpp:prompt_tokens {n}\nllamacpp:tokens_predicted {n}\n" for n in (0, 50)],
            "give --pool-tokens. It takes 10 new tokens per second",
        ),
    ],
)
def test_what_is_missing_is_named_with_what_can_still_be_said(texts, words):
    with pytest.raises(InvalidInput, match=words):
        estimate_horizon(timed(*texts))


def test_without_the_share_held_the_bound_is_said():
    texts = [f"llamacpp:prompt_tokens {250 * n}\nllamacpp:tokens_predicted 0\n" for n in range(3)]
    with pytest.raises(InvalidInput, match=r"--running. Without any the horizon is at most 40 s"):
        estimate_horizon(timed(*texts), pool_tokens=1000)


def test_pages_out_of_order_are_refused():
    first, second = timed(page(), page())
    with pytest.raises(InvalidInput, match="order of time"):
        estimate_horizon([second, first])


def test_the_engine_s_own_histogram_is_read_over_the_window():
    def with_idle(**buckets):
        rows = [
            f'vllm:kv_block_idle_before_evict_seconds_bucket{{le="{le}"}} {count}\n'
            for le, count in buckets["idle"].items()
        ]
        return page(queries=buckets["queries"]) + "".join(rows)

    old = {"10.0": 50, "20.0": 50, "+Inf": 50}
    new = {"10.0": 50, "20.0": 90, "+Inf": 90}
    found = estimate_horizon(timed(with_idle(idle=old, queries=0), with_idle(idle=new, queries=9)))
    assert found.num_evicted == 40, "the 50 of before are not of this window"
    assert found.engine_median_s == 15


def estimated(replica, **given):
    """Estimate from 200 s on; the truth is how long the blocks evicted since had lain idle."""
    texts = list(replica.pages(until_s=600, every_s=5))
    pages = [TimedPage(s, read_metrics_page(text)) for s, text in texts if s >= 200]
    truth = median(age for at, age in replica.idle_ages if at >= 200)
    return estimate_horizon(pages, **given), truth


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("new_per_s", [0.5, 1.0, 2.0])
def test_under_steady_load_it_is_within_20_percent_of_the_truth(seed, new_per_s):
    found, truth = estimated(LruReplica(new_per_s=new_per_s, seed=seed, shows_reuse_gaps=True))
    assert found.horizon_s == pytest.approx(truth, rel=0.2)
    assert found.trailing_s == pytest.approx(truth, rel=0.4), "of the last moments only"


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("new_per_s", [0.5, 1.0])
def test_think_times_stand_in_for_the_engine_s_reuse_gaps(seed, new_per_s):
    users = return_curve([5 + 55 * k / 100 for k in range(101)])
    found, truth = estimated(LruReplica(new_per_s=new_per_s, seed=seed), think_times=users)
    assert found.horizon_s == pytest.approx(truth, rel=0.2)


@pytest.mark.parametrize("think_s", [(1, 10), (5, 60), (60, 90)])
def test_the_truth_lies_between_the_ends_whatever_the_hits(think_s):
    found, truth = estimated(LruReplica(new_per_s=1.0, think_s=think_s))
    assert 0.95 * found.least_s <= truth <= 1.1 * found.plain_s


def test_many_hits_make_the_plain_figure_too_long_and_that_is_said():
    found, truth = estimated(LruReplica(new_per_s=0.5, think_s=(20, 30)))
    assert found.horizon_s == found.plain_s > 1.2 * truth
    assert any("hits take blocks out of the queue" in note for note in found.notes)


def test_a_surge_is_not_called_steady():
    replica = LruReplica(new_per_s=1.0, surge_at_s=400)
    texts = list(replica.pages(until_s=600, every_s=5))
    pages = [TimedPage(s, read_metrics_page(text)) for s, text in texts if s >= 200]
    assert not estimate_horizon(pages).is_steady
