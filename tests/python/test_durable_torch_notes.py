"""Notes of torch's generators, of tensors, of learning rate schedulers and of torchdata's StatefulDataLoader."""
from __future__ import annotations

import pytest
from torch_support import mlp, torch

import paramd
import paramd.torch

stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
ROWS, BATCH = 20, 4


class Keeper:
    """An object with a state that the test chooses."""

    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


# ---- generators ----

def test_torchs_own_generator_is_in_every_note():
    note = paramd.torch.WorkerState()
    torch.randn(3)
    saved, expected = note.save(), torch.randn(20)
    note.load(saved)
    assert torch.equal(torch.randn(20), expected)


def test_generators_go_on_where_their_note_was_saved():
    one, two = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    note = paramd.torch.WorkerState(generators=[one, two])
    torch.randn(3, generator=one)
    saved = note.save()
    expected = torch.randn(20, generator=one), torch.randperm(9, generator=two)
    torch.randn(7, generator=two)
    note.load(saved)
    assert torch.equal(torch.randn(20, generator=one), expected[0])
    assert torch.equal(torch.randperm(9, generator=two), expected[1])


def test_a_note_of_other_cuda_devices_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [torch.zeros(16, dtype=torch.uint8)] * 3)
    saved = paramd.torch.WorkerState().save()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(paramd.InvalidArgument, match="torch: .* generators of 3 CUDA devices, and this process has 1"):
        paramd.torch.WorkerState().load(saved)


# ---- values ----

@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int64, torch.float16, torch.bfloat16, torch.float32,
                                   torch.float64], ids=str)
def test_tensors_come_back_bit_for_bit(dtype):
    tensor = torch.arange(15).reshape(3, 5).to(dtype)
    for value in (tensor, tensor.t(), tensor[:0], tensor[1, 2]):
        keeper = Keeper({"x": value})
        note = paramd.torch.WorkerState(states={"object": keeper})
        note.load(note.save())
        back = keeper.state["x"]
        assert back.dtype == dtype and back.shape == value.shape
        assert torch.equal(back, value)
        back.zero_()                                # its memory can be written


@pytest.mark.parametrize("state, text", [
    ({"x": {1}}, r"loader.state\['x'\] is a set"),
    ({"x": torch.zeros(2, dtype=torch.complex64)}, r"loader.state\['x'\] has the element type torch.complex64"),
    ({"x": torch.zeros(2).to_sparse()}, r"loader.state\['x'\]"),
    ({"x": mlp()}, r"loader.state\['x'\] is a torch.nn.modules.container.Sequential"),
], ids=["set", "complex", "sparse", "module"])
def test_objects_of_unknown_types_are_refused_with_their_path(state, text):
    with pytest.raises(paramd.InvalidArgument, match=text):
        paramd.torch.WorkerState(loader=Keeper(state)).save()


def test_loaders_that_cannot_tell_their_place_are_refused():
    with pytest.raises(paramd.InvalidArgument, match=r"loader: torch's own DataLoader cannot tell .*\.StatefulDataL"):
        paramd.torch.WorkerState(loader=torch.utils.data.DataLoader([1, 2]))
    with pytest.raises(paramd.InvalidArgument, match=r"generators\[0\]: expected a torch.Generator, got a int"):
        paramd.torch.WorkerState(generators=[1])


@pytest.mark.parametrize("make", [
    lambda opt: torch.optim.lr_scheduler.StepLR(opt, 2, 0.5),
    lambda opt: torch.optim.lr_scheduler.MultiStepLR(opt, [4, 7]),
    lambda opt: torch.optim.lr_scheduler.CosineAnnealingLR(opt, 9),
    lambda opt: torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, 12),
    lambda opt: torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=1),
    lambda opt: torch.optim.lr_scheduler.SequentialLR(opt, [torch.optim.lr_scheduler.ConstantLR(opt),
                                                            torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)], [3]),
], ids=["StepLR", "MultiStepLR", "CosineAnnealingLR", "OneCycleLR", "ReduceLROnPlateau", "SequentialLR"])
def test_schedulers_go_on_where_their_note_was_saved(make):
    opt = torch.optim.SGD(mlp().parameters(), lr=0.1)
    scheduler = make(opt)
    note = paramd.torch.WorkerState(states={"scheduler": scheduler})

    def rates(n):
        found = []
        for _ in range(n):
            opt.step()
            scheduler.step(*([1.0] if "Plateau" in type(scheduler).__name__ else []))
            found.append(opt.param_groups[0]["lr"])
        return found

    rates(3)
    saved = note.save(opt.param_groups[0]["lr"])
    expected = rates(6)
    opt.param_groups[0]["lr"] = note.load(saved)
    assert rates(6) == expected
    assert len(set(expected)) > 1


# ---- data loaders ----

def batches(loader):
    while True:
        yield from loader


def made(workers, shuffled, generator):
    """A loader, its note, and an endless iterator of its batches."""
    loader = stateful.StatefulDataLoader(range(ROWS), BATCH, shuffle=shuffled, num_workers=workers,
                                         generator=generator)
    note = paramd.torch.WorkerState(loader=loader, generators=generator)
    return loader, note, batches(loader)


def drawn(iterator, n):
    """n batches, and a number of torch's generator behind each, as dropout draws it."""
    return [(next(iterator).tolist(), float(torch.rand(()))) for _ in range(n)]


PLACES = [(0, shuffled, own, first) for shuffled in (False, True) for own in (False, True)
          for first in (0, 1, 4, 5, 6, 9, 10)]      # the beginning, the middle and the end of epochs


@pytest.mark.parametrize("workers, shuffled, own, first", [*PLACES, (1, True, False, 3), (1, True, True, 5)])
def test_a_loader_goes_on_at_its_place_in_the_same_and_in_another_process(first, own, workers, shuffled):
    torch.manual_seed(1)
    loader, note, iterator = made(workers, shuffled, torch.Generator().manual_seed(2) if own else None)
    drawn(iterator, first)
    saved = note.save()
    expected = drawn(iterator, 7)
    note.load(saved)
    assert drawn(batches(loader), 7) == expected    # a step back in the same process
    torch.manual_seed(77)
    _, note, iterator = made(workers, shuffled, torch.Generator().manual_seed(78) if own else None)
    note.load(saved)
    assert drawn(iterator, 7) == expected           # a process that was started anew


def test_a_sampler_with_a_state_goes_on():
    from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

    def loader_of(sampler):
        return stateful.StatefulDataLoader(range(ROWS), BATCH, sampler=sampler)

    sampler = StatefulDistributedSampler(range(ROWS), num_replicas=2, rank=1, seed=3)
    loader = loader_of(sampler)
    note = paramd.torch.WorkerState(loader=loader)
    iterator = iter(loader)
    next(iterator)
    saved, expected = note.save(), [batch.tolist() for batch in iterator]
    other = loader_of(StatefulDistributedSampler(range(ROWS), num_replicas=2, rank=1, seed=3))
    paramd.torch.WorkerState(loader=other).load(saved)
    assert [batch.tolist() for batch in other] == expected != []
    alone = paramd.torch.WorkerState(sampler=sampler)
    alone.load(alone.save())
