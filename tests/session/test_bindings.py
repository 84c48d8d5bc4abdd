import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmturn.errors import InvalidInput
from warmturn.session.bindings import Binding, Bindings
from warmturn.types import ReplicaId

A, B = ReplicaId("a"), ReplicaId("b")


def test_a_session_is_where_it_was_bound_last():
    bindings = Bindings()
    bindings.bind("s", A, 0, num_tokens=100, now=0.0)
    bindings.bind("s", B, 1, num_tokens=300, now=5.0)
    assert bindings.get("s", now=6.0) == Binding(B, 1, 300, 5.0)
    assert bindings.get("t", now=6.0) is None
    assert (bindings.session_tokens(A, 0), bindings.session_tokens(B, 1)) == (0, 300)


def test_an_idle_session_is_forgotten_with_its_tokens():
    bindings = Bindings(idle_s=10.0)
    bindings.bind("s", A, 0, num_tokens=100, now=0.0)
    assert bindings.get("s", now=10.0) is not None
    assert bindings.get("s", now=10.1) is None
    assert (len(bindings), bindings.session_tokens(A, 0)) == (0, 0)


def test_beyond_the_bound_the_least_recently_used_goes():
    bindings = Bindings(max_sessions=2)
    for now, session in enumerate(("s", "t", "s", "u")):
        bindings.bind(session, A, 0, num_tokens=10, now=float(now))
    assert [bindings.get(s, now=4.0) is not None for s in "stu"] == [True, False, True]
    assert bindings.session_tokens(A, 0) == 20


def test_bounds_of_nothing_are_refused():
    for wrong in ({"max_sessions": 0}, {"idle_s": 0.0}):
        with pytest.raises(InvalidInput, match="above 0"):
            Bindings(**wrong)


@given(st.lists(st.tuples(st.sampled_from("stuv"), st.sampled_from([A, B]), st.integers(0, 9))))
def test_sums_and_order_hold_whatever_happens(steps):
    bindings = Bindings(max_sessions=3, idle_s=4.0)
    for now, (session, replica, num_tokens) in enumerate(steps):
        bindings.bind(session, replica, 0, num_tokens=num_tokens, now=float(now))
        bindings.check()
        if num_tokens == 0:
            bindings.forget(session)
            bindings.check()
