"""The arguments about a job's workers and steps: how they become options, and what a quorum does."""
from __future__ import annotations

import threading

import pytest

import paramd
from paramd import rounds

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
    assert late[:2] == (paramd.LATE, 5)
    assert members[2][1]["w"][0] == -1.5 * 5           # the weights of the job, with which it goes on
    for client, _ in members:
        client.close()


def test_a_late_gradient_counts_within_staleness(daemon, job):
    members = begun(daemon, job, 2, quorum=1, staleness=1)
    assert push(members[0], 1.0).wait()["w"][:2] == (paramd.STEPPED, 1)
    assert push(members[1], 3.0).wait()["w"][:2] == (paramd.STEPPED, 2)
    assert members[1][1]["w"][0] == -4.0
    for client, _ in members:
        client.close()


def test_jax_takes_the_arguments_of_rounds(daemon, job):
    jax = pytest.importorskip("jax")
    paramd_jax = pytest.importorskip("paramd.jax")
    params = {"w": jax.numpy.zeros(10)}
    remote = paramd_jax.Remote(params, "sgd", daemon.url, job=job, rank=0, world_size=2, learning_rate=1.0, quorum=1,
                               min_workers=1)
    params = remote.step(remote.pull(), {"w": jax.numpy.ones(10)})
    assert (remote.step_count, float(params["w"][0])) == (1, -1.0)
    remote.client.close()
