"""Tests the generation of ranks: which number they find, when it rises, and that all ranks have the same."""
from __future__ import annotations

import os
import subprocess
import sys

import pytest
from test_launchers import SRUN, TORCHRUN, Store, group, nothing, set_all  # noqa: F401

import paramd
from paramd import generations, launchers, meeting

ELASTIC = {**TORCHRUN, "TORCHELASTIC_RUN_ID": "mine", "TORCHELASTIC_USE_AGENT_STORE": "True"}
# By name: variables, and the generation that they tell.
ENVIRONMENTS = {
    "nothing": ({}, 0),
    "a number of the user": ({"PARAMD_GENERATION": "7"}, 7),
    "a number of the user with a launcher": ({"PARAMD_GENERATION": "7", **SRUN}, 7),
    "torchrun": ({**ELASTIC, "TORCHELASTIC_RESTART_COUNT": "3"}, 0),
    "ranks by hand": (TORCHRUN, 0),
    "srun": (SRUN, 1),
    "srun, started anew": ({**SRUN, "SLURM_RESTART_COUNT": "2"}, 3),
    "RANK from SLURM_PROCID, started anew": ({**SRUN, **TORCHRUN, "SLURM_RESTART_COUNT": "2"}, 3),
    "torchrun under Slurm": ({**SRUN, **ELASTIC, "SLURM_RESTART_COUNT": "2"}, 0),
    "a batch script of Slurm": ({**SRUN, "SLURM_PROCID": "0", "SLURM_TASK_PID": "9", "SLURM_RESTART_COUNT": "2"}, 0),
}
pytestmark = pytest.mark.usefixtures("nothing")


@pytest.fixture(autouse=True)
def new_process(monkeypatch):
    """This process has taken no entry yet."""
    monkeypatch.setattr(generations, "_ours", set())


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_each_environment_tells_a_generation_or_none(monkeypatch, name):
    variables, expected = ENVIRONMENTS[name]
    set_all(monkeypatch, variables)
    assert launchers.generation(os.environ) == expected
    assert generations.find(launchers.seat()) == expected


def test_a_generation_that_is_no_number_is_refused_in_words(monkeypatch):
    monkeypatch.setenv("PARAMD_GENERATION", "first")
    with pytest.raises(paramd.InvalidArgument, match=r"PARAMD_GENERATION='first': expected a number"):
        generations.find(launchers.seat())


def test_a_job_for_this_process_alone_has_none(monkeypatch):
    set_all(monkeypatch, {**SRUN, "PARAMD_GENERATION": "7"})
    assert generations.find(launchers.seat(0, 1)) == 0
    assert generations.find(launchers.seat(1, 2)) == 7


# ---- the store of a process group ----

def test_the_ranks_of_a_process_group_have_one_generation_and_a_later_group_a_greater_one(monkeypatch):
    found = []
    for now in (1000.5, 2000.5):
        monkeypatch.setattr(generations.time, "time", lambda now=now: now)
        store = Store()
        for rank in (0, 1, 0):
            group(monkeypatch, rank, 2, store)
            found.append(generations.find(launchers.seat()))
    assert found == [1000500] * 3 + [2000500] * 3


# ---- the store of torchrun's agent ----

@pytest.fixture
def agent(monkeypatch):
    """Returns a function that tells the generation of a rank of torchrun, as a new process. All have one store."""
    store = Store()
    monkeypatch.setattr(generations, "_agent_store", lambda: meeting.of_torch(store))
    monkeypatch.setattr(generations, "SECONDS", 0.1)

    def find(rank, of, started):
        monkeypatch.setattr(generations, "_ours", set())
        monkeypatch.setattr(generations, "_started_ms", lambda: started)
        set_all(monkeypatch, {**ELASTIC, "RANK": str(rank), "WORLD_SIZE": str(of)})
        return generations.find(launchers.seat())

    return find


def test_ranks_that_torchrun_has_formed_anew_have_a_greater_generation(agent):
    assert [agent(0, 2, 50_000), agent(1, 2, 50_900)] == [50_000] * 2
    assert [agent(0, 3, 55_000), agent(2, 3, 54_100)] == [55_000] * 2
    assert [agent(0, 2, 60_000), agent(1, 2, 60_001)] == [60_000] * 2


def test_a_rank_takes_no_entry_of_earlier_ranks(agent):
    agent(0, 2, 50_000)
    with pytest.raises(paramd.DeadlineExceeded, match=r"rank 1 of 2 has waited .* for rank 0 .*PARAMD_GENERATION"):
        agent(1, 2, 53_000)


def test_an_entry_that_is_a_little_too_old_counts_when_no_other_comes(agent, monkeypatch):
    agent(0, 2, 50_000)
    monkeypatch.setattr(generations, "SETTLED_SECONDS", 0.05)
    assert agent(1, 2, 90_000) == 50_000
    with pytest.raises(paramd.DeadlineExceeded):
        agent(1, 2, 130_000)


def test_a_clock_that_goes_back_makes_no_smaller_generation(agent):
    assert agent(0, 2, 50_000) == 50_000
    assert [agent(0, 3, 40_000), agent(1, 3, 40_000)] == [50_001] * 2


def test_a_process_knows_its_generation_again_though_the_clock_was_set(agent, monkeypatch):
    assert agent(0, 2, 50_000) == 50_000
    monkeypatch.setattr(generations, "_started_ms", lambda: 90_000)
    assert generations.find(launchers.seat()) == 50_000


SCRIPT = """
import os, sys, time, torch
from paramd import generations, launchers
restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
found = generations.find(launchers.seat())
here = f"{sys.argv[1]}/{restarts}."
with open(here + os.environ["RANK"] + ".new", "w") as file:
    file.write(str(found))
os.rename(file.name, here + os.environ["RANK"])
while not all(os.path.exists(here + rank) for rank in "01"):
    time.sleep(0.01)
time.sleep(2.5)     # ranks that start less than APART_SECONDS apart would count as those of one generation
sys.exit(1 if restarts == "0" else 0)
"""


@pytest.mark.parametrize("shared", [True, False], ids=["shared store", "no store"])
def test_torchrun_s_ranks_find_one_generation_and_those_that_are_started_again_a_greater_one(tmp_path, shared):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": str(int(not shared))}
    run = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1",
                          "--monitor-interval=0.1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0",
                          "--local-addr=127.0.0.1", "--rdzv-id=mine", str(script), str(tmp_path)],
                         env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
                         check=False)
    assert run.returncode == 0, run.stdout
    first, again = ([int((tmp_path / f"{count}.{rank}").read_text()) for rank in (0, 1)] for count in (0, 1))
    assert first[0] == first[1] and again[0] == again[1], (first, again)
    assert again[0] > first[0] > 10**12
