"""Errors are exceptions with a code, a sentence and the parameter that the sentence names."""
from __future__ import annotations

import pickle

import pytest

import paramd
from paramd.model import find_name

np = pytest.importorskip("numpy")


def test_every_error_is_an_error_of_paramd_and_of_python():
    for kind, python in [(paramd.DeadlineExceeded, TimeoutError), (paramd.Unavailable, ConnectionError),
                         (paramd.InvalidArgument, ValueError), (paramd.NotFound, LookupError),
                         (paramd.NoMemory, MemoryError), (paramd.PermissionDenied, PermissionError)]:
        error = kind(kind.code, "a text", "w")
        assert isinstance(error, paramd.Error) and isinstance(error, python)
        assert (str(error), error.code, error.text, error.parameter) == ("a text", kind.code, "a text", "w")


def test_errors_pass_between_processes():
    error = pickle.loads(pickle.dumps(paramd.InvalidArgument(-3, "a text", "w")))
    assert (type(error), str(error), error.code, error.parameter) == (paramd.InvalidArgument, "a text", -3, "w")


@pytest.mark.parametrize(("text", "name"), [
    ("parameter a.b: expected", "a.b"),
    ("job j has no parameter a.b", "a.b"),
    ("the push of parameter a ended with an error", "a"),
    ("parameter a.b.c has a push under way", None),
    ("parameter " + "x" * 160 + ": its optimizer", "x" * 200),
    ("a rule does not match", None),
    ("hyperparameter a of sgd", None),
    ("parameter a name with spaces: it", "a name with spaces"),
])
def test_the_parameter_is_found_in_the_text(text, name):
    assert find_name(text, ["a", "a.b", "x" * 200, "y" * 200, "a name with spaces"]) == name


def test_a_declaration_that_differs_from_the_job_names_the_parameter(daemon, job):
    first = paramd.Client(daemon.url, job, rank=0, world_size=2)
    second = paramd.Client(daemon.url, job, rank=1, world_size=2)
    first.declare({"a": np.zeros(2, np.float32), "layer.w": np.zeros((3, 4), np.float32)})
    with pytest.raises(paramd.FailedPrecondition) as caught:
        second.declare({"a": np.zeros(2, np.float32), "layer.w": np.zeros((4, 4), np.float32)})
    assert caught.value.parameter == "layer.w" and "(3, 4)" in str(caught.value)
    second.declare({"a": np.zeros(2, np.float32), "layer.w": np.zeros((3, 4), np.float32)})
    first.close()
    second.close()


def test_a_second_push_of_the_same_step_names_the_parameter(own_daemon, job):
    client = paramd.Client(own_daemon.url, job)
    weights = {"w.x": np.zeros(4, np.float32)}
    client.declare(weights)
    client.init(weights)
    own_daemon.freeze()
    ticket = client.push_pull(weights, weights)
    with pytest.raises(paramd.InvalidArgument, match="has a push under way") as caught:
        client.push(weights)
    assert caught.value.parameter == "w.x"
    own_daemon.thaw()
    ticket.wait()
    client.close()


def test_a_rule_with_an_unknown_optimizer_is_refused_at_once(daemon, job):
    with pytest.raises(paramd.Error, match="nosuch") as caught:
        paramd.Client(daemon.url, job, rules="* nosuch lr=1")
    assert caught.value.parameter is None


@pytest.mark.parametrize(("settings", "words"), [
    ({"rank": 1}, "expected both rank and world_size or neither"),
    ({"rank": 2, "world_size": 2}, "rank 2 of 2"),
    ({"options": "seed=1"}, "expected a mapping or a list"),
    ({"options": {"nosuch": 1}}, "nosuch"),
])
def test_settings_that_are_not_valid_are_refused_in_words(daemon, job, settings, words):
    with pytest.raises(paramd.Error, match=words):
        paramd.Client(daemon.url, job, **settings)


def test_calls_in_the_wrong_order_are_refused_in_words(daemon, job):
    weights = {"w": np.zeros(4, np.float32)}
    with paramd.Client(daemon.url, job) as client:
        with pytest.raises(paramd.FailedPrecondition, match="no parameters are declared yet"):
            client.init(weights)
        client.declare(weights)
        with pytest.raises(paramd.InvalidArgument, match="weights of all declared parameters, but it is missing"):
            client.init({})
        with pytest.raises(paramd.FailedPrecondition, match="declared already"):
            client.declare(weights)
        client.init(weights)
        with pytest.raises(paramd.InvalidArgument, match="expected weights for the same parameters as gradients"):
            client.push_pull(weights, {})
        with pytest.raises(paramd.InvalidArgument, match="parameter x: it is not declared; declared are w"):
            client.push({"x": weights["w"]})


def test_a_refused_declaration_can_be_corrected(daemon, job):
    with paramd.Client(daemon.url, job) as client:
        with pytest.raises(paramd.InvalidArgument) as caught:
            client.declare([paramd.Param("w", (4, 4), range=(3, 99))])
        assert caught.value.parameter == "w" and client.names == ()
        client.declare([paramd.Param("w", (4, 4), range=(0, 16))])
        assert client.names == ("w",)


def test_a_lost_job_goes_on_from_the_weights_of_the_workers(own_daemon, job):
    weights = {"w": np.zeros(4, np.float32)}
    client = paramd.Client(own_daemon.url, job, rules="* sgd lr=1")
    client.declare(weights)
    client.init(weights)
    client.push_pull({"w": np.ones(4, np.float32)}, weights).wait()
    own_daemon.restart()
    with pytest.raises(paramd.DataLoss, match="the server no longer has job"):
        client.push_pull({"w": np.ones(4, np.float32)}, weights).wait()
    client.restart(weights)
    assert client.step_of("w") == 1
    assert client.push_pull({"w": np.ones(4, np.float32)}, weights).wait()["w"].step == 2
    assert weights["w"].tolist() == [-2] * 4
    client.leave()
    client.close()


def test_a_dropped_job_is_an_error(daemon, job):
    weights = {"w": np.zeros(4, np.float32)}
    client = paramd.Client(daemon.url, job)
    client.declare(weights)
    client.init(weights)
    daemon.control("drop", job)
    with pytest.raises(paramd.Error, match="the job has ended|dropped"):
        client.push_pull(weights, weights).wait()
    client.close()
