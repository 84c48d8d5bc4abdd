import pytest

from warmturn.errors import PeerError
from warmturn.probe.server_prompt import ServerPrompt, server_prompt


class Answers:
    """Stands for a client: a path answers, or refuses."""

    def __init__(self, **answers):
        self.answers = {
            f"/{name.replace('__', '/').replace('_', '-')}": a for name, a in answers.items()
        }

    def try_post(self, path, body):
        return self.answers.get(path, f"{path} answered 404: ")


def test_the_first_endpoint_that_tells_ids_counts():
    client = Answers(tokenize={"tokens": [1, 2]}, apply_template={"prompt": "x"})
    assert server_prompt(client, {}) == ServerPrompt("/tokenize", (1, 2), None)


def test_what_will_be_served_counts_before_what_is_only_tokenised():
    client = Answers(tokenize={"tokens": [1, 2]}, v1__chat__completions__render={"token_ids": [3]})
    assert server_prompt(client, {}).token_ids == (3,)


def test_tools_that_are_refused_for_want_of_a_parser_are_asked_for_without_a_choice():
    class NoParser:
        def try_post(self, path, body):
            assert path == "/v1/chat/completions/render"
            return {"token_ids": [7]} if body.get("tool_choice") == "none" else "no parser"

    found = server_prompt(NoParser(), {"tools": [{"type": "function"}]})
    assert found == ServerPrompt("/v1/chat/completions/render", (7,), None)


def test_text_will_do():
    client = Answers(apply_template={"prompt": "x"})
    assert server_prompt(client, {}) == ServerPrompt("/apply-template", None, "x")


@pytest.mark.parametrize("answer", [{}, {"tokens": ["a"]}, {"tokens": 3}, {"prompt": 1}])
def test_an_answer_without_a_prompt_is_said(answer):
    with pytest.raises(PeerError, match="/tokenize told no prompt; /apply-template"):
        server_prompt(Answers(tokenize=answer), {})
