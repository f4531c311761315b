"""paramd.torch.DiLoCo over several daemons: the bits of one daemon, also if one of them is killed."""
from __future__ import annotations

import subprocess
import warnings

import pytest
from torch_support import needs_torch, ranks, same_bits, token_loss, tokens, torch, transformer, weights

import paramd
from conftest import await_that
from paramd import run_folder
from paramd.torch import DiLoCo

pytestmark = needs_torch(2, 0)
STEPS = 18
WAYS = {
    "plain": {"sync_every": 3},
    "streaming": {"sync_every": 6, "fragments": 3, "fragment_sync_delay": 1, "fragment_update_alpha": 0.25},
    "quantized": {"sync_every": 6, "fragments": 3, "quantize": "int4"},
    "quorum": {"sync_every": 6, "fragments": 3, "fragment_sync_delay": 1, "quorum": 2},
}


class Durable:
    """Two daemons of paramd.local with directories for checkpoints, which the test may kill."""

    def __init__(self, folder):
        self.local = paramd.local(threads=1, shards=2, state_dir=folder)
        self.url = self.local.url
        self.running = dict(enumerate(self.local._processes))
        self.killed = set()

    def restart(self, number):
        """Kills a daemon (kill -9), and starts it again with its command line."""
        process = self.running[number]
        process.kill()
        process.wait()
        with open(self.local.logs[number], "a", encoding="utf-8") as log:
            process = subprocess.Popen(process.args, stdin=subprocess.PIPE, stdout=log, stderr=log)
        self.running[number] = process
        self.killed.add(number)
        path = self.url.split(" ")[number][len("unix://"):]
        await_that(lambda: process.poll() is not None or run_folder.answers(path))
        assert process.poll() is None, self.local.logs[number]

    def end(self):
        for number in self.killed:
            self.running[number].kill()
            self.running[number].stdin.close()
            self.running[number].wait()
        self.local.close()


@pytest.fixture
def durable(tmp_path):
    daemons = Durable(tmp_path / "state")
    yield daemons
    daemons.end()


def train(daemons, job, way, kills=None, **others):
    """Trains two workers, and kills daemons before some steps: kills[step] is the number of one. Returns the weights of
    both, and the steps of the outer optimizer."""
    def work(rank):
        model = transformer()
        inner = torch.optim.AdamW(model.parameters(), lr=0.01)
        with DiLoCo(model, inner, url=daemons.url, name=job, rank=rank, world_size=2, **way, **others) as outer:
            for step in range(STEPS):
                if rank == 0 and kills and step in kills:
                    outer.client.sync(1)        # before its first checkpoint a shard that is killed has lost the job
                    daemons.restart(kills[step])
                inner.zero_grad()
                token_loss(model, tokens(2 * step + rank)).backward()
                inner.step()
            outer.finish()
            return weights(model), outer.status.step

    return ranks(2, work)


@pytest.mark.parametrize("way", WAYS)
def test_two_daemons_have_the_bits_of_one_also_if_they_are_killed(one, two, durable, job, way):
    alone, shared = (train(daemons, job, WAYS[way]) for daemons in (one, two))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "job .* goes on from the global weights")
        killed = train(durable, job, WAYS[way], {8: 1, 13: 0, 16: 1}, window=2, options={"durability": "log"})
    assert durable.killed == {0, 1}
    for rank in range(2):
        assert same_bits(alone[rank][0], shared[rank][0]), rank
        assert same_bits(alone[rank][0], killed[rank][0]), rank
        assert alone[rank][1] == shared[rank][1] == killed[rank][1] == STEPS // WAYS[way]["sync_every"]
