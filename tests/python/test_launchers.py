"""Tests who a process is: its rank as launchers tell it, the identity of its run, and the names of its jobs."""
from __future__ import annotations

import os
import sys
import threading
import time
import types

import pytest

import paramd
from paramd import jobs, launchers, meeting, run_id

SRUN = {"SLURM_JOB_ID": "77", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
# By name: the variables of a launcher, and the id that its ranks share.
LAUNCHES = {
    "torchrun": ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "mine"}, "mine"),
    "torchrun without an id": ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "none"}, ""),
    "DeepSpeed": ({**TORCHRUN, "LOCAL_SIZE": "2"}, ""),
    "Open MPI": ({**OPEN_MPI, "OMPI_MCA_ess_base_jobid": "4711"}, "mpi-4711"),
    "Open MPI 5": ({**OPEN_MPI, "PMIX_NAMESPACE": "prterun-a-5@1"}, "mpi-prterun-a-5@1"),
    "MPICH": ({"PMI_RANK": "1", "PMI_SIZE": "2", "PMI_JOBID": "8"}, "mpi-8"),
    "MVAPICH": ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}, ""),
    "PMIx": ({"PMIX_RANK": "1", "PMIX_SIZE": "2", "PMIX_NAMESPACE": "ns"}, "mpi-ns"),
    "srun": ({**SRUN, "SLURM_STEP_ID": "3", "SLURM_STEP_NUM_TASKS": "2"}, "slurm-77.3"),
    "srun with few variables": (SRUN, "slurm-77"),
    "RANK from SLURM_PROCID": ({**SRUN, **TORCHRUN}, "slurm-77"),
}


