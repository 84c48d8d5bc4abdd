import re
from html.parser import HTMLParser

from tests.support.checked import checked, clock, clock_log, conversation
from warmturn.report import check_page

VOID = {"meta", "line"}


class Page(HTMLParser):
    """Keeps tags and attributes, and fails where a tag is closed that is not open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self._open.pop() == tag


def test_the_page_is_well_formed_and_loads_nothing():
    page = "".join(check_page(clock_log()))
    parsed = Page(page)
    assert not {"script", "link", "img", "iframe"} & set(parsed.tags)
    assert not {"src", "href"} & {name for name, _ in parsed.attributes}
    assert not re.search(r"url\(|https?://|@import", page)


def test_it_has_a_plot_per_conversation_with_a_title_for_readers_without_pictures():
    page = "".join(check_page(clock_log()))
    assert page.count('<svg role="img"') == 2
    assert "Reuse per turn of clean. turn 2: 100 %, turn 3: 100 %" in page


def test_it_is_for_light_and_dark():
    assert "prefers-color-scheme: dark" in "".join(check_page(clock_log()))


def test_cause_place_cost_and_fix_are_on_it():
    page = "".join(check_page(clock_log()))
    for text in ("client.timestamp_in_system", "in messages[0]", "cached tokens", "proven by"):
        assert text in page


def test_everything_from_the_log_is_escaped():
    attack = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    requests = conversation(attack, orders=lambda turn: f"{attack} {clock(turn)} {attack}")
    page = "".join(check_page(checked(*requests, files=(attack,), rendered_with=attack)))
    parsed = Page(page)
    assert not {"script", "img"} & set(parsed.tags)
    assert not any(name.startswith("on") for name, _ in parsed.attributes)


def test_both_sides_of_a_break_are_escaped():
    """Near the break, so that the tag stands in what the page shows of the prompt."""
    log = checked(*conversation("c", orders=lambda turn: f"<b>{turn}</b> {clock(turn)}"))
    page = "".join(check_page(log))
    assert "b" not in Page(page).tags
    assert "&lt;b&gt;" in page


def test_a_clean_log_says_so():
    assert "No turn breaks." in "".join(check_page(checked(*conversation("clean"))))


def test_bad_lines_are_on_it():
    assert "log.jsonl:1: not valid JSON" in "".join(check_page(clock_log(num_bad_lines=2)))
