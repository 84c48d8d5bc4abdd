"""What `--help` says of `--json` is what the command writes."""

import inspect
import re
from dataclasses import asdict

from tests.support.calls import call
from tests.support.gateway_process import local
from warmturn.cli.demo import _result, _Turn, demo
from warmturn.cli.demo_fleet import _counted, demo_fleet
from warmturn.cli.demo_tiers import _result as tiers_result
from warmturn.cli.demo_tiers import _row, demo_tiers
from warmturn.cli.engine import engine
from warmturn.cli.replay import _data, _LogFacts, replay
from warmturn.cli.route import explain
from warmturn.cli.serve import serve
from warmturn.engine.assembly import EngineServer
from warmturn.gateway.explaining import explanation_data
from warmturn.gateway.replica_spec import ReplicaSpec
from warmturn.gateway.server import Gateway
from warmturn.gateway.steering import GatewaySteering
from warmturn.probe.client import Answer
from warmturn.probe.conversation import Shape
from warmturn.probe.fleet_talk import FleetShape, FleetTurn
from warmturn.probe.returning import Return
from warmturn.router import Affinity, Replayer
from warmturn.types import ReplicaId


def documented(command):
    return set(re.findall(r"\w+", command.__doc__.partition("JSON keys: ")[2].partition(".\n")[0]))


ANSWER = Answer(
    text="a",
    prompt_token_ids=(1, 2, 3),
    token_ids=(4,),
    prompt_tokens=3,
    cached_tokens=0,
    first_margin=None,
    ttft_s=0.1,
    e2e_s=0.2,
)


def test_the_demo_names_all_its_keys():
    answer = ANSWER
    facts = {"block_size": 16, "model": "m"}
    result = _result(Shape(1, 2, 1, 1), "float32", facts, [_Turn(1, answer, answer)])
    assert documented(demo) == {*result, *result["turns"][0]}


def test_the_tiers_demo_names_all_its_keys():
    shape = Shape(1, 2, 1, 1)
    facts = {"model": "m", "dtype": "float32", "block_size": 16, "num_blocks": 9}
    ways = [_row(way, Return(ANSWER, {}), ANSWER, "") for way in ("pool", "recomputed", "host")]
    result = tiers_result(shape, facts, ways)
    shape_keys = {"turns", "system_tokens", "user_tokens", "reply_tokens"}
    assert documented(demo_tiers) == {*result, *result["ways"][0], *shape_keys}
    assert not result["tiers_used"], "nothing came from the host, and none was faster"


def test_the_engine_names_all_its_keys():
    written = set(
        re.findall(r'^ +"(\w+)":', inspect.getsource(EngineServer.facts.fget), re.MULTILINE)
    )
    assert documented(engine) == written | {"url"}


def test_the_gateway_names_all_its_keys():
    assert documented(serve) == {*Gateway(local()).facts, "pid", "warnings", "name", "state"}


def test_the_replay_names_all_its_keys():
    result = _data(Replayer(None).result)
    assert documented(replay) == {*_LogFacts().data, *result, "log", "policies", "reproduces"}


def test_an_explanation_names_all_its_keys():
    steering = GatewaySteering(Affinity())
    steering.add_replica(ReplicaSpec(ReplicaId("a")), 0.0)
    data = explanation_data(steering.explain(call(), 0.0))
    assert documented(explain) == {*data, *data["candidates"][0]}


def test_the_fleet_demo_names_all_its_keys():
    turns = [FleetTurn(0, turn, 10, 5, 0.1) for turn in (1, 2)]
    decisions = [{"replica": "a", "reason": reason} for reason in ("kept", "new")]
    keys = {*_counted("price", turns, decisions), *asdict(FleetShape())}
    top = {"model", "replicas", "shape", "policies", "prefilled_ratio"}
    assert documented(demo_fleet) == keys | top
