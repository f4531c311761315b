"""Tests which programs go on with a job, which begin it anew, and which are refused: as processes, on one daemon."""
from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

import paramd

np = pytest.importorskip("numpy")

# Takes a step of SGD with rate 1 whenever it is told to, from weights of argument 1. Prints weight and step. EARLIER:
# number of clients of the same job that it has had before.
SCRIPT = """
import os, sys, warnings
import numpy
import paramd
warnings.showwarning = lambda text, *_: print("warning:", text, flush=True)
weights = {"w": numpy.full(2, float(sys.argv[1]), numpy.float32)}
try:
    job = os.environ.get("PARAMD_JOB")
    for _ in range(int(os.environ.get("EARLIER", "0"))):
        paramd.Client(job=job).leave()
    client = paramd.Client(job=job, rules="* sgd lr=1", deadline=5)
    client.declare(weights)
    client.init(weights)
except paramd.Error as error:
    print(type(error).__name__, error, flush=True)
    sys.exit(3)
print(client.job, flush=True)
print(float(weights["w"][0]), client.step_of("w"), flush=True)
for line in sys.stdin:
    if line == "leave\\n":
        client.leave()
        break
    client.push_pull({"w": numpy.ones(2, numpy.float32)}, weights).wait()
    print(float(weights["w"][0]), client.step_of("w"), flush=True)
"""
LAUNCHED = ("KUBERNETES_", "PARAMD_", "SLURM_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "MASTER_", "LOCAL_")


class Script:
    """A process that runs SCRIPT."""

    def __init__(self, daemon, begin, *prefix, **variables):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(LAUNCHED) or name == "PARAMD_LIBRARY"}
        self.process = subprocess.Popen([*prefix, sys.executable, "-c", SCRIPT, str(begin)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={**kept, "PARAMD_URL": daemon.url, **variables})
        self.warnings = []

    def line(self):
        line = self.process.stdout.readline().strip()
        while line.startswith("warning: "):
            self.warnings.append(line)
            line = self.process.stdout.readline().strip()
        return line

    def begun(self):
        """Returns weight and step with which it has begun."""
        self.job = self.line()
        return self.line()

    def step(self):
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        return self.line()

    def leave(self):
        out, err = self.process.communicate("leave\n")
        assert self.process.returncode == 0, (out, err)
        return err

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def error(self):
        out, err = self.process.communicate()
        assert self.process.returncode == 3, (out, err)
        return out.strip().splitlines()[-1]


def trained(daemon, begin, *prefix, **variables):
    """Returns a script that has taken two steps."""
    script = Script(daemon, begin, *prefix, **variables)
    assert script.begun() == f"{float(begin)} 0", script.process.communicate()
    assert [script.step(), script.step()] == [f"{begin - 1.0} 1", f"{begin - 2.0} 2"]
    return script


TORCHRUN = {"TORCHELASTIC_RUN_ID": "launch-1", "RANK": "0", "WORLD_SIZE": "1"}
SRUN = {"SLURM_JOB_ID": "901", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}


def test_scripts_without_a_name_do_not_meet(daemon):
    first = trained(daemon, 5)
    second = trained(daemon, 7)
    assert first.job != second.job and str(first.process.pid) in first.job
    assert first.step() == "2.0 3"
    first.leave()
    second.leave()


def test_a_script_that_is_started_again_after_its_end_begins_anew(daemon, job):
    trained(daemon, 5, PARAMD_JOB=job).leave()
    trained(daemon, 7, PARAMD_JOB=job).leave()


def test_a_second_script_of_the_same_name_is_refused_in_words_and_the_first_one_goes_on(daemon, job):
    first = trained(daemon, 5, PARAMD_JOB=job)
    error = Script(daemon, 7, PARAMD_JOB=job).error()
    assert error.startswith("AlreadyExists ") and job in error and str(first.process.pid) in error
    assert "PARAMD_JOB" in error
    assert [first.step(), first.step()] == ["2.0 3", "1.0 4"]
    first.leave()


@pytest.mark.parametrize(("before", "after"), [
    ({}, {}),                                           # a container that is started anew, with a job's name
    (TORCHRUN, {**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "1"}),
    (SRUN, {**SRUN, "SLURM_RESTART_COUNT": "1"}),
])
def test_a_script_that_was_killed_and_comes_back_goes_on(daemon, job, before, after):
    own = {"PARAMD_JOB": job}
    trained(daemon, 5, **own, **before).kill()
    again = Script(daemon, 7, **own, **after)
    assert again.begun() == "3.0 2"
    assert bool(again.warnings) == (not before)         # who it is, is not known for sure
    assert all(f"job {job} is at step 2" in text and "PARAMD_RESUME=0" in text for text in again.warnings)
    assert not again.leave()                            # nothing on standard error


CONTAINER = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
needs_containers = pytest.mark.skipif(subprocess.run([*CONTAINER, "true"], check=False, capture_output=True).returncode
                                      != 0, reason="unshare makes no namespace of processes here")


@needs_containers
def test_process_1_of_a_container_goes_on_with_its_job_when_the_container_is_started_anew(daemon):
    first = trained(daemon, 5, *CONTAINER)
    first.kill()
    again = Script(daemon, 7, *CONTAINER)
    assert again.begun() == "3.0 2" and again.job == first.job and len(again.warnings) == 1
    again.leave()


@needs_containers
def test_process_1_that_is_one_of_several_ranks_is_told_that_it_needs_a_daemons_address(daemon):
    one_of_two = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}
    error = Script(daemon, 5, *CONTAINER, **{**one_of_two, "PARAMD_URL": ""}).error()
    assert error.startswith("FailedPrecondition this run has 2 ranks") and "set PARAMD_URL=tcp://HOST:7070" in error


