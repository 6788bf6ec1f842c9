"""The simulation of benchmarks/scale.py: what deploys and ends of instances do to conversations."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "scale.py"


@pytest.fixture(scope="module")
def scale():
    spec = importlib.util.spec_from_file_location("benchmarks_scale", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_nothing_is_lost_where_nothing_happens(scale):
    assert scale.with_sessions(scale.World(), 500, 1) == scale.Outcome(flows=500)
    assert scale.with_tokens(scale.World(), 500, 1) == scale.Outcome(flows=500)


def test_tokens_lose_nothing(scale):
    world = scale.World(deploys=50, crashes=5_000, request=5.0)
    outcome = scale.with_tokens(world, 500, 1)
    assert (outcome.lost, outcome.asked_again) == (0, 0)
    assert outcome.sent_again > 10


def test_sessions_end_with_their_instance(scale):
    some, many = (scale.with_sessions(scale.World(deploys=count), 2_000, 1) for count in (1, 20))
    assert 0 < some.lost < many.lost
    assert 0 < some.asked_again < many.asked_again


def test_time_to_drain_saves_sessions(scale):
    world = scale.World(deploys=20)
    short, long = (scale.with_sessions(replace(world, drain=drain), 2_000, 1) for drain in (0.0, 600.0))
    assert long.lost < short.lost


def test_the_same_seed_gives_the_same_day(scale):
    world = scale.World(deploys=5, crashes=5)
    assert scale.with_sessions(world, 500, 7) == scale.with_sessions(world, 500, 7)
    assert scale.with_sessions(world, 500, 7) != scale.with_sessions(world, 500, 8)


def test_half_of_the_answers_come_within_the_time_to_think(scale):
    import random

    chance = random.Random(1)
    thoughts = sorted(each for _ in range(3_000) for each in scale.thinking(scale.World(think=60.0), chance))
    assert 55 < thoughts[len(thoughts) // 2] < 65
    assert 250 < thoughts[len(thoughts) * 9 // 10] < 350


def test_an_instance_that_drains_takes_no_new_work(scale):
    ends = scale.Ends([100.0], [130.0], [140.0])
    assert [ends.takes_work(at) for at in (99.0, 101.0, 135.0, 141.0)] == [True, False, False, True]
    assert ends.next(101.0) == 130.0


def test_the_chaos_run_is_compared_at_its_own_size(scale):
    harm = [[3.0 * n, kind] for n, kind in enumerate(["kill", "pause", "deploy", "rotate", "cut_off"] * 4)]
    tokens, sessions = scale.as_chaos({"conversations": {"flows": 500, "harm": harm}}, 1)
    assert tokens.flows == sessions.flows == 250
    assert tokens.lost == 0
    assert sessions.lost > 20


def test_the_store_is_asked_only_where_something_may_happen_once(scale):
    counted = scale.operations()
    assert counted["asking"] == 0
    assert counted["single use"] == 1
    assert counted["a step"] > 0
    assert counted["both"] == counted["single use"] + counted["a step"]
