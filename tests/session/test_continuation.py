import hashlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.soak import examples
from warmturn.session.continuation import Continuations

# A tokenizer in one line: the longest piece first. `<>` is its only special token.
PIECES = ["a", "b", "ab", "aba", "\n", "é", "<>", "long answer "]


def encode(text):
    ids = []
    while text:
        piece = max((p for p in PIECES if text.startswith(p)), key=len)
        ids.append(PIECES.index(piece))
        text = text[len(piece) :]
    return np.array(ids, np.int32)


def decode(token_ids):
    return "".join(PIECES[i] for i in token_ids)


def ids(*pieces):
    return np.array([PIECES.index(piece) for piece in pieces], np.int32)


def remembering(*turns, max_tokens=100_000):
    """Remember turns given as `(prompt pieces, reply pieces)`, or with a salt before them."""
    continuations = Continuations(max_tokens=max_tokens)
    for turn in turns:
        salt, prompt, reply = turn if len(turn) == 3 else (None, *turn)
        continuations.remember(
            salt=salt,
            prompt_text=decode(prompt),
            prompt_token_ids=prompt,
            reply_text=decode(reply),
            reply_token_ids=reply,
        )
        continuations.check()
    return continuations


def spliced(continuations, text, *, salt=None):
    prompt = continuations.splice(salt=salt, text=text, encode=encode)
    assert decode(prompt.token_ids) == text
    assert prompt.token_ids.dtype == np.int32
    return prompt


def test_a_reply_comes_back_as_it_was_generated():
    continuations = remembering((ids("b", "<>"), ids("a", "b", "<>")))
    prompt = spliced(continuations, "b<>ab<>\naba")
    assert prompt.token_ids.tolist() == ids("b", "<>", "a", "b", "<>", "\n", "aba").tolist()
    assert prompt.num_spliced_tokens == 5


def test_what_drifted_is_counted_from_the_first_difference_to_the_end_of_the_spliced_part():
    """Encoding again gives `ab` where `a`, `b` were generated: `a`, `b`, `<>` would be lost."""
    continuations = remembering((ids("b", "<>"), ids("a", "b", "<>")))
    assert spliced(continuations, "b<>ab<>\naba").num_drifted_tokens == 3


def test_a_reply_that_encodes_as_generated_is_spliced_and_saves_nothing():
    prompt = spliced(remembering((ids("b", "<>"), ids("ab", "<>"))), "b<>ab<>\n")
    assert (prompt.num_spliced_tokens, prompt.num_drifted_tokens) == (4, 0)


def test_without_splicing_the_cached_prefix_ends_where_the_reply_drifts():
    """The loss itself: two turns, plainly encoded and spliced, against what is cached."""
    first_prompt, reply = ids(*["b"] * 8, "<>"), ids(*["a", "b"] * 20, "<>")
    cached = [*first_prompt, *reply]
    text = decode(first_prompt) + decode(reply) + "\nb<>"

    def num_cached_tokens(token_ids):
        pairs = zip(cached, token_ids.tolist(), strict=False)
        return next((i for i, (one, other) in enumerate(pairs) if one != other), len(cached))

    prompt = spliced(remembering((first_prompt, reply)), text)
    assert num_cached_tokens(encode(text)) == 9
    assert num_cached_tokens(prompt.token_ids) == 50
    assert prompt.num_drifted_tokens == 50 - 9


def test_a_reply_cut_off_before_its_end_token_is_spliced():
    prompt = spliced(remembering((ids("b", "<>"), ids("a", "b"))), "b<>ab<>\n")
    assert prompt.token_ids.tolist() == ids("b", "<>", "a", "b", "<>", "\n").tolist()


def test_a_prompt_that_ends_with_the_reply_needs_no_more():
    prompt = spliced(remembering((ids("b"), ids("a", "b"))), "bab")
    assert prompt.token_ids.tolist() == ids("b", "a", "b").tolist()


def test_the_longest_remembered_beginning_wins():
    turns = [(ids("b"), ids("a", "b")), (ids("b", "a", "b", "\n"), ids("a", "b"))]
    for order in (turns, turns[::-1]):
        assert spliced(remembering(*order), "bab\nab<>").num_spliced_tokens == 6
        assert spliced(remembering(*order), "bab\nb").num_spliced_tokens == 3


