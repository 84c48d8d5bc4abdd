import pytest

from tests.support.logged import assistant, report, request, system, user
from warmturn.check.orders import SharedOrders

RULES = "You help in a small shop. Be brief, be kind, sell fruit and bread."


@pytest.mark.parametrize(
    ("one", "two", "causes"),
    [
        ("User: Anna", "User: Bo", ("client.user_data_in_system",)),
        ("id=8f3a2b1c", "id=1c9d7e5f", ("client.volatile_value_in_system",)),
        ("It is 10:03.", "It is 10:04.", ("client.timestamp_in_system",)),
        ("Answer in rhymes.", "Quote many old books at length.", ()),
        ("same", "same", ()),
    ],
)
def test_what_keeps_two_conversations_apart_is_named_where_it_is_all(one, two, causes):
    orders = SharedOrders()
    assert orders.add(f"{one}\n{RULES}") == ()
    assert orders.add(f"{two}\n{RULES}") == causes


def test_other_orders_altogether_share_nothing_to_lose():
    orders = SharedOrders()
    orders.add(RULES)
    assert orders.add("Write a title of three words.") == ()
    assert orders.add("") == ()


def test_only_the_latest_texts_are_remembered():
    orders = SharedOrders()
    orders.add(f"User: Anna\n{RULES}")
    for number in range(40):
        orders.add(f"{number} " * 50)
    assert orders.add(f"User: Bo\n{RULES}") == ()


def test_users_that_share_nothing_are_a_finding_where_no_turn_follows_another():
    log = [
        request(
            system(f"User: {name}\n{RULES}"), user("hi"), output=f"hello {name}<|end|>", name=name
        )
        for name in ("Anna", "Bo")
    ]
    found = report(*log)
    assert (found.verdict, found.level, found.cause) == (
        "break",
        "messages",
        "client.user_data_in_system",
    )
    turn = request(*log[0].messages, assistant("hello Anna"), user("and?"), name="a2")
    with_turn = report(*log, turn)
    assert with_turn.verdict == "append-only"
    assert [t.across for t in with_turn.turns() if t.across] == [("client.user_data_in_system",)]
