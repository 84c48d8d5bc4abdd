"""Prompts told from what is new in them equal prompts told as a whole."""

import asyncio
import json
import random

import numpy as np
import pytest

from tests.support import tiny_prompts
from tests.support.calls import call, chat
from tests.support.tiny_prompts import CHATML, FORGETS_REASONING, NOW, NUMBERED
from warmturn.fleet import IndexScope, index_chain
from warmturn.gateway import prompt_tokens
from warmturn.gateway.prompt_tokens import PromptTokens, Told
from warmturn.gateway.turns import Api

SIZES = frozenset({4, 16})
SALTED = IndexScope(salt="s")


@pytest.fixture
def prompts_for(tmp_path):
    made = []

    def build(template=CHATML, **options) -> PromptTokens:
        renderer = tiny_prompts.renderer(tmp_path, template)
        made.append(PromptTokens(renderer, today=lambda: NOW, **options))
        return made[-1]

    yield build
    for each in made:
        each.close()


def tell(prompts, body, *, session="s", scope=SALTED, sizes=SIZES, api=Api.CHAT) -> Told:
    asked = prompts.asked(call(body, api=api), session, scope)
    told = prompts.tell(asked, sizes)
    assert isinstance(told, Told), told
    prompts._states[asked.key].check()
    return told


def assert_whole(prompts, told, messages, *, scope=SALTED, sizes=SIZES, tools=None):
    ids = prompts._renderer.render(messages, now=NOW, tools=tools).token_ids
    assert told.blocks.num_tokens == len(ids)
    for size in sizes:
        expected = index_chain(ids, scope, block_size=size)
        np.testing.assert_array_equal(told.blocks.chain(size), expected)


def growing(texts, **fields):
    """Bodies of a conversation's turns: one text, three texts, five ..."""
    return [chat(*texts[: 2 * turn + 1], **fields) for turn in range((len(texts) + 1) // 2)]


TEXTS = ["hello there", "hi", "what is ab?", "two letters", "thanks", "you're welcome", "bye ✓"]


def test_each_turn_of_a_conversation_is_told_as_a_whole_prompt_would_be(prompts_for):
    prompts = prompts_for()
    for body in growing(TEXTS):
        assert_whole(prompts, tell(prompts, body), body["messages"])
    assert (prompts.num_whole, prompts.num_tails) == (1, 3)


def test_the_same_turn_again_an_edit_and_a_fork_are_told_right(prompts_for):
    prompts = prompts_for()
    bodies = growing(TEXTS)
    for body in [*bodies, bodies[-1], bodies[1], bodies[2]]:
        assert_whole(prompts, tell(prompts, body), body["messages"])
    edited = chat(*TEXTS[:4], "no, thank you")
    assert_whole(prompts, tell(prompts, edited), edited["messages"])
    other_start = chat("something else", *TEXTS[1:])
    assert_whole(prompts, tell(prompts, other_start), other_start["messages"])
    assert prompts.num_whole == 2  # the edit and the forks go on from a turn they share


@pytest.mark.parametrize("indent", [None, 2])
def test_other_fields_and_other_spacing_do_not_matter(prompts_for, indent):
    prompts = prompts_for()
    for number, body in enumerate(growing(TEXTS)):
        text = {"temperature": number, **body, "n": 1}
        made = call(json.loads(json.dumps(text, indent=indent)))
        asked = prompts.asked(made, "s", SALTED)
        assert_whole(prompts, prompts.tell(asked, SIZES), body["messages"])
    assert prompts.num_whole == 1


def test_tools_arguments_salt_and_adapter_separate_what_is_remembered(prompts_for):
    template = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}" + CHATML
    prompts = prompts_for(template)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    for scope in (SALTED, IndexScope(), IndexScope(salt="t", adapter="a")):
        for body in growing(TEXTS, tools=tools):
            told = tell(prompts, body, scope=scope)
            assert_whole(prompts, told, body["messages"], scope=scope, tools=tools)
        for body in growing(TEXTS):
            assert_whole(prompts, tell(prompts, body, scope=scope), body["messages"], scope=scope)
    assert prompts.num_whole == prompts.num_states == 6


def test_an_anthropic_conversation_is_told_with_its_system_prompt(prompts_for):
    prompts = prompts_for()
    for body in growing(TEXTS):
        told = tell(prompts, {**body, "system": "be brief"}, api=Api.MESSAGES)
        system = {"role": "system", "content": "be brief"}
        assert_whole(prompts, told, [system, *body["messages"]])
    other = tell(prompts, {**growing(TEXTS)[-1], "system": "be long"}, api=Api.MESSAGES)
    assert prompts.num_whole == 2
    assert other.blocks.num_tokens != told.blocks.num_tokens


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m"},
        {"model": "m", "messages": "hello"},
        {"model": "m", "messages": [1, 2]},
        {"model": "m", "messages": [{"content": "no role"}]},
        {"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"model": "m", "messages": []},
        chat("a", "b", continue_final_message=True),
        chat("a", chat_template_kwargs={"messages": 1}),
    ],
)
def test_what_cannot_be_told_is_left_to_bytes(prompts_for, body):
    prompts = prompts_for()
    asked = prompts.asked(call(body), "s", SALTED)
    assert asked is None or prompts.tell(asked, SIZES) is None


