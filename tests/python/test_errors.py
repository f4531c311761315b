"""Errors are exceptions with a code, a sentence and the parameter that the sentence names."""
from __future__ import annotations

import os
import pickle
import re
import subprocess
import warnings

import pytest

import paramd
from paramd import errors
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
        with pytest.raises(paramd.FailedPrecondition, match="already declared"):
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


# ---- names and warnings ----

def test_no_text_of_the_library_names_a_c_function_in_python():
    """Reads the texts out of the library itself: every run of printable bytes with a blank in it."""
    from paramd._library import find

    with open(find(), "rb") as file:
        texts = [text.decode() for text in re.findall(rb"[\x20-\x7e]{6,}", file.read()) if b" " in text]
    named = [text for text in texts if re.search(r"\bpd_client_[a-z]", text)]
    assert len(named) > 3, "the library's texts name functions: else this test sees nothing"
    left = [text for text in named if re.search(r"\bpd_[a-z]", errors.spelled(text))]
    assert not left
    assert errors.spelled("(pd_client_declare); pd_client_rewind goes on") == "(declare()); rewind() goes on"


def test_an_error_names_python_s_functions(daemon, job):
    weights = {"w": np.zeros(2, np.float32)}
    with paramd.Client(daemon.url, job) as client, pytest.raises(paramd.FailedPrecondition, match=r"^(?!.*pd_)"):
        client.declare(weights)
        client.rewind(weights)


def test_warnings_of_the_server_about_a_job_are_shown_once_where_the_program_calls(daemon, job):
    weights = {"w": np.zeros(2, np.float32)}
    rules = "* kron skip_zero_updates=yes"
    with pytest.warns(paramd.ParamdWarning, match=f'job {job}: rule "[*] kron skip_zero_updates=yes": skip_') as shown:
        client = paramd.Client(daemon.url, job, rules=rules)
        client.declare(weights)
    assert [warning.filename for warning in shown] == [__file__]
    client.close()
    with warnings.catch_warnings():                      # the same process, on another connection
        warnings.simplefilter("error")
        with paramd.Client(daemon.url, job, rules=rules) as again:
            again.declare(weights)


def test_a_notice_function_gets_the_warnings(daemon, job):
    told = []
    with paramd.Client(daemon.url, job, rules="* kron skip_zero_updates=yes", notice=told.append) as client:
        client.declare({"w": np.zeros(2, np.float32)})
    assert len(told) == 1 and told[0].startswith(f"warning of the server: job {job}: rule ")


def test_advice_to_use_paramctl_has_the_address(daemon, job="advice" + 200 * "x"):
    weights = {"w": np.zeros(2, np.float32)}
    left = paramd.Client(daemon.url, job, rules="* sgd lr=0.5")
    left.declare(weights)
    left.init(weights)
    left.close()                                         # without leaving: the job waits for this rank
    with pytest.raises(paramd.FailedPrecondition) as refused:
        paramd.Client(daemon.url, job, rules="* sgd lr=0.25")
    command = re.search("`(paramctl [^`]*)`", str(refused.value))[1]
    assert command == f"paramctl -s {daemon.url} drop {job}"
    subprocess.run(command, shell=True, check=True, env={**os.environ, "PATH": os.environ["PARAMD_BIN"]})
