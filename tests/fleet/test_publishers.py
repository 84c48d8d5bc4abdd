import pytest

from warmturn.errors import InvalidInput
from warmturn.fleet import is_asleep, publisher_ports, silent_publishers


def test_ports_are_the_base_plus_the_global_rank():
    assert publisher_ports(5557, range(8, 11)) == [5565, 5566, 5567]


def test_a_base_port_of_0_leaves_the_ports_to_the_system():
    assert publisher_ports(0, [0, 1]) is None


def test_ports_beyond_the_last_are_refused():
    with pytest.raises(InvalidInput, match="65536"):
        publisher_ports(65535, [0, 1])


def test_only_expected_ports_are_reported_silent():
    assert silent_publishers([5557, 5558], [5558, 9999]) == [5558]


@pytest.mark.parametrize(
    ("state", "asleep"),
    [
        ({"awake": 0, "weights_offloaded": 1}, True),
        ({"awake": 0.0, "discard_all": 1.0}, True),
        ({"awake": 0}, True),
        ({"awake": 1, "weights_offloaded": 0, "discard_all": 0}, False),
        ({}, False),
    ],
)
def test_an_engine_sleeps_when_its_metric_says_so(state, asleep):
    assert is_asleep(state) is asleep
