"""Who continues whom, with ids and without."""

from itertools import count

import pytest

from tests.support.logged import assistant, report, request, system, tool, user
from warmturn.check.lineage import Lineage

HEAD = system("You help in a small shop. Be brief and kind to all.")
U1, A1, U2, A2, U3 = (
    user("one"),
    assistant("first"),
    user("two"),
    assistant("second"),
    user("three"),
)
TITLE = system("Write a title of three words.")


def parents(*requests):
    return {turn.request_id: turn.parent_id for turn in report(*requests).turns()}


def named(name, *messages, output=None, **fields):
    raw = None if output is None else f"{output}<|end|>"
    return request(*messages, name=name, output=raw, **fields)


@pytest.fixture(params=["ids", "no ids"])
def conversation_id(request):
    return "c" if request.param == "ids" else None


def test_turns_side_requests_and_forks_find_their_parents(conversation_id):
    log = [
        named("t1", HEAD, U1, output="first"),
        named("s1", TITLE, user("one"), output="A title"),
        named("t2", HEAD, U1, A1, U2, output="second"),
        named("fork", HEAD, U1, A1, user("else"), output="other"),
        named("t3", HEAD, U1, A1, U2, A2, U3),
        named("fork2", HEAD, U1, A1, user("else"), assistant("other"), user("on")),
    ]
    for one in log:
        object.__setattr__(one, "conversation_id", conversation_id)
    found = report(*log)
    assert {t.request_id: t.parent_id for t in found.turns()} == {
        "t1": None,
        "s1": None,
        "t2": "t1",
        "fork": "t1",
        "t3": "t2",
        "fork2": "fork",
    }
    assert (found.verdict, found.cause, found.blame) == (
        "append-only",
        "lineage.side_request_or_fork",
        "nobody",
    )


def test_a_retry_has_the_parent_of_what_it_repeats():
    log = [
        named("t1", HEAD, U1, output="first"),
        named("t2", HEAD, U1, A1, U2, output="second"),
        named("again", HEAD, U1, A1, U2, output="second, better"),
        named("t3", HEAD, U1, A1, U2, assistant("second, better"), U3),
    ]
    found = report(*log)
    relations = {t.request_id: t.relation for t in found.turns()}
    assert relations["again"] == "retry"
    assert parents(*log)["t3"] == "again"
    assert found.num_breaks == 0


def test_two_conversations_that_begin_alike_are_told_apart_by_their_answers():
    log = [
        named("a1", HEAD, user("hi"), output="hello Anna"),
        named("b1", HEAD, user("hi"), output="good day Bo"),
        named("a2", HEAD, user("hi"), assistant("hello Anna"), U2),
        named("b2", HEAD, user("hi"), assistant("good day Bo"), U2),
    ]
    assert parents(*log) == {"a1": None, "b1": None, "a2": "a1", "b2": "b1"}


def test_another_conversation_with_the_same_first_words_is_no_edited_answer():
    log = [
        named("a1", HEAD, user("hi"), output="hello Anna"),
        named("b2", HEAD, user("hi"), assistant("quite something else"), U2),
    ]
    assert parents(*log)["b2"] is None


def test_an_agent_with_other_orders_is_no_turn_of_the_same_conversation():
    log = [
        named("main", HEAD, U1, output="first", conversation_id="c"),
        named("sub", system("Search files. Print paths."), U1, A1, U2, conversation_id="c"),
    ]
    assert parents(*log)["sub"] is None


@pytest.mark.parametrize(
    "field", [{"model": "n"}, {"adapter": "n"}, {"cache_salt": "n"}], ids=lambda f: next(iter(f))
)
def test_another_model_adapter_or_salt_is_no_parent(field):
    log = [
        named("t1", HEAD, U1, output="first", model="m"),
        named("t2", HEAD, U1, A1, U2, **{"model": "m", **field}),
    ]
    found = report(*log)
    assert parents(*log)["t2"] is None
    assert found.verdict == "append-only"


def test_coming_back_to_a_model_continues_what_that_model_has():
    log = [
        named("t1", HEAD, U1, output="first", model="m"),
        named("t2", HEAD, U1, A1, U2, output="second", model="n"),
        named("t3", HEAD, U1, A1, U2, A2, U3, model="m"),
    ]
    assert parents(*log) == {"t1": None, "t2": None, "t3": "t1"}