def test_an_image_in_a_later_turn_does_not_spoil_the_state(prompts_for):
    prompts = prompts_for()
    bodies = growing(TEXTS)
    tell(prompts, bodies[0])
    odd = chat(*TEXTS[:2], [{"type": "image_url", "image_url": {"url": "x"}}])
    assert prompts.tell(prompts.asked(call(odd), "s", SALTED), SIZES) is None
    assert_whole(prompts, tell(prompts, bodies[1]), bodies[1]["messages"])


def run_proof(told):
    """Do the work that the gateway gives to the thread, here."""
    afterwards = told.proof() if told.proof is not None else None
    if afterwards is not None:
        afterwards()


def test_a_template_that_rewrites_is_found_out_and_rendered_as_a_whole(prompts_for):
    prompts = prompts_for(NUMBERED)
    bodies = growing(TEXTS)
    for body in bodies[:3]:  # right by chance in turn 2, where the stub is as long as turn 1
        run_proof(tell(prompts, body))
    assert prompts.num_refuted == 1
    for body in bodies[1:]:
        assert_whole(prompts, tell(prompts, body), body["messages"])
    assert prompts.num_tails == 2


def test_proofs_of_a_template_that_appends_say_so(prompts_for):
    prompts = prompts_for()
    tolds = [tell(prompts, body) for body in growing(TEXTS)]
    assert [told.proof is not None for told in tolds] == [False, True, True, True]
    for told in tolds:
        run_proof(told)
    assert prompts.num_refuted == 0


def test_thoughts_that_leave_the_prompt_are_found_out_by_kind(prompts_for):
    prompts = prompts_for(FORGETS_REASONING)
    user, thinking = (
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a", "reasoning_content": "hm"},
    )
    tool = {"role": "tool", "content": "42"}
    turns = [[user], [user, thinking, tool], [user, thinking, tool, thinking, user]]
    for messages in turns:
        run_proof(tell(prompts, {"model": "m", "messages": messages}))
    assert prompts.num_refuted == 1  # the last one: it took thoughts away
    for messages in turns:
        told = tell(prompts, {"model": "m", "messages": messages}, session="again")
        assert_whole(prompts, told, messages)


def test_a_reply_is_encoded_ahead_and_held_in_blocks(prompts_for):
    prompts, held = prompts_for(), []
    body, answer = (
        chat("hello"),
        {"choices": [{"message": {"role": "assistant", "content": "a reply"}}]},
    )
    asked = prompts.asked(call(body), "s", SALTED)
    prompts.tell(asked, SIZES)
    prompts.learn_reply(asked, json.dumps(answer).encode(), held.append)()()
    later = chat("hello", "a reply", "go on")
    pieces = ["<|im_start|>assistant\na reply"]
    assert prompts._tokenizer.num_new_chars(pieces) == 0
    told = tell(prompts, later)
    shared = held[0].chain(4)
    assert len(shared) > len(prompts.peek(asked, SIZES).chain(4))
    np.testing.assert_array_equal(told.blocks.chain(4)[: len(shared)], shared)


