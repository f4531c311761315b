"""The arguments about a job's workers and steps: how they become options, and what a quorum does."""
from __future__ import annotations

import threading
import time
import warnings

import pytest

import paramd
from paramd import counted, rounds
from paramd.counted import Tally

np = pytest.importorskip("numpy")


@pytest.fixture(autouse=True)
def nothing(monkeypatch):
    """An environment that says nothing of them."""
    for name in rounds.NAMES:
        monkeypatch.delenv(rounds.VARIABLE + name.upper(), raising=False)


# ---- options ----

def test_an_argument_becomes_an_option_of_the_job_and_none_does_not():
    given = {"quorum": 3, "grace": 0.5, "min_workers": None, "staleness": "none", "on_lost_worker": "shrink"}
    assert rounds.options(given, {"seed": 7}) == ["seed=7", "quorum=3", "grace=0.5", "staleness=none",
                                                  "on_lost_worker=shrink"]


@pytest.mark.parametrize("name", rounds.NAMES)
def test_a_variable_counts_where_the_program_gives_nothing(monkeypatch, name):
    monkeypatch.setenv("PARAMD_" + name.upper(), "2")
    assert rounds.options({}, None) == [f"{name}=2"]
    assert rounds.options({name: 1}, None) == [f"{name}=1"]
    assert rounds.options({}, [f"{name}=1"]) == [f"{name}=1"]


def test_what_is_given_twice_is_refused_by_its_name(daemon, job):
    with pytest.raises(ValueError, match=r"^quorum: it is given twice, as an argument and in options"):
        paramd.Client(daemon.url, job, quorum=3, options={"quorum": 2})


def test_an_argument_that_nobody_knows_is_a_type_error(daemon, job):
    with pytest.raises(TypeError, match=r"Client\(\) got an unexpected keyword argument 'quorom'"):
        paramd.Client(daemon.url, job, quorom=3)


@pytest.mark.parametrize(("given", "words"), [
    ({"quorum": 0}, "quorum = 0"),
    ({"quorum": True}, "quorum = yes"),
    ({"grace": -1}, "grace = -1"),
    ({"staleness": 0.5}, "staleness = 0.5"),
    ({"on_stale": "drop"}, r"on_stale = drop: expected one of refuse\|wait"),
    ({"damping": "half"}, "damping = half"),
    ({"on_lost_worker": "ignore"}, "on_lost_worker = ignore"),
    ({"rounds": "quorum"}, "quorum"),
    ({"min_workers": 3, "max_workers": 2}, "min_workers"),
    ({"quorum": 1, "options": {"aggregate": "sum"}}, "sum"),
])
def test_a_value_that_the_server_refuses_is_a_value_error_with_the_argument_s_name(daemon, job, given, words):
    with pytest.raises(ValueError, match=words):
        paramd.Client(daemon.url, job, **given)


def test_the_manual_names_every_argument():
    for name in rounds.NAMES:
        assert f"\n{name}" in rounds.__doc__, name


# ---- a quorum ----

def member(daemon, job, rank, of, **rules):
    """Joins a job of `of` workers, with the weights 0. Returns client and weights."""
    weights = {"w": np.zeros(1000, np.float32)}
    client = paramd.Client(daemon.url, job, rank=rank, world_size=of, rules="* sgd lr=1", deadline=20, **rules)
    client.declare(weights)
    return client, weights


def together(*functions):
    """Calls functions at the same time, and returns when all have returned."""
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def begun(daemon, job, of, **rules):
    """Returns the members of a job, with its weights."""
    members = [member(daemon, job, rank, of, **rules) for rank in range(of)]
    together(*(lambda one=one: one[0].init(one[1]) for one in members))
    return members


def push(one, value):
    client, weights = one
    return client.push_pull({"w": np.full(1000, value, np.float32)}, weights)


def test_a_step_with_its_quorum_does_not_wait_for_a_worker_that_sleeps(daemon, job):
    members = begun(daemon, job, 3, quorum=2)
    for step in range(5):
        for ticket in [push(members[rank], rank + 1.0) for rank in (0, 1)]:
            assert ticket.wait()["w"][:2] == (paramd.STEPPED, step + 1)
    assert members[0][1]["w"][0] == -1.5 * 5
    late = push(members[2], 100.0).wait()["w"]
    assert (late.outcome, late.step, late.age, late.counted) == (paramd.LATE, 5, 0, 2)
    assert members[2][1]["w"][0] == -1.5 * 5           # the weights of the job, with which it goes on
    for client, _ in members:
        client.close()


def test_a_late_gradient_counts_within_staleness(daemon, job):
    members = begun(daemon, job, 2, quorum=1, staleness=1)
    assert push(members[0], 1.0).wait()["w"][:2] == (paramd.STEPPED, 1)
    late = push(members[1], 3.0).wait()["w"]
    assert (late.outcome, late.step, late.age, late.counted) == (paramd.STEPPED, 2, 1, 1)
    assert members[1][1]["w"][0] == -4.0
    for client, _ in members:
        client.close()