@pytest.mark.parametrize("launch", [TORCHRUN, SRUN])
def test_a_program_that_had_begun_a_job_anew_begins_it_anew_when_it_is_started_again(daemon, job, launch):
    """Its first client meets the job that the second one has left behind."""
    own = {"PARAMD_JOB": job, **launch}
    trained(daemon, 5, EARLIER="1", **own).kill()
    trained(daemon, 7, **own).leave()


def test_a_launch_does_not_go_on_with_another_launchs_job_unless_it_says_so(daemon, job):
    trained(daemon, 5, PARAMD_JOB=job, **TORCHRUN).kill()
    other = {**TORCHRUN, "TORCHELASTIC_RUN_ID": "launch-2", "PARAMD_JOB": job}
    error = Script(daemon, 7, **other).error()
    assert error.startswith("FailedPrecondition ") and job in error and "step 2" in error
    again = Script(daemon, 7, **other, PARAMD_RESUME="1")
    assert again.begun() == "3.0 2" and not again.warnings
    again.kill()
    trained(daemon, 7, **TORCHRUN, PARAMD_JOB=job, PARAMD_RESUME="0").leave()


def test_ranks_that_nothing_brings_together_are_told_how_to_find_each_other(daemon, monkeypatch):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "PARAMD_URL": daemon.url}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(paramd.DeadlineExceeded, match=r"find each other by the process .*set PARAMD_JOB"):
        paramd.Client(deadline=0.3, joins=True)


def test_resume_without_a_name_is_refused_in_words(daemon):
    with pytest.raises(paramd.InvalidArgument, match=r"resume=True: expected the name of the job"):
        paramd.Client(daemon.url, resume=True)
    with pytest.raises(paramd.InvalidArgument, match=r"resume: expected None, True or False, got 'yes'"):
        paramd.Client(daemon.url, "a", resume="yes")


# ---- in one program ----

def begin(daemon, job, value, **options):
    """Joins a job with weights of a value. Returns the client, and the weights that it has then."""
    weights = {"w": np.full(2, value, np.float32)}
    client = paramd.Client(daemon.url, job, rules="* sgd lr=1", **options)
    client.declare(weights)
    client.init(weights)
    return client, weights


def test_each_client_of_a_program_has_a_job_of_its_own(daemon):
    clients = [begin(daemon, None, value)[0] for value in (1, 2, 3)]
    first, *others = [client.job for client in clients]
    assert others == [f"{first}.2", f"{first}.3"]
    for client in clients:
        client.leave()
        client.close()


def test_a_name_that_comes_again_begins_the_job_anew_and_the_earlier_client_says_so(daemon, job):
    first, weights = begin(daemon, job, 5)
    first.push_pull({"w": np.ones(2, np.float32)}, weights).wait()
    second, weights = begin(daemon, job, 7)
    assert weights["w"][0] == 7 and second.step_of("w") == 0 and second.welcome.created
    with pytest.raises(paramd.FailedPrecondition, match=rf"begun job {job} anew, and this one has left it"):
        first.push({"w": np.ones(2, np.float32)})
    second.leave()
    second.close()


def test_ranks_that_begin_a_job_anew_wait_for_each_other(daemon, job):
    import threading

    results = {}

    def work(rank):
        for generation in range(3):
            client, weights = begin(daemon, job, 10 * generation + rank, rank=rank, world_size=2, joins=True)
            assert weights["w"][0] == 10 * generation
            client.push_pull({"w": np.ones(2, np.float32)}, weights).wait()
            results[rank, generation] = float(weights["w"][0])
        client.leave()
        client.close()

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {(rank, generation): 10 * generation - 1.0 for rank in range(2) for generation in range(3)}


def test_a_client_that_was_closed_without_leaving_is_followed_by_one_that_goes_on(daemon, job):
    first, weights = begin(daemon, job, 5)
    first.push_pull({"w": np.ones(2, np.float32)}, weights).wait()
    first.close()
    second, weights = begin(daemon, job, 7)
    assert weights["w"][0] == 4 and second.step_of("w") == 1
    second.leave()
    second.close()


def test_a_client_that_was_collected_is_followed_by_one_that_begins_anew(daemon, job):
    first, weights = begin(daemon, job, 5)
    first.push_pull({"w": np.ones(2, np.float32)}, weights).wait()
    del first
    second, weights = begin(daemon, job, 7)
    assert weights["w"][0] == 7 and second.step_of("w") == 0
    second.leave()
    second.close()