def test_a_switch_with_a_rebuilt_system_text_is_its_own_cause_and_a_plain_one_no_break():
    other = system(HEAD["content"].replace("small", "large"))
    log = [
        named("t1", HEAD, U1, output="first", model="m"),
        named("t2", other, U1, A1, U2, model="n"),
    ]
    found = report(*log)
    assert (found.verdict, found.cause) == ("break", "client.model_switch_plus_rebuilt_system")
    plain = report(log[0], named("t2", HEAD, U1, A1, U2, model="n"))
    assert plain.verdict == "append-only"
    assert [t.cause for t in plain.turns()] == ["none", "client.model_switch"]
    assert [t.verdict for t in plain.turns()] == ["append-only", "not-comparable"]


def test_an_edited_older_message_is_an_edit_and_a_new_answer_to_it_a_fork():
    log = [
        named("t1", HEAD, U1, output="first"),
        named("t2", HEAD, U1, A1, U2, output="second"),
    ]
    edited = named("t3", HEAD, U1, A1, user("two, changed"), A2, U3)
    forked = named("t3", HEAD, U1, A1, user("what else"), assistant("something"), U3)
    assert parents(*log, edited)["t3"] == "t2"
    assert parents(*log, forked)["t3"] == "t1"


def test_a_history_that_was_replaced_altogether_is_found_by_id_or_by_its_summary():
    rounds = [U1, A1, U2, A2]
    summary = user("Summary: they counted.")
    log = [
        named("t3", HEAD, *rounds, U3, conversation_id="c"),
        named("t4", HEAD, summary, user("four"), conversation_id="c"),
    ]
    assert parents(*log)["t4"] == "t3"
    assert report(*log).cause == "client.history_summarised"
    bare = [named(r.request_id, *r.messages) for r in log]
    assert parents(*bare)["t4"] == "t3"
    no_summary = named("t4", HEAD, user("fruit?"), user("four"))
    assert parents(bare[0], no_summary)["t4"] is None
    other = named("o1", HEAD, user("another conversation"))
    assert parents(bare[0], other, bare[1])["t4"] is None


def test_a_first_message_that_lost_a_block_still_begins_the_conversation():
    block = "\n<reminder>be kind</reminder>"
    log = [
        named("t1", HEAD, user(f"what does bread cost?{block}")),
        named("t2", HEAD, user("what does bread cost?"), A1, user(f"and fruit?{block}")),
    ]
    assert parents(*log)["t2"] == "t1"
    assert report(*log).cause == "client.injected_block_moved"
    other = named("t2", HEAD, user("what does fruit cost?"), A1, U2)
    assert parents(log[0], other)["t2"] is None


def test_a_request_with_other_tools_beside_a_conversation_that_goes_on_is_a_side_request():
    tools = [tool("a"), tool("b")]
    log = [
        named("t1", HEAD, U1, output="first", tools=tools),
        named("title", HEAD, U1, A1, user("Write a title."), output="Fruit"),
        named("t2", HEAD, U1, A1, U2, tools=tools),
    ]
    found = report(*log)
    assert (found.verdict, found.cause) == ("append-only", "lineage.side_request_or_fork")
    assert {t.request_id: (t.parent_id, t.relation) for t in found.turns()} == {
        "t1": (None, "root"),
        "title": (None, "side"),
        "t2": ("t1", "fork"),
    }
    goes_on = named("title2", HEAD, U1, A1, user("Write a title."), assistant("Fruit"), U3)
    assert report(*log, goes_on).cause == "client.tools_changed"
    without_t2 = report(*log[:2])
    assert without_t2.cause == "client.tools_changed"


def test_memory_is_bounded_and_what_was_forgotten_begins_anew():
    lineage = Lineage(most_open=3)
    number = count()
    for _ in range(50):
        lineage.place(request(HEAD, user(f"question {next(number)}")))
    assert len(lineage) == 3
    assert len(lineage._by_key) <= 3 * 6
    newest = request(HEAD, user("question 49"), A1, U2)
    oldest = request(HEAD, user("question 0"), A1, U2)
    assert lineage.place(newest).parent is not None
    assert lineage.place(oldest).parent is None


def test_what_is_continued_again_and_again_is_kept():
    lineage = Lineage(most_open=4)
    root = lineage.place(request(HEAD, U1)).node
    for number in range(8):
        fork = lineage.place(request(HEAD, U1, A1, user(f"fork {number}")))
        lineage.place(request(HEAD, user(f"another {number}")))
        assert fork.parent is root


def test_an_open_conversation_is_not_forgotten_for_being_long():
    lineage = Lineage(most_open=4)
    messages = [HEAD, U1]
    for turn in range(10):
        placed = lineage.place(request(*messages))
        assert placed.node.turn == turn
        messages += [assistant(f"a{turn}"), user(f"u{turn}")]
        lineage.place(request(HEAD, user(f"another {turn}")))