@pytest.mark.parametrize(
    "answer",
    [b"", b"garbage", b"[]", b'{"choices": []}', b"data: {}\n\n", b"data: [DONE]\n\n", b"\xff"],
)
def test_an_answer_that_is_none_teaches_nothing(prompts_for, answer):
    prompts = prompts_for()
    asked = prompts.asked(call(chat("hello")), "s", SALTED)
    prompts.tell(asked, SIZES)
    assert prompts.learn_reply(asked, answer, pytest.fail)() is None


def test_a_streamed_reply_is_put_together(prompts_for):
    prompts, held = prompts_for(), []
    deltas = [{"role": "assistant", "content": ""}, {"content": "one "}, {"content": "two"}, {}]
    events = [{"choices": [{"index": 0, "delta": d}]} for d in deltas] + [
        {"choices": [], "usage": {}}
    ]
    answer = (
        b"".join(b"data: %b\n\n" % json.dumps(e).encode() for e in events) + b"data: [DONE]\n\n"
    )
    asked = prompts.asked(call(chat("hello")), "s", SALTED)
    prompts.tell(asked, SIZES)
    prompts.learn_reply(asked, answer, held.append)()()
    told = tell(prompts, chat("hello", "one two", "three"))
    shared = held[0].chain(4)
    np.testing.assert_array_equal(told.blocks.chain(4)[: len(shared)], shared)


def test_much_new_text_goes_to_the_thread_and_the_next_turn_finds_its_state(
    prompts_for, monkeypatch
):
    monkeypatch.setattr(prompt_tokens, "MAX_NEW_CHARS", 200)
    prompts = prompts_for()
    bodies = growing(["x" * 300, *TEXTS[1:]])
    asked = prompts.asked(call(bodies[0]), "s", SALTED)
    cold = prompts.tell(asked, SIZES)
    state, blocks = cold.result(timeout=10)
    prompts.keep(asked, state)
    assert_whole(prompts, Told(blocks), bodies[0]["messages"])
    assert_whole(prompts, tell(prompts, bodies[1]), bodies[1]["messages"])
    assert (prompts.num_cold, prompts.num_tails, prompts.num_whole) == (1, 1, 0)


def test_what_is_remembered_is_bounded(prompts_for):
    prompts = prompts_for(max_bytes=40_000)
    for number in range(200):
        for body in growing([f"conversation {number}", *TEXTS[1:4]]):
            tell(prompts, body, session=f"s{number}")
        held = sum(state.num_bytes for state in prompts._states.values())
        assert held == prompts._num_bytes <= 40_000
    assert 1 < prompts.num_states < 200
    body = growing(["conversation 0", *TEXTS[1:6]])[-1]
    assert_whole(prompts, tell(prompts, body, session="s0"), body["messages"])


def test_a_long_conversation_keeps_few_checkpoints_and_still_finds_old_turns(prompts_for):
    prompts, rng = prompts_for(), random.Random(0)
    texts = ["".join(rng.choices("ab cd", k=rng.randint(1, 30))) for _ in range(401)]
    for body in growing(texts):
        told = tell(prompts, body)
    assert_whole(prompts, told, body["messages"])
    state = next(iter(prompts._states.values()))
    assert len(state.checkpoints) <= 64
    fork = chat(*texts[:100], "elsewhere")
    assert_whole(prompts, tell(prompts, fork), fork["messages"])
    assert prompts.num_whole == 1


def test_other_block_sizes_begin_anew(prompts_for):
    prompts = prompts_for()
    bodies = growing(TEXTS)
    tell(prompts, bodies[0], sizes=frozenset({16}))
    told = tell(prompts, bodies[1], sizes=SIZES)
    assert_whole(prompts, told, bodies[1]["messages"])


def test_work_for_later_comes_back_to_the_event_loop(prompts_for):
    prompts = prompts_for()

    async def main():
        done = asyncio.Event()
        prompts.later(lambda: done.set)
        await asyncio.wait_for(done.wait(), 5)

    asyncio.run(main())
    prompts.later(pytest.fail)  # without a loop it is left undone