def test_an_unknown_or_edited_text_is_plainly_encoded():
    continuations = remembering((ids("b", "<>"), ids("a", "b", "<>")))
    for text in ("a<>ab<>\n", "b<>aba<>", "b<>ab", "", "b"):
        prompt = spliced(continuations, text)
        assert prompt.num_spliced_tokens == prompt.num_drifted_tokens == 0
        assert prompt.token_ids.tolist() == encode(text).tolist()


def test_texts_are_cut_at_characters_whatever_their_width():
    prompt = spliced(remembering((ids("é"), ids("a", "b", "é"))), "éabéé")
    assert prompt.token_ids.tolist() == ids("é", "a", "b", "é", "é").tolist()


def test_a_salt_sees_its_own_turns_only():
    turn = (ids("b"), ids("a", "b"))
    continuations = remembering(("tenant", *turn))
    assert spliced(continuations, "bab", salt="tenant").num_spliced_tokens == 3
    for other in (None, "tenant2", "t", "none"):
        assert spliced(continuations, "bab", salt=other).num_spliced_tokens == 0
    assert spliced(remembering(turn), "bab", salt="none").num_spliced_tokens == 0


def test_two_salts_keep_different_ids_for_one_text():
    continuations = remembering(("one", ids("b"), ids("a", "b")), ("two", ids("b"), ids("ab")))
    assert (
        spliced(continuations, "bab", salt="one").token_ids.tolist() == ids("b", "a", "b").tolist()
    )
    assert spliced(continuations, "bab", salt="two").token_ids.tolist() == ids("b", "ab").tolist()


def test_neither_text_nor_salt_is_kept():
    continuations = remembering(("pepper", ids("b"), ids("long answer ", "\n")))
    kept = repr(vars(continuations)) + repr(list(continuations._turns.values()))
    assert "pepper" not in kept
    assert "answer" not in kept
    (key,) = continuations._turns
    assert key != hashlib.blake2b(b"blong answer \n", digest_size=32).digest()


def test_a_regenerated_reply_replaces_the_ids():
    continuations = remembering((ids("b"), ids("a", "b")), (ids("b"), ids("ab")))
    assert spliced(continuations, "bab").token_ids.tolist() == ids("b", "ab").tolist()


def test_a_reply_that_was_continued_keeps_its_ids():
    """The cache holds the conversation under these ids; later turns are built on them."""
    continuations = remembering(
        (ids("b"), ids("a", "b")),
        (ids("b", "a", "b", "\n"), ids("a")),
        (ids("b"), ids("ab")),
    )
    assert spliced(continuations, "bab").token_ids.tolist() == ids("b", "a", "b").tolist()
    assert (
        spliced(continuations, "bab\na").token_ids.tolist()
        == ids("b", "a", "b", "\n", "a").tolist()
    )


def test_a_conversation_costs_its_length_and_not_the_sum_of_its_prompts():
    prompt, turns = ids(*["b"] * 300), []
    for _ in range(10):
        turns.append((prompt, ids(*["a", "b"] * 100)))
        prompt = np.concatenate((*turns[-1], ids(*["\n"] * 100)))
    continuations = remembering(*turns)
    assert continuations.num_tokens == 10 * 200 + 300 + 9 * 100
    assert all(turn.own_ids.base is None for turn in continuations._turns.values())


def test_a_turn_is_stored_whole_when_its_prompt_had_other_ids_for_the_same_text():
    continuations = remembering((ids("b"), ids("a", "b")), (ids("b", "ab", "\n"), ids("a")))
    assert spliced(continuations, "bab\na").token_ids.tolist() == ids("b", "ab", "\n", "a").tolist()
    assert spliced(continuations, "bab").token_ids.tolist() == ids("b", "a", "b").tolist()


def test_the_least_recently_used_turn_goes_first():
    first, second, third = ((ids(*["b"] * n), ids("a", "b")) for n in (1, 2, 3))
    continuations = remembering(first, second, max_tokens=2 * 128)
    spliced(continuations, "bab")
    continuations.remember(
        salt=None,
        prompt_text=decode(third[0]),
        prompt_token_ids=third[0],
        reply_text="ab",
        reply_token_ids=third[1],
    )
    continuations.check()
    found = [spliced(continuations, "b" * n + "ab").num_spliced_tokens for n in (1, 2, 3)]
    assert found == [3, 0, 5]


