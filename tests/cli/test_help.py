"""What `--help` says of `--json` is what the command writes."""

import inspect
import re

from warmturn.cli.demo import _result, _Turn, demo
from warmturn.cli.engine import engine
from warmturn.engine.assembly import EngineServer
from warmturn.probe.client import Answer
from warmturn.probe.conversation import Shape


def documented(command):
    return set(re.findall(r"\w+", command.__doc__.partition("JSON keys: ")[2].partition(".\n")[0]))


def test_the_demo_names_all_its_keys():
    answer = Answer(
        text="a",
        prompt_token_ids=(1, 2, 3),
        token_ids=(4,),
        prompt_tokens=3,
        cached_tokens=0,
        first_margin=None,
        ttft_s=0.1,
        e2e_s=0.2,
    )
    facts = {"block_size": 16, "model": "m"}
    result = _result(Shape(1, 2, 1, 1), "float32", facts, [_Turn(1, answer, answer)])
    assert documented(demo) == {*result, *result["turns"][0]}


def test_the_engine_names_all_its_keys():
    written = set(
        re.findall(r'^ +"(\w+)":', inspect.getsource(EngineServer.facts.fget), re.MULTILINE)
    )
    assert documented(engine) == written | {"url"}
