"""A store that fails is left alone, longer each time, and tried with one request."""

from warmturn.cache.breaker import CircuitBreaker


def opened(**options):
    breaker = CircuitBreaker(**options)
    for _ in range(3):
        breaker.failed(10.0)
    return breaker


def test_two_failures_are_an_accident_and_three_are_not():
    breaker = CircuitBreaker()
    breaker.failed(0.0)
    breaker.failed(0.0)
    assert breaker.is_closed
    breaker.failed(0.0)
    assert not breaker.is_closed
    assert breaker.num_openings == 1


def test_only_failures_in_a_row_count():
    breaker = CircuitBreaker()
    for _ in range(5):
        breaker.failed(0.0)
        breaker.failed(0.0)
        breaker.succeeded()
    assert breaker.is_closed


def test_after_the_pause_one_caller_may_try():
    breaker = opened()
    assert not breaker.allows(14.9)
    assert breaker.allows(15.0)
    assert not breaker.allows(15.0), "the second caller waits for the first one's answer"
    breaker.succeeded()
    assert breaker.allows(15.1)
    assert breaker.is_closed


def test_each_try_that_fails_doubles_the_pause_up_to_a_limit():
    breaker, now, pauses = opened(), 10.0, []
    for _ in range(6):
        asked = now
        while not breaker.allows(now):
            now += 1.0
        pauses.append(now - asked)
        breaker.failed(now)
    assert pauses == [5, 10, 20, 40, 60, 60]


def test_late_failures_of_what_was_asked_before_do_not_lengthen_the_pause():
    breaker = opened()
    for _ in range(20):
        breaker.failed(11.0)
    assert breaker.allows(15.0)
    assert breaker.num_openings == 1


def test_a_try_that_is_never_heard_of_does_not_block_for_ever():
    breaker = opened()
    assert breaker.allows(15.0)
    assert not breaker.allows(19.9)
    assert breaker.allows(20.0)