def test_of_a_long_conversation_the_newest_turns_go_first_so_that_no_turn_loses_its_beginning():
    turns = [
        (ids("b"), ids("a", "b")),
        (ids("b", "a", "b", "\n"), ids("a")),
        (ids("b", "a", "b", "\n", "a", "\n"), ids("b")),
    ]
    continuations = remembering(*turns, max_tokens=2 * 128)
    assert spliced(continuations, "bab\na\nb").num_spliced_tokens == 5


def test_what_can_never_fit_or_holds_no_reply_is_not_remembered():
    assert remembering((ids(*["b"] * 200), ids("a")), max_tokens=200).num_tokens == 0
    assert remembering((ids("b"), ids())).num_tokens == 0


def test_the_arrays_given_may_be_reused():
    prompt, reply = ids("b"), ids("a", "b")
    continuations = remembering((prompt, reply))
    prompt[:] = reply[:] = 4
    assert spliced(continuations, "bab").token_ids.tolist() == ids("b", "a", "b").tolist()


def test_lone_surrogates_of_a_clients_json_do_no_harm():
    continuations = remembering((ids("b"), ids("a", "b")))
    text = "bab\ud800"
    prompt = continuations.splice(
        salt=None, text=text, encode=lambda text: np.arange(len(text), dtype=np.int32)
    )
    assert prompt.token_ids.tolist() == [*ids("b", "a", "b"), 0]


TOKENS = st.lists(st.integers(0, len(PIECES) - 2), min_size=1, max_size=5).map(
    lambda values: np.array(values, np.int32)
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(st.sampled_from([None, "s"]), TOKENS, TOKENS), max_size=8), TOKENS)
def test_splicing_agrees_with_trying_every_remembered_text(turns, rest):
    continuations = remembering(*turns)
    known = {}
    for salt, prompt, reply in turns:
        known.setdefault((salt, decode(prompt) + decode(reply)), []).append([*prompt, *reply])
    for salt, prompt, reply in turns:
        text = decode(prompt) + decode(reply) + decode(rest)
        longest = max(t for s, t in known if s == salt and text.startswith(t))
        result = spliced(continuations, text, salt=salt)
        head = result.token_ids[: result.num_spliced_tokens].tolist()
        assert decode(head) == max(
            (t for s, t in known if s == salt and text.startswith(t)), key=len
        )
        assert longest == decode(head)
        assert head in known[salt, decode(head)]
        assert result.token_ids[len(head) :].tolist() == encode(text[len(decode(head)) :]).tolist()
        plain = encode(text).tolist()
        agreeing = next(
            (i for i, (a, b) in enumerate(zip(head, plain, strict=False)) if a != b), len(head)
        )
        assert result.num_drifted_tokens == len(head) - agreeing


class Conversations(RuleBasedStateMachine):
    """Turns of branching conversations in too little memory; checked after every step."""

    def __init__(self):
        super().__init__()
        self.continuations = Continuations(max_tokens=6 * 128)
        self.heads = {None: [[]], "s": [[]]}

    @rule(salt=st.sampled_from([None, "s"]), choice=st.integers(0, 99), user=TOKENS, reply=TOKENS)
    def turn(self, salt, choice, user, reply):
        heads = self.heads[salt]
        text = decode(heads[choice % len(heads)]) + decode(user)
        prompt = spliced(self.continuations, text, salt=salt)
        head = prompt.token_ids[: prompt.num_spliced_tokens].tolist()
        assert head in heads
        self.continuations.remember(
            salt=salt,
            prompt_text=text,
            prompt_token_ids=prompt.token_ids,
            reply_text=decode(reply),
            reply_token_ids=reply,
        )
        heads.append([*prompt.token_ids.tolist(), *reply.tolist()])
        again = spliced(self.continuations, text + decode(reply), salt=salt)
        assert again.num_spliced_tokens == 0 or decode(again.token_ids) == text + decode(reply)

    @invariant()
    def invariants_hold(self):
        self.continuations.check()


TestConversations = Conversations.TestCase
TestConversations.settings = settings(
    max_examples=examples(60), stateful_step_count=25, deadline=None
)
