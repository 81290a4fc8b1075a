"""How often the poller looks."""

from __future__ import annotations

import time

from tensorboard_plugin_plumber.capture.poller import Pace


def settled(cost_s: float, *, children: bool = False, steps: float = 0.0) -> tuple[Pace, float]:
    """A pace after many looks, a second apart, and the time of the last one."""
    pace, now_s = Pace(), time.perf_counter()
    pace.begin(now_s)
    for _ in range(40):
        now_s += 1.0
        pace.looked(now_s, steps=steps, new_children=children, may_have_children=children, cost_s=cost_s)
    return pace, now_s


def test_cheap_looks_are_a_second_apart() -> None:
    pace, now_s = settled(1e-4)
    assert pace.period_s(now_s) == 1.0


def test_gaps_are_looked_at_before_they_go_by() -> None:
    pace, now_s = settled(1e-6, steps=500)
    assert abs(pace.period_s(now_s) - 0.1) < 0.01


def test_children_are_looked_at_closely() -> None:
    pace, now_s = settled(1e-4, children=True)
    assert pace.period_s(now_s) < 0.1


def test_looks_take_their_share_and_half_of_it_while_the_thread_has_taken_too_much() -> None:
    for children in (False, True):
        pace, now_s = settled(3e-3, children=children)
        usual_s = pace.period_s(now_s, 0.0)
        # 40 s at 0.3 % of a core are 0.12 s.
        assert pace.period_s(now_s, 0.11) == usual_s
        assert pace.period_s(now_s, 0.13) == 2 * usual_s


def test_a_look_that_found_everything_cold_says_nothing_of_the_next() -> None:
    pace, now_s = Pace(), time.perf_counter()
    pace.begin(now_s)
    pace.looked(now_s, steps=0, new_children=False, may_have_children=True, cost_s=None)
    assert pace.period_s(now_s) < 0.1