def test_a_client_tells_the_members_of_its_job(daemon, job):
    members = begun(daemon, job, 3, quorum=1)
    for rank, one in enumerate(members):
        push(one, 1.0).wait()
        assert one[0].members == paramd.Members(3, rank, 0) and one[0].members.index == rank
        one[0].close()


def test_a_rank_that_is_always_late_is_warned_once_with_its_share(daemon, job):
    members = begun(daemon, job, 2, quorum=1)
    fast, slow = members
    tally = Tally(slow[0])
    push(slow, 1.0).wait()                              # the only one that counts
    tally.take(push(slow, 1.0).wait().values(), 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(3, 8):
            push(fast, 1.0).wait()
            if step == 3:
                push(fast, 1.0).wait()
                push(fast, 1.0).wait()
            tally.take(push(slow, 1.0).wait().values(), step)
            assert tally.last == paramd.Counted(False, 0, 1)
    assert len(caught) == 1 and issubclass(caught[0].category, paramd.ParamdWarning)
    assert "the last 3 gradients of rank 1 came too late" in str(caught[0].message)
    assert "1 of 5 steps (20 %)" in str(caught[0].message)
    for client, _ in members:
        client.close()


def test_patience_lets_a_step_wait_as_long_as_a_worker_computes(daemon, job):
    """Rank 0 can do without the answer for 2 s, so its step waits for rank 1, which comes after 0.2 s."""
    members = begun(daemon, job, 2, quorum=1, grace="auto")
    assert members[0][0].sends_patience
    first = members[0][0].push_pull({"w": np.full(1000, 1, np.float32)}, members[0][1], patience=2.0)
    time.sleep(0.2)
    assert not first.done()
    results = [push(members[1], 3.0).wait()["w"], first.wait()["w"]]
    assert [(one.outcome, one.step) for one in results] == [(paramd.STEPPED, 1)] * 2
    assert members[0][1]["w"][0] == -2.0
    for client, _ in members:
        client.close()


def test_patience_is_the_measured_time_until_the_answer_is_needed(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(counted.time, "monotonic", lambda: now[0])
    pace = counted.Pace()
    found = []
    for seconds in (1.0, 2.0, 0.0):
        pace.needed()                                   # a second wait for the same step changes nothing
        pace.sent()
        now[0] += seconds
        pace.needed()
        now[0] += 50                                    # waits do not count
        found.append(pace.patience)
    assert found == [1.0, 1.5, 0.75]


def test_a_negative_patience_is_refused_in_words(daemon, job):
    with paramd.Client(daemon.url, job) as client:
        weights = {"w": np.zeros(4, np.float32)}
        client.declare(weights)
        client.init(weights)
        with pytest.raises(paramd.InvalidArgument, match="patience: expected seconds from 0 on, got -1"):
            client.push(weights, patience=-1)


def test_ranks_of_one_group_count_together(daemon, job):
    """Two groups of two ranks, of which one group suffices: half of a group is no quorum."""
    members = [member(daemon, job, rank, 4, quorum=1, group=1 + rank // 2) for rank in range(4)]
    together(*(lambda one=one: one[0].init(one[1]) for one in members))
    half = push(members[0], 1.0)
    time.sleep(0.2)
    assert not half.done()
    results = [ticket.wait()["w"] for ticket in [push(members[1], 3.0), half]]
    assert [(one.outcome, one.step, one.counted) for one in results] == [(paramd.STEPPED, 1, 2)] * 2
    assert members[0][1]["w"][0] == -2.0
    for client, _ in members:
        client.close()


@pytest.mark.parametrize("group", [0, -1, 1 << 32])
def test_a_group_that_is_no_number_from_1_on_is_refused_in_words(daemon, job, group):
    with pytest.raises(paramd.InvalidArgument, match="group: expected a number from 1 on"):
        paramd.Client(daemon.url, job, group=group)


def test_jax_takes_the_arguments_of_rounds(daemon, job):
    jax = pytest.importorskip("jax")
    paramd_jax = pytest.importorskip("paramd.jax")
    params = {"w": jax.numpy.zeros(10)}
    remote = paramd_jax.Remote(params, "sgd", daemon.url, job=job, rank=0, world_size=2, learning_rate=1.0, quorum=1,
                               min_workers=1)
    params = remote.step(remote.pull(), {"w": jax.numpy.ones(10)})
    assert (remote.step_count, float(params["w"][0])) == (1, -1.0)
    assert (remote.counted, remote.members[:2]) == ((True, 0, 1), (2, 0))
    remote.client.close()
