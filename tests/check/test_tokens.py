"""Breaks that only ids show, with a small tokenizer and, where they are at hand, real ones."""

from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from tests.support.logged import assistant, report, request, system, turn, user
from warmturn.check import Settings
from warmturn.check.tokens import find_token_cause
from warmturn.render import Tokenizer

END = "<|end|>"
Q1, A1, Q2 = user("one?"), assistant("first"), user("two?")
SPECIALS = (END, "<|user|>", "<|assistant|>", "<|system|>")


def small_tokenizer(*merges, normalizer=None):
    """Bytes and the given merges; specials as in the test templates."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *("".join(pair) for pair in merges)]
    vocabulary = {word: number for number, word in enumerate(words)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.normalizer = normalizer
    backend.add_special_tokens([AddedToken(s, normalized=False) for s in SPECIALS])
    return Tokenizer(backend)


PLAIN = small_tokenizer()
MERGES = small_tokenizer(("f", "i"), ("fi", "r"))
ACROSS = small_tokenizer(("Ċ", "f"))
ENDS_IN_NEWLINE = """{% for m in messages %}<|{{ m.role }}|>
{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% endif %}"""


def ids(tokenizer, text):
    return tuple(map(int, tokenizer.encode(text)))


def test_the_cost_of_a_clean_turn_is_nothing():
    found = turn(request(Q1, output=f"first{END}"), request(Q1, A1, Q2), tokenizer=PLAIN)
    prompt = len(ids(PLAIN, "<|user|>one?<|end|><|assistant|>"))
    assert found.cost.earlier_prompt_tokens == prompt
    assert found.cost.generated_tokens == len("first") + 1
    assert found.cost.shared_tokens == prompt + len("first")
    assert found.cost.lost_tokens == 0
    assert (found.verdict, found.evidence) == ("append-only", "text")


def test_generated_ids_that_encode_otherwise_are_drift_in_the_reply():
    sampled = (*ids(PLAIN, "first"), *ids(MERGES, END))
    earlier = request(Q1, output=f"first{END}", reply_token_ids=sampled)
    found = turn(earlier, request(Q1, A1, Q2), tokenizer=MERGES)
    assert (found.verdict, found.level, found.cause, found.blame) == (
        "break",
        "tokens",
        "token.retokenised_output",
        "client",
    )
    assert found.evidence == "ids"
    assert found.cost.prompt_share == 1.0
    assert found.cost.lost_tokens == len("first")
    assert "'fir'" in found.token_finding.detail


def test_ids_are_compared_before_text_where_the_log_has_them():
    earlier = request(
        Q1,
        prompt_token_ids=ids(MERGES, "<|user|>one?<|end|><|assistant|>"),
        reply_token_ids=ids(MERGES, f"first{END}"),
    )
    later = request(Q1, A1, Q2)
    assert turn(earlier, later, tokenizer=MERGES).verdict == "append-only"


def test_a_reply_that_merges_with_the_end_of_its_prompt_is_a_boundary_merge():
    prompt = "<|user|>\none?<|end|><|assistant|>\n"
    earlier = request(
        Q1,
        output=f"first{END}",
        prompt_token_ids=ids(ACROSS, prompt),
        reply_token_ids=ids(ACROSS, f"first{END}"),
    )
    found = turn(earlier, request(Q1, A1, Q2), ENDS_IN_NEWLINE, tokenizer=ACROSS)
    assert (found.level, found.cause) == ("tokens", "token.boundary_merge")
    assert found.cost.prompt_share < 1.0


def test_a_boundary_merge_is_seen_even_without_generated_ids():
    earlier = request(Q1, output=f"first{END}")
    found = turn(earlier, request(Q1, A1, Q2), ENDS_IN_NEWLINE, tokenizer=ACROSS)
    assert found.cause == "token.boundary_merge"


def test_a_tokenizer_that_normalises_cannot_give_generated_ids_back():
    normalising = small_tokenizer(normalizer=normalizers.NFC())
    sampled = (*ids(PLAIN, "cafe\u0301"), *ids(PLAIN, END))
    earlier = request(Q1, output=f"cafe\u0301{END}", reply_token_ids=sampled)
    found = turn(earlier, request(Q1, assistant("cafe\u0301"), Q2), tokenizer=normalising)
    assert (found.level, found.cause) == ("tokens", "token.unicode_normalised")


def test_broken_utf8_is_its_own_result():
    half = np.array([*ids(PLAIN, "é")][:1], np.int32)
    cached = np.concatenate([np.array(ids(PLAIN, "a"), np.int32), half])
    later = np.array(ids(PLAIN, "a\ufffdb"), np.int32)
    found = find_token_cause(cached, later, prompt_tokens=1, tokenizer=PLAIN)
    assert found.cause == "token.broken_utf8"


def test_a_stripped_reply_fails_though_the_whole_prompt_is_shared():
    long = "word " * 40
    earlier = request(system("s" * 100), Q1, output=f"{long}{END}")
    later = request(system("s" * 100), Q1, assistant("other"), Q2)
    found = turn(earlier, later, tokenizer=PLAIN)
    assert found.cost.prompt_share == 1.0
    assert found.cost.cached_share < 0.9
    assert found.is_failure
    assert not turn(earlier, later, tokenizer=PLAIN, settings=Settings(fail_under=0.1)).is_failure


def test_a_small_loss_is_a_break_and_no_failure():
    earlier = request(system("s" * 200), Q1, output=f"first\n\n{END}")
    found = turn(earlier, request(system("s" * 200), Q1, A1, Q2), tokenizer=PLAIN)
    assert (found.verdict, found.is_failure) == ("break", False)


def test_the_report_sums_tokens_and_time():
    log = [
        request(system(f"It is 10:0{n}."), *more, output=f"first{END}", name=str(n))
        for n, more in enumerate([[Q1], [Q1, A1, Q2]])
    ]
    settings = Settings(block_size=4, prefill_tokens_per_s=100.0)
    found = report(*log, tokenizer=PLAIN, settings=settings)
    (cost,) = (t.cost for t in found.turns() if t.cost is not None)
    assert found.shared_tokens == cost.shared_tokens
    assert found.cached_tokens == cost.shared_tokens + cost.lost_tokens
    assert found.lost_ttft_s == cost.lost_blocks * 4 / 100.0


def test_a_prompt_the_server_rendered_otherwise_is_the_servers():
    other = "<|user|>one?<|end|>[x]<|assistant|>"
    earlier = request(Q1, output=f"first{END}", prompt_text=other)
    found = turn(earlier, request(Q1, A1, Q2))
    assert (found.cause, found.level, found.blame) == ("server.template_differs", "text", "server")
    assert found.notes


def test_a_prompt_the_server_rendered_otherwise_all_along_is_only_a_note():
    sent = ["[x]<|user|>one?<|end|><|assistant|>"]
    sent.append(f"{sent[0]}first<|end|><|user|>two?<|end|><|assistant|>")
    earlier = request(Q1, output=f"first{END}", prompt_text=sent[0])
    found = turn(earlier, request(Q1, A1, Q2, prompt_text=sent[1]))
    assert found.verdict == "append-only"
    assert found.notes


CACHE = Path.home() / ".cache" / "warmturn-tests"
PAIRS = {
    # text in two pieces → what each family makes of the whole; see docs/design/checker.md
    "qwen3": [(".", "..."), ("}", "}"), ("json", "p"), ("Hel", "lo"), ("中", "国")],
    "deepseek": [("...", "."), ("}", "}"), ("Hel", "lo"), ("中", "国")],
    "smollm2": [("Hel", "lo"), ("}", "}"), ("\n", "\n")],
}


@pytest.mark.network
@pytest.mark.parametrize("family", PAIRS)
def test_real_tokenizers_drift_on_known_pairs(family):
    folder = CACHE / family
    if not (folder / "tokenizer.json").is_file():
        pytest.skip(f"no tokenizer of {family} in {CACHE}: run the tests of rendering first")
    tokenizer = Tokenizer.from_directory(folder)
    for left, right in PAIRS[family]:
        text = left + right
        sampled = (*ids(tokenizer, f"so {left}"), *ids(tokenizer, f"{right}{END}"))
        if sampled == ids(tokenizer, f"so {text}{END}"):
            continue  # this family keeps the pair apart
        earlier = request(Q1, output=f"so {text}{END}", reply_token_ids=sampled)
        found = turn(earlier, request(Q1, assistant(f"so {text}"), Q2), tokenizer=tokenizer)
        assert found.cause == "token.retokenised_output", (family, left, right)
        assert found.cost.prompt_share == 1.0
