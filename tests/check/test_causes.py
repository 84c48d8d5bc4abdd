"""Each cause by name, in the smallest pair that shows it, and the pairs that must stay clean."""

import pytest

from tests.support.logged import assistant, call, report, request, system, tool, turn, user
from warmturn.check import UNKNOWN

END = "<|end|>"
HEAD = system("You help in a small shop. Be brief and kind to all.")
Q1, A1, Q2 = user("one?"), assistant("first"), user("two?")

WITH_IDS = """\
{%- for m in messages %}<|{{ m.role }}|>{{ m.tool_call_id or '' }}{{ m.content }}
{%- for call in m.tool_calls or [] %}[{{ call.id }} {{ call.function.arguments | tojson }}]{% endfor %}<|end|>
{%- endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""

WITH_REASONING = """\
{%- for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}<think>{{ m.reasoning_content or '' }}</think>{% endif %}
{{- m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|><think>{% endif %}"""


def first(*messages, **fields):
    return request(*messages, **{"output": f"first{END}", **fields})


def told(found):
    """Return what a person reads of the first finding."""
    return found.cause, found.level, found.blame


def test_a_turn_that_only_appends_is_clean():
    found = turn(first(HEAD, Q1), request(HEAD, Q1, A1, Q2))
    assert (found.verdict, found.cause, found.level, found.blame) == (
        "append-only",
        "none",
        None,
        "nobody",
    )


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        ("It is 2026-11-29 10:03.", "It is 2026-11-29 10:04.", "client.timestamp_in_system"),
        ("Time: 10:03", "Time: 10:04", "client.timestamp_in_system"),
        ("Sun, 29 Nov 2026 10:03:11 GMT", "Sun, 29 Nov 2026 10:04:40 GMT", "client.timestamp_in_system"),
        ("now=1795946591", "now=1795946650", "client.timestamp_in_system"),
        ("Today is November 29, 2026.", "Today is November 30, 2026.", "client.timestamp_in_system"),
        ("Es ist Sonntag, 29. November 2026, 9.05 Uhr", "Es ist Sonntag, 29. November 2026, 9.06 Uhr", "client.timestamp_in_system"),
        ("Local time 9:41 AM", "Local time 9:42 AM", "client.timestamp_in_system"),
        ("2026-11-29T10:03:11.123456+00:00", "2026-11-29T10:04:00.998877+00:00", "client.timestamp_in_system"),
        ("request_id: 8d3f1c52-4d3e-4b6e-9a44-0f4d5f3f8a11", "request_id: 1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed", "client.volatile_value_in_system"),
        ("trace 01JDVZ8Q6H3B7M2K9XW4T5R6YE", "trace 01JDVZ9A0B1C2D3E4F5G6H7J8K", "client.volatile_value_in_system"),
        ("v=2; cch=0c1d2;", "v=2; cch=9a8b7;", "client.volatile_value_in_system"),
        ("sha256:9f86d081884c7d65", "sha256:60303ae22b998861", "client.volatile_value_in_system"),
        ("see 4bf92f3577b34da6 there", "see 0af7651916cd43dd there", "client.volatile_value_in_system"),
        ("Session nonce: kJ8sQ2xP", "Session nonce: Zr4mW9aB", "client.volatile_value_in_system"),
        ("You are answering request #41.", "You are answering request #42.", "client.volatile_value_in_system"),
        ("User: Anna Schmidt", "User: Bo Li", "client.user_data_in_system"),
        ("The customer is called Anna.", "The customer is called Bo.", "client.user_data_in_system"),
        ("Account balance: 12.50 EUR", "Account balance: 9.75 EUR", "client.user_data_in_system"),
        ("Contact: anna@example.com", "Contact: bo@example.com", "client.user_data_in_system"),
        ("light.kitchen: on", "light.kitchen: off", "client.user_data_in_system"),
        ("userName=anna", "userName=bo", "client.user_data_in_system"),
        ("Memories:\n- likes tea", "Memories:\n- likes tea\n- has a dog", "client.user_data_in_system"),
        ("Answer in one sentence and cite nothing.", "Always write long essays with many sources instead.", "client.message_edited"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "place", ["{} You help in a small shop.", "You help in a small shop.\n{}\nBe kind."]
)
def test_what_changed_in_the_system_text_is_told_by_its_kind(place, before, after, cause):
    old, new = system(place.format(before)), system(place.format(after))
    found = turn(first(old, Q1), request(new, Q1, A1, Q2))
    assert told(found) == (cause, "messages", "client")
    assert found.findings[0].message_index == 0


def test_several_causes_come_in_the_order_of_their_position():
    old = system("id=8f3a2b1c\nBe brief and help people.\nIt is 10:03 on 2026-11-29.")
    new = system("id=1c9d7e5f\nBe brief and help people.\nIt is 10:04 on 2026-11-29.")
    found = turn(first(old, Q1), request(new, Q1, assistant("other"), Q2))
    assert found.causes == (
        "client.volatile_value_in_system",
        "client.timestamp_in_system",
        "client.message_edited",
    )
    places = [finding.shared_chars for finding in found.findings]
    assert places == sorted(places)


def test_tools_in_another_order_are_the_same_set():
    tools = [tool("a"), tool("b"), tool("c")]
    found = turn(first(Q1, tools=tools), request(Q1, A1, Q2, tools=[tools[1], tools[0], tools[2]]))
    assert told(found) == ("client.tools_reordered", "messages", "client")
    assert found.findings[0].facts == {"tools_same_set": True}


@pytest.mark.parametrize(
    "later", [[tool("a")], [tool("a"), tool("b"), tool("c")], [tool("a"), tool("b", x=1)], None]
)
def test_another_set_of_tools_is_told_with_the_names(later):
    found = turn(first(Q1, tools=[tool("a"), tool("b")]), request(Q1, A1, Q2, tools=later))
    assert told(found) == ("client.tools_changed", "messages", "client")
    assert found.findings[0].facts == {"tools_same_set": False}
    assert "tools " in found.findings[0].detail


def test_keys_of_a_schema_in_another_order_break_the_text_only():
    old, new = tool("a", type="object", required=["x"]), tool("a", required=["x"], type="object")
    found = turn(first(Q1, tools=[old]), request(Q1, A1, Q2, tools=[new]))
    assert told(found) == ("client.tool_schema_key_order", "text", "client")
    assert found.are_messages_append_only


def test_what_the_template_does_not_print_is_never_flagged():
    calls = [[call("f", '{"a": 1}', call_id)] for call_id in ("c1", "other")]
    old, new = (assistant("", tool_calls=one, reasoning_content=one[0]["id"]) for one in calls)
    result = {"role": "tool", "content": "7", "tool_call_id": "c1"}
    found = turn(
        first(Q1, old, result), request(Q1, new, result | {"tool_call_id": "other"}, A1, Q2)
    )
    assert (found.verdict, found.cause) == ("append-only", "none")
    assert not found.are_messages_append_only


def test_a_rewritten_call_id_is_named_where_it_is_printed():
    old, new = (assistant("", tool_calls=[call("f", '{"a": 1}', i)]) for i in ("c1", "c9"))
    results = [{"role": "tool", "content": "7", "tool_call_id": i} for i in ("c1", "c9")]
    found = turn(first(Q1, old, results[0]), request(Q1, new, results[1], A1, Q2), WITH_IDS)
    assert told(found) == ("client.tool_call_id_rewritten", "messages", "client")
    assert len(found.causes) == 1
    assert found.findings[0].message_index == 1


def test_arguments_with_other_keys_order_and_with_other_values_are_told_apart():
    old, order, value = (
        assistant("", tool_calls=[call("f", text)])
        for text in ('{"a":1,"b":2}', '{"b":2,"a":1}', '{"a":1,"b":2.0}')
    )
    reordered = turn(first(Q1, old, user("go")), request(Q1, order, user("go"), A1, Q2))
    assert told(reordered) == ("client.tool_args_key_order", "messages", "client")
    rewritten = turn(first(Q1, old, user("go")), request(Q1, value, user("go"), A1, Q2))
    assert rewritten.cause == "client.tool_args_key_order"  # 2 and 2.0 are equal as JSON


def test_spaces_in_arguments_that_are_parsed_before_printing_make_no_difference():
    old, new = (assistant("", tool_calls=[call("f", t)]) for t in ('{"a":1}', '{ "a": 1 }'))
    assert turn(first(Q1, old, user("go")), request(Q1, new, user("go"), A1, Q2)).cause == "none"


def test_a_block_that_moves_to_the_newest_message_is_named():
    block = "<reminder>cite the order number</reminder>"
    found = turn(
        first(HEAD, user(f"one?\n\n{block}")),
        request(HEAD, Q1, A1, user(f"two?\n\n{block}")),
    )
    assert told(found) == ("client.injected_block_moved", "messages", "client")
    assert found.findings[0].message_index == 1


def test_a_message_that_moves_to_the_end_is_named():
    block = user("[open file: a.py, line 3]")
    later = request(HEAD, Q1, A1, Q2, user("[open file: a.py, line 9]"))
    found = turn(first(HEAD, Q1, block), later)
    assert told(found) == ("client.injected_block_moved", "messages", "client")


def test_a_question_that_was_replaced_is_an_edit_though_others_begin_alike():
    def ask(number):
        return user(f"please tell me the price of {number}")

    rounds = [ask(1), A1, ask(2), A1, ask(3)]
    changed = [user("something else altogether"), *rounds[1:], A1, ask(4)]
    found = turn(first(HEAD, *rounds), request(HEAD, *changed))
    assert told(found) == ("client.message_edited", "messages", "client")


def test_an_edited_message_is_named_where_nothing_more_special_fits():
    found = turn(
        first(HEAD, Q1, A1, user("go on then")),
        request(HEAD, user("one, please?"), A1, user("go on then"), assistant("first"), Q2),
    )
    assert told(found) == ("client.message_edited", "messages", "client")
    assert found.findings[0].message_index == 1
    assert "please" in found.findings[0].detail


def history(*numbers):
    """Return rounds of question and answer."""
    return [m for n in numbers for m in (user(f"question {n}"), assistant(f"answer {n}"))]


@pytest.mark.parametrize("slide", [1, 2, 3])
def test_a_window_is_told_by_how_far_it_slid(slide):
    rounds = history(1, 2, 3, 4)
    later = [HEAD, *rounds[slide:], Q1, A1, Q2]
    found = turn(first(HEAD, *rounds, Q1), request(*later))
    assert told(found) == ("client.history_window_slide", "messages", "client")
    assert found.findings[0].facts == {"slide_by_messages": slide}
    assert found.findings[0].message_index == 1


@pytest.mark.parametrize(
    "put_in",
    [
        [user("Summary: the shop sells fruit.")],
        [user("What happened?"), assistant("They talked of fruit.")],
        [system("Earlier they talked of fruit.")],
    ],
)
def test_a_summary_in_the_place_of_old_messages_is_named(put_in):
    rounds = history(1, 2, 3)
    found = turn(first(HEAD, *rounds, Q1), request(HEAD, *put_in, *rounds[4:], Q1, A1, Q2))
    assert told(found) == ("client.history_summarised", "messages", "client")


def test_a_summary_in_the_system_text_is_no_user_data():
    rounds = history(1, 2, 3)
    told_so_far = system(HEAD["content"] + "\nSummary so far: fruit was sold, and bread.")
    found = turn(first(HEAD, *rounds, Q1), request(told_so_far, *rounds[4:], Q1, A1, Q2))
    assert told(found) == ("client.history_summarised", "messages", "client")
    assert len(found.causes) == 1


def test_a_pruned_image_is_named():
    image = {"type": "image_url", "image_url": {"url": "data:,x"}}
    old = user([{"type": "text", "text": "see "}, image])
    new = user([{"type": "text", "text": "see "}, {"type": "text", "text": "(gone)"}])
    found = turn(first(HEAD, old), request(HEAD, new, A1, Q2))
    assert told(found) == ("client.image_pruned", "messages", "client")


@pytest.mark.parametrize(
    ("echo", "cause"),
    [
        (assistant("first"), "client.reasoning_not_echoed"),
        (assistant("first", thoughts="hm"), "client.reasoning_wrong_field"),
        (assistant("first", reasoning="hm"), "client.reasoning_wrong_field"),
        (assistant("first", reasoning_content="hm"), "none"),
        (assistant("fir, edited", reasoning_content="hm"), "client.message_edited"),
    ],
)
def test_reasoning_has_to_come_back_in_the_field_that_is_read(echo, cause):
    found = turn(request(Q1, output=f"hm</think>first{END}"), request(Q1, echo, Q2), WITH_REASONING)
    assert found.cause == cause
    assert found.level == (None if cause == "none" else "echo")
    if cause.startswith("client.reasoning"):
        assert "reasoning_content" in found.findings[0].detail


@pytest.mark.parametrize(
    ("output", "echo", "cause"),
    [
        ("first\n\n<|end|>", "first", "client.content_trimmed"),
        ("  first<|end|>", "first", "client.content_trimmed"),
        ("it\u2019s \u201cso\u201d<|end|>", "it's \"so\"", "client.content_normalised"),
        ("cafe\u0301<|end|>", "caf\u00e9", "client.content_normalised"),
        ("a\r\nb<|end|>", "a\nb", "client.content_normalised"),
        ("first<|end|>", "quite another", "client.message_edited"),
    ],
)  # fmt: skip
def test_the_answer_has_to_come_back_as_it_was_generated(output, echo, cause):
    found = turn(request(Q1, output=output), request(Q1, assistant(echo), Q2))
    assert told(found) == (cause, "echo", "client")
    assert found.findings[0].message_index == 1


def test_an_answer_that_was_left_out_is_named():
    found = turn(first(HEAD, Q1), request(HEAD, Q1, Q2))
    assert told(found) == ("client.message_edited", "echo", "client")
    assert "left out" in found.findings[0].detail


def test_generated_arguments_in_another_order_are_the_clients_doing():
    output = f'[f {{"b": 2, "a": 1}}]{END}'
    echo = assistant("", tool_calls=[call("f", '{"a": 1, "b": 2}')])
    found = turn(request(Q1, output=output), request(Q1, echo, user("go")))
    assert told(found) == ("client.tool_args_key_order", "echo", "client")


def test_generated_arguments_written_again_are_the_templates_doing():
    output = f'[f {{"a":1}}]{END}'
    echo = assistant("", tool_calls=[call("f", '{"a":1}')])
    found = turn(request(Q1, output=output), request(Q1, echo, user("go")))
    assert told(found) == ("template.arguments_rewritten", "text", "template")


def test_a_template_that_prints_a_string_as_it_is_blames_the_server_that_parsed_it():
    verbatim = """{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}
{%- set a = c.function.arguments %}[{{ a if a is string else a | tojson }}]{% endfor %}<|end|>{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
    echo = assistant("", tool_calls=[call("f", '{"a":1}')])
    found = turn(request(Q1, output=f'[{{"a":1}}]{END}'), request(Q1, echo, user("go")), verbatim)
    assert told(found) == ("server.arguments_reparsed", "text", "server")


TEMPLATES = {
    "template.date_in_template": "{{ strftime_now('%d %b') }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
    "template.tools_moved_to_last_turn": "{% for m in messages %}{% if tools and loop.last %}{{ tools | tojson }}{% endif %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
    "template.system_merged": "{% for m in messages[1:] %}<|{{ m.role }}|>{% if loop.last %}{{ messages[0].content }}{% endif %}{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
    "template.inserts_token_before_generated_text": "{% for m in messages %}<|{{ m.role }}|>{{ ' ' if m.role == 'assistant' }}{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
    "template.generation_prompt_not_in_history": "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|><think></think>{% endif %}",
    "unknown": "{{ messages | length }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
}  # fmt: skip


@pytest.mark.parametrize("cause", TEMPLATES)
def test_faults_of_a_template_are_its_own_when_messages_only_grow(cause):
    tools = [tool("a")]
    found = turn(
        first(HEAD, Q1, tools=tools, ts=0.0),
        request(HEAD, Q1, A1, Q2, tools=tools, ts=86400.0),
        TEMPLATES[cause],
    )
    assert told(found) == (cause, "text", "nobody" if cause == UNKNOWN else "template")
    assert found.are_messages_append_only


def test_a_template_that_trims_is_to_blame_for_white_space_sent_back_untouched():
    trims = "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    found = turn(request(Q1, output="a\n\n<|end|>"), request(Q1, assistant("a\n\n"), Q2), trims)
    assert told(found) == ("template.content_trimmed", "text", "template")


def test_arguments_to_the_template_that_change_are_the_clients():
    source = "{{ mode }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    found = turn(
        first(Q1, template_kwargs={"mode": "fast"}),
        request(Q1, A1, Q2, template_kwargs={"mode": "slow"}),
        source,
    )
    assert told(found) == ("client.template_kwargs_changed", "messages", "client")


def test_a_break_inside_the_last_generated_token_costs_nothing():
    """The last token has no keys yet: gpt-oss ends in <|return|>, history has <|end|>."""
    found = turn(request(Q1, output="first<|return|>"), request(Q1, A1, Q2))
    assert found.verdict == "append-only"


def test_a_clock_that_did_not_tick_is_a_warning():
    clock = system("Current date and time: 2026-11-29 10:03.")
    found = turn(first(clock, Q1), request(clock, Q1, A1, Q2))
    assert (found.verdict, found.latent) == ("append-only", ("client.timestamp_in_system",))


@pytest.mark.parametrize(
    "text", ["Open 9:00-17:30.", "Version 2.4.1 of 2026-01-05.", "Call 555-0100."]
)
def test_times_that_are_not_now_are_no_warning(text):
    hours = system(text)
    assert turn(first(hours, Q1), request(hours, Q1, A1, Q2)).latent == ()


def test_the_report_quotes_both_sides_and_the_field():
    old, new = system("a=1; cch=0c1d2; b"), system("a=1; cch=9a8b7; b")
    finding = turn(first(old, Q1), request(new, Q1, A1, Q2)).findings[0]
    assert "cch" in finding.detail
    assert "0c1d2" in finding.earlier_at
    assert "9a8b7" in finding.later_at


def test_a_report_becomes_json():
    found = report(first(HEAD, Q1, name="a"), request(system("x"), Q1, A1, Q2, name="b"))
    data = found.as_dict()
    assert data["conversations"][0]["turns"][0]["request_id"] == "a"
