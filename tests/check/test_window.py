"""The smallest truncation step, counted and rendered."""

import pytest

from tests.support.logged import assistant, report, request, system, turn, user

HEAD = system("Be brief.")


def rounds(*numbers):
    return [m for n in numbers for m in (user(f"question {n}"), assistant(f"answer {n}"))]


def test_a_window_that_slides_by_a_round_has_to_be_cut_by_nine_rounds_at_once():
    """Nine appends, then a cut: nine turns of ten."""
    earlier = request(HEAD, *rounds(1, 2, 3), user("question 4"), output="answer 4<|end|>")
    later = request(HEAD, *rounds(2, 3, 4), user("question 5"))
    found = turn(earlier, later)
    window = found.fixes[0].window
    assert found.cause == "client.history_window_slide"
    assert (window.window_messages, window.step_messages) == (7, 18)
    assert window.append_share >= 0.9
    assert window.append_share_now == 0.0
    assert "18 messages beyond the 7" in found.fixes[0].change


def window_log(num_turns, *, is_cut):
    """Return a log whose history is cut at the turns that `is_cut` names."""
    body, log = [], []
    for number in range(num_turns):
        body.append(user(f"question {number}"))
        if is_cut(number):
            body = body[2:]
        log.append(request(HEAD, *body, output=f"answer {number}<|end|>", name=f"t{number}"))
        body.append(assistant(f"answer {number}"))
    return log


def test_a_window_at_every_turn_fails_and_one_cut_in_ten_turns_is_planned():
    sliding = report(*window_log(8, is_cut=lambda turn: turn >= 3))
    assert [t.is_planned for t in sliding.turns()] == [False] * 8
    assert sliding.num_failures == 5
    planned = report(*window_log(11, is_cut=lambda turn: turn == 6))
    assert planned.num_breaks == 1
    assert planned.num_failures == 0
    assert [t.request_id for t in planned.turns() if t.is_planned] == ["t6"]


def test_a_step_that_the_template_refuses_is_not_proposed():
    strict = """{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('order') }}{% endif %}
{{- m.role }}:{{ m.content }}<|end|>{% endfor %}"""
    earlier = request(*rounds(1, 2), user("question 3"), output="answer 3<|end|>")
    later = request(*rounds(2, 3), user("question 4"))
    found = turn(earlier, later, strict)
    assert found.cause == "client.history_window_slide"
    assert all(fix.window is not None for fix in found.fixes)


@pytest.mark.parametrize("num_dropped", [2, 4])
def test_the_step_follows_the_growth_of_a_turn(num_dropped):
    numbers = list(range(1, 8))
    kept = numbers[num_dropped // 2 :] + [numbers[-1] + n + 1 for n in range(num_dropped // 2)]
    earlier = request(HEAD, *rounds(*numbers), user("q"), output="a<|end|>")
    new = (
        [assistant("a"), user("r")]
        if num_dropped == 2
        else [assistant("a"), user("r"), assistant("b"), user("s")]
    )
    later = request(HEAD, *rounds(*numbers)[num_dropped:], user("q"), *new)
    window = turn(earlier, later).fixes[0].window
    assert kept
    assert window.step_messages == 9 * len(new)
