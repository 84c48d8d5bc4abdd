"""A conversation moves from one engine process to another through a store both use."""

import numpy as np
import pytest

from tests.support.redis_server import redis_server
from tests.support.tiny_model_dir import write_tiny_model
from warmturn.probe.client import Client
from warmturn.probe.conversation import Shape
from warmturn.probe.local_engine import running_engine
from warmturn.probe.returning import resend

pytestmark = pytest.mark.slow

SHAPE = Shape(turns=2, system_tokens=1, user_tokens=1, reply_tokens=24)
GREEDY = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
TURN_1 = np.random.default_rng(4).integers(0, 250, 2000).tolist()


@pytest.fixture
def redis_url(tmp_path):
    with redis_server(tmp_path) as server:
        yield f"unix://{server.socket}?timeout=5"


@pytest.fixture
def folder_url(tmp_path):
    return f"file://{tmp_path}/shared"


@pytest.mark.parametrize("store", ["redis_url", "folder_url"])
def test_turn_2_on_another_engine_reloads_and_says_the_same(store, request, tmp_path):
    """float32: equal token for token to the engine that had computed turn 1 itself."""
    model = write_tiny_model(tmp_path / "tiny")
    options = ["--model", str(model), "--dtype", "float32", "--num-blocks", "400"]
    options += ["--shared-tier", request.getfixturevalue(store)]
    with (
        running_engine(*options) as one,
        running_engine(*options) as two,
        Client(one["url"]) as first,
        Client(two["url"]) as second,
    ):
        assert one["pid"] != two["pid"]
        reply = first.complete(TURN_1, cache_salt="desk", **GREEDY).token_ids
        turn_2 = [*TURN_1, *reply, *range(40)]
        stays = first.complete(turn_2, cache_salt="desk", **GREEDY)
        moves = resend(second, stays, SHAPE, salt="desk")
        stranger = resend(second, stays, SHAPE, salt="somebody else")
    known = (len(TURN_1) + 24 - 1) // 16 * 16
    assert stays.cached_tokens == known
    assert moves.answer.token_ids == stays.token_ids == stranger.answer.token_ids
    assert moves.tokens_by_source.get("external_unspecified", 0) > known // 2
    assert stranger.answer.cached_tokens == 0
