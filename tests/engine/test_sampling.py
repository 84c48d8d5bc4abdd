import numpy as np
import pytest
import torch

from warmturn.engine.api import Choice, SamplingParams
from warmturn.engine.sampling import _candidates, sample
from warmturn.errors import BrokenInvariant

VOCAB_SIZE = 200
LOGITS = torch.randn(8, VOCAB_SIZE, generator=torch.Generator().manual_seed(3)) * 3


def choice(index=0, banned=(), **params):
    params = {"temperature": 0.0} | params
    return Choice(SamplingParams(**params), index, banned)


def tokens_of(logits, *choices):
    names = [str(row) for row in range(len(choices))]
    return [each.token_id for each in sample(logits, names, choices)]


def test_temperature_zero_takes_the_most_likely():
    assert tokens_of(LOGITS, *[choice()] * 8) == LOGITS.argmax(1).tolist()


def test_nothing_to_sample_gives_nothing():
    assert sample(LOGITS[:0], [], []) == []


def test_results_carry_the_request_they_are_for():
    sampled = sample(LOGITS[:2], ["x", "y"], [choice(), choice()])
    assert [each.request_id for each in sampled] == ["x", "y"]


@pytest.mark.parametrize("params", [{"temperature": 0.0}, {"temperature": 1.0, "seed": 5}])
def test_banned_tokens_are_never_chosen_and_others_untouched(params):
    logits = LOGITS[:2].clone()
    best = int(logits[0].argmax())
    banned = tuple(token for token in range(VOCAB_SIZE) if token != 17)
    assert tokens_of(logits, choice(banned=banned, **params), choice())[0] == 17
    assert tokens_of(logits, choice(banned=(best,)), choice()) == [
        int(logits[0].topk(2).indices[1]),
        int(logits[1].argmax()),
    ]
    assert torch.equal(logits, LOGITS[:2])  # the caller's logits are not written to


def test_a_draw_depends_on_seed_and_index_only():
    """A request draws the same alone, in a batch, and after a preemption."""
    wanted = choice(temperature=1.5, seed=11, index=4)
    alone = tokens_of(LOGITS[2:3], wanted)
    others = [choice(temperature=0.7, seed=row, top_p=0.9) for row in range(8)]
    others[2] = wanted
    assert [tokens_of(LOGITS, *others)[2]] == alone
    assert tokens_of(LOGITS[2:3], wanted) == alone
    flat = torch.zeros(1, 10_000)
    draws = {
        (seed, index): tokens_of(flat, choice(temperature=1.0, seed=seed, index=index))[0]
        for seed in (-1, 0, 1, 2**64 - 2)
        for index in (0, 1, 2)
    }
    assert len(set(draws.values())) == len(draws)


def test_a_temperature_without_a_seed_is_our_own_mistake():
    with pytest.raises(BrokenInvariant, match="without a seed"):
        tokens_of(LOGITS[:1], choice(temperature=1.0))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_tempered_distribution(temperature):
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    num_draws = 4000
    rows = [choice(temperature=temperature, seed=9, index=index) for index in range(num_draws)]
    counts = np.bincount(tokens_of(logits.expand(num_draws, -1), *rows), minlength=4)
    expected = (logits[0] / temperature).softmax(0).numpy()
    # Four standard deviations of a binomial share.
    margin = 4 * np.sqrt(expected * (1 - expected) / num_draws)
    assert (np.abs(counts / num_draws - expected) <= margin).all()


def plainly(probabilities, params):
    """Top-k, then top-p, straight from the definition."""
    order = sorted(range(len(probabilities)), key=lambda token: -probabilities[token])
    order = order[: params.top_k]
    whole = sum(float(probabilities[token]) for token in order)
    kept, mass = [], 0.0
    for token in order:
        kept.append(token)
        mass += float(probabilities[token])
        if mass >= params.top_p * whole:
            break
    return kept


@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize(
    "limits",
    [{"top_k": 1}, {"top_k": 7}, {"top_k": 5000}, {"top_p": 0.3}, {"top_p": 0.95},
     {"top_p": 1e-9}, {"top_k": 20, "top_p": 0.8}],
)  # fmt: skip
def test_top_k_and_top_p_keep_what_their_definition_keeps(limits, row):
    probabilities = LOGITS[row].softmax(0).numpy()
    params = SamplingParams(**limits)
    assert _candidates(probabilities, params).tolist() == plainly(probabilities, params)


def test_without_limits_every_token_may_come():
    probabilities = LOGITS[0].softmax(0).numpy()
    assert len(_candidates(probabilities, SamplingParams())) == VOCAB_SIZE


def test_ties_at_the_border_of_top_k_are_broken_by_id():
    probabilities = np.array([0.1, 0.3, 0.3, 0.3], np.float32)
    assert _candidates(probabilities, SamplingParams(top_k=2)).tolist() == [1, 2]


def test_a_large_temperature_cannot_overflow_or_leave_the_vocabulary():
    logits = torch.full((1, 50), -1e30)
    logits[0, 49] = 0.0
    assert tokens_of(logits, choice(temperature=1e-4, seed=1)) == [49]
    assert 0 <= tokens_of(logits, choice(temperature=1e6, seed=1))[0] < 50


def test_logprobs_are_natural_and_before_temperature_and_bans():
    best = int(LOGITS[0].argmax())
    drawn = choice(temperature=5.0, seed=2, num_logprobs=3, banned=(best,))
    (sampled,) = sample(LOGITS[:1], ["a"], [drawn])
    expected = LOGITS[0].double().log_softmax(0)
    assert sampled.logprob == pytest.approx(expected[sampled.token_id].item(), abs=1e-5)
    top = expected.topk(3)
    assert [token for token, _ in sampled.top_logprobs] == top.indices.tolist()
    assert [value for _, value in sampled.top_logprobs] == pytest.approx(
        top.values.tolist(), abs=1e-5
    )


def test_logprobs_come_only_when_asked_for():
    none, chosen = sample(LOGITS[:2], ["a", "b"], [choice(), choice(num_logprobs=0)])
    assert none.logprob is None
    assert chosen.logprob is not None
    assert none.top_logprobs == chosen.top_logprobs == ()
    (more,) = sample(LOGITS[:1, :5], ["a"], [choice(num_logprobs=20)])
    assert len(more.top_logprobs) == 5
