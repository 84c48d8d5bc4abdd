import resource
from pathlib import Path

import numpy as np

from warmturn.engine.heap import give_back, share_arenas


def resident_mib():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def test_freed_memory_goes_back_to_the_system():
    """Small pieces stay in the heap when they are freed, until it is trimmed."""
    share_arenas(2)
    pieces = [np.ones(8000) for _ in range(2000)]  # 122 MiB in pieces of 62 KiB
    wall = np.ones(8000)  # keeps the heap from shrinking by itself
    full = resident_mib()
    del pieces
    give_back()
    assert resident_mib() < full - 90
    assert wall[0] == 1


def test_under_another_c_library_nothing_happens(monkeypatch):
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    share_arenas(2)
    give_back()
