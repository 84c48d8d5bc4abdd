"""What the host's memory keeps, and when it is compared with its checksum."""

import numpy as np

from warmturn.stores.arena import FRESH_S, HostArena

OWNER, KEY = bytes(32), bytes([7]) * 32


def arena(clock=lambda: 0.0):
    made = HostArena(2, 32, OWNER, clock=clock)
    made.block(0)[:] = np.arange(32)
    return made


def test_a_changed_byte_is_seen():
    host = arena()
    host.seal(0, KEY)
    assert host.is_whole(0, KEY)
    host.block(0)[3] ^= 1
    assert not host.is_whole(0, KEY)


def test_the_same_bytes_under_another_name_are_not_that_block():
    host = arena()
    host.seal(0, KEY)
    assert not host.is_whole(0, bytes([8]) * 32)


def test_what_a_store_has_just_compared_is_compared_again_only_later():
    times = [0.0]
    host = arena(lambda: times[0])
    host.arrived(0, host.seal(0, KEY))
    host.block(0)[3] ^= 1
    assert host.is_whole(0, KEY), "not compared: it arrived a moment ago"
    times[0] = FRESH_S
    assert not host.is_whole(0, KEY)


def test_a_slot_that_is_used_again_is_compared_at_once():
    host = arena()
    host.arrived(0, 5)
    host.seal(0, KEY)
    host.block(0)[3] ^= 1
    assert not host.is_whole(0, KEY)