@pytest.fixture(autouse=True)
def nothing(monkeypatch):
    """An environment that says nothing of ranks, and no process group."""
    prefixes = ("KUBERNETES_", "SLURM_", "OMPI_", "PMI_", "PMIX_", "MV2_", "PARAMD_JOB", "PARAMD_RUN", "PARAMD_URL",
                "PARAMD_RESUME", "PARAMD_GENERATION", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_")
    for name in list(os.environ):
        if name.startswith(prefixes):
            monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    monkeypatch.delitem(sys.modules, "jax", raising=False)


def set_all(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def group(monkeypatch, rank, of, store=None):
    """Makes a torch.distributed that is initialized."""
    module = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: rank,
                                   get_world_size=lambda: of)
    c10d = types.SimpleNamespace(_get_default_store=lambda: store)
    monkeypatch.setitem(sys.modules, "torch.distributed", module)
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", c10d)


class Store(dict):
    """A store of a process group, within this process."""

    def check(self, keys):
        return all(key in self for key in keys)

    def get(self, key):
        return self[key].encode()

    def set(self, key, value):
        self[key] = value


# ---- ranks ----

@pytest.mark.parametrize("name", LAUNCHES)
def test_each_launcher_tells_rank_size_and_id(monkeypatch, name):
    variables, run = LAUNCHES[name]
    set_all(monkeypatch, variables)
    seat = launchers.seat()
    assert (seat.rank, seat.of, seat.run) == (1, 2, run)
    assert run_id.find().launch == run


def test_without_a_launcher_a_process_is_rank_0_of_1():
    assert launchers.seat()[1:3] == (0, 1)


def test_arguments_count_before_everything_else(monkeypatch):
    set_all(monkeypatch, TORCHRUN)
    group(monkeypatch, 0, 4)
    assert launchers.seat(2, 3)[1:3] == (2, 3)


def test_a_process_group_counts_where_rank_is_not_set(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")               # as Lightning does
    group(monkeypatch, 1, 4)
    assert launchers.seat()[1:3] == (1, 4)


def test_jax_counts_where_rank_is_not_set(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(
        distributed=types.SimpleNamespace(is_initialized=lambda: True), process_index=lambda: 2,
        process_count=lambda: 3))
    assert launchers.seat()[1:3] == (2, 3)


@pytest.mark.parametrize(("variables", "rank", "of", "words"), [
    (TORCHRUN, 0, 2, r"RANK and WORLD_SIZE say that this is rank 1 of 2, and torch.distributed says that it is rank 0"),
    (TORCHRUN, 1, 3, r"rank 1 of 2, and torch.distributed says that it is rank 1 of 3"),
    (SRUN, 0, 1, r"SLURM_PROCID and SLURM_NTASKS say that this is rank 1 of 2, and torch.distributed"),
])
def test_sources_that_contradict_each_other_are_both_named(monkeypatch, variables, rank, of, words):
    set_all(monkeypatch, variables)
    group(monkeypatch, rank, of)
    with pytest.raises(paramd.FailedPrecondition, match=words):
        launchers.seat()


def test_a_task_of_srun_may_start_the_ranks_of_a_larger_group(monkeypatch):
    set_all(monkeypatch, SRUN)
    group(monkeypatch, 5, 8)
    assert launchers.seat()[1:3] == (5, 8) and launchers.seat().run == ""


def test_a_batch_script_of_slurm_is_one_process(monkeypatch):
    set_all(monkeypatch, {**SRUN, "SLURM_PROCID": "0", "SLURM_TASK_PID": "9"})
    assert launchers.seat()[1:3] == (0, 1)


def test_a_number_of_ranks_without_a_rank_is_refused_in_words(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(paramd.FailedPrecondition, match=r"WORLD_SIZE=2 is set, and nothing says what RANK is"):
        launchers.seat()


@pytest.mark.parametrize(("variables", "words"), [
    ({"RANK": "one", "WORLD_SIZE": "2"}, r"RANK='one': expected a number"),
    ({"RANK": "2", "WORLD_SIZE": "2"}, r"RANK=2, WORLD_SIZE=2: expected a rank below"),
])
def test_variables_that_are_no_rank_are_refused_in_words(monkeypatch, variables, words):
    set_all(monkeypatch, variables)
    with pytest.raises(paramd.InvalidArgument, match=words):
        launchers.seat()


# ---- machines ----

@pytest.mark.parametrize("variables", [
    {**TORCHRUN, "LOCAL_WORLD_SIZE": "1"},
    {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
    {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "1"},
    {"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2", "MV2_COMM_WORLD_LOCAL_SIZE": "1"},
    {**SRUN, "SLURM_NNODES": "2"},
    {**TORCHRUN, "MASTER_ADDR": "job-master-0.invalid", "MASTER_PORT": "1"},
])
def test_a_local_daemon_is_refused_where_ranks_are_on_several_machines(monkeypatch, variables):
    set_all(monkeypatch, variables)
    with pytest.raises(paramd.FailedPrecondition, match=r"this run has 2 ranks, .*set PARAMD_URL=tcp"):
        run_id.run_id()


@pytest.mark.parametrize("variables", [
    {**TORCHRUN, "MASTER_ADDR": "localhost", "MASTER_PORT": "1"},
    {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
    {**SRUN, "SLURM_NNODES": "1"},
])
def test_ranks_on_one_machine_have_a_daemon(monkeypatch, variables):
    set_all(monkeypatch, variables)
    assert run_id.run_id() == (run_id.find().id or run_id._process_name(run_id.launcher().pid))


def test_name_servers_that_are_silent_are_not_waited_for(monkeypatch):
    silent = threading.Event()
    monkeypatch.setattr(run_id, "_NAMES_SECONDS", 0.05)
    monkeypatch.setattr(run_id.socket, "getaddrinfo", lambda *_, **__: silent.wait(30) and [])
    set_all(monkeypatch, {**TORCHRUN, "MASTER_ADDR": "node7", "MASTER_PORT": "1"})
    begun = time.monotonic()
    with pytest.raises(paramd.DeadlineExceeded, match=r"waited 0.05 s for the name servers.*MASTER_ADDR=node7"):
        run_id.run_id()
    assert time.monotonic() - begun < 10
    silent.set()


# ---- the run of a process group ----

def test_ranks_of_a_process_group_agree_on_an_id_and_another_group_has_another(monkeypatch):
    found = []
    for _ in range(2):
        store = Store()
        for rank in (0, 1, 0):
            group(monkeypatch, rank, 2, store)
            found.append((run_id.find().launch, run_id.run_id(), run_id.job_name(run_id.find())))
    assert len({name for names in found[:3] for name in names}) == 1 and found[0][0].startswith("run-")
    assert found[3:] == [found[3]] * 3 and found[3] != found[0]


def test_a_rank_whose_rank_0_does_not_come_is_told_so(monkeypatch):
    monkeypatch.setattr(meeting, "SECONDS", 0.05)
    group(monkeypatch, 1, 2, Store())
    with pytest.raises(paramd.DeadlineExceeded, match=r"rank 1 of 2 has waited .* for rank 0 .*same optimizers"):
        run_id.find()


def test_a_rank_that_is_not_on_rank_0s_machine_has_no_local_daemon(monkeypatch):
    store = Store()
    store["paramd/run"] = "abc elsewhere/host"
    group(monkeypatch, 1, 2, store)
    with pytest.raises(paramd.FailedPrecondition, match=r"rank 0 is on another machine.*PARAMD_URL"):
        run_id.run_id()
    assert run_id.find().launch == "run-abc"


UUID = "0b1d2c3e-4455-6677-8899-aabbccddeeff"


@pytest.mark.parametrize(("variables", "launch"), [
    ({}, UUID),
    ({"SLURM_JOB_ID": "1"}, ""),                        # torchrun in a batch script that Slurm starts anew
    ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, ""),
    ({"SLURM_JOB_ID": "1", "TORCHELASTIC_RUN_ID": "mine"}, "mine"),
])
def test_a_random_id_says_nothing_where_the_run_may_be_started_anew_with_another(monkeypatch, variables, launch):
    set_all(monkeypatch, {**TORCHRUN, "TORCHELASTIC_RUN_ID": UUID, **variables})
    found = run_id.find()
    assert (found.launch, found.id) == (launch, launch or UUID)


def test_an_id_that_is_too_long_for_the_server_is_shortened(monkeypatch):
    found = []
    for ending in "ab":
        set_all(monkeypatch, {**TORCHRUN, "TORCHELASTIC_RUN_ID": "x" * 200 + ending})
        found.append(run_id.find().launch)
    assert found[0] != found[1] and max(map(len, found)) <= 120


# ---- names of jobs ----

def name(**variables):
    return run_id.job_name(run_id.find())


def test_a_process_without_a_launcher_names_its_job_after_itself():
    found = name()
    assert str(os.getpid()) in found and found.endswith(run_id._started(os.getpid())) and found == name()


def test_process_1_of_a_container_has_the_same_name_when_it_is_started_anew(monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1)
    monkeypatch.setattr(run_id, "_started", lambda pid: pytest.fail("the time of its start is in the name"))
    assert name().endswith(run_id.socket.gethostname())


def test_ranks_of_one_parent_are_named_after_it(monkeypatch):
    set_all(monkeypatch, {**TORCHRUN, "PARAMD_URL": "tcp://node:1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"})
    assert name().endswith(f"-{os.getppid()}-{run_id._started(os.getppid())}")


@pytest.mark.parametrize("local", [{}, {"LOCAL_WORLD_SIZE": "1"}])
def test_ranks_on_several_machines_are_named_after_the_address_where_they_meet(monkeypatch, local):
    set_all(monkeypatch, {**TORCHRUN, **local, "PARAMD_URL": "tcp://node:1", "MASTER_ADDR": "node7",
                          "MASTER_PORT": "29501"})
    assert name() == "run-node7-29501"


def test_ranks_that_share_nothing_are_asked_for_a_name(monkeypatch):
    set_all(monkeypatch, {**TORCHRUN, "LOCAL_WORLD_SIZE": "1", "PARAMD_URL": "tcp://node:1"})
    with pytest.raises(paramd.InvalidArgument, match=r"several workers need a common name .*set PARAMD_JOB"):
        name()
    monkeypatch.setenv("PARAMD_JOB", "ours")
    assert name() == "ours"


def test_names_are_counted_and_one_that_was_not_joined_is_given_again():
    base = jobs.Seat("unix:///a", "counted", 0)
    with jobs.named(base) as first:
        pass
    with pytest.raises(ValueError), jobs.named(base) as failed:
        raise ValueError
    with jobs.named(base) as second, jobs.named(base._replace(rank=1)) as rank_1, \
            jobs.named(base._replace(url="unix:///b")) as elsewhere:
        pass
    assert [first, failed, second] == ["counted", "counted.2", "counted.2"]
    assert rank_1 == elsewhere == "counted"
