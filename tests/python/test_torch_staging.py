"""Pinned staging for CUDA, on a device that computes as late as it may (lazy_cuda.py)."""
from __future__ import annotations

import types

import pytest
from torch_support import mlp, needs_torch, optimizer, row_loss, rows, torch, weights

import paramd
from paramd.torch.memory import Staged
from paramd.torch.overlap import Overlap
from paramd.torch.placement import Place

pytestmark = needs_torch(2, 1)
if hasattr(torch._C, "DisableTorchFunctionSubclass"):
    import lazy_cuda


@pytest.fixture
def cuda(monkeypatch):
    return lazy_cuda.install(monkeypatch)


def staged(*names):
    """Returns staging memory for parameters of two elements each, and their places."""
    places = {name: Place(name, lazy_cuda.tensor([0.0, 0.0]), 0) for name in names}
    return Staged(None, places.values()), places


def computed(cuda, values):
    """Returns a gradient that a kernel writes, which is queued on the current stream."""
    gradient = lazy_cuda.tensor([float("nan")] * len(values))
    cuda.kernel(lambda: lazy_cuda.plain(gradient).copy_(torch.tensor(values)))
    return gradient


def test_the_host_reads_gradients_behind_the_event_of_their_copies(cuda):
    memory, places = staged("a", "b")
    gradients = {"a": computed(cuda, [1.0, 2.0]), "b": computed(cuda, [3.0, 4.0])}
    lent = memory.lend(gradients, places)
    assert {name: lent[name].tolist() for name in lent} == {"a": [1.0, 2.0], "b": [3.0, 4.0]}
    assert {tensor.data_ptr() for tensor in lent.values()} < cuda.pinned


def test_copies_that_are_begun_do_not_wait(cuda):
    memory, places = staged("a", "b")
    gradients = {"a": computed(cuda, [1.0, 2.0])}
    memory.begin(gradients, places)
    gradients["b"] = computed(cuda, [3.0, 4.0])
    assert not memory.is_ready(["a"]) and memory._gradients["a"].isnan().all()
    side = next(iter(memory._streams.values()))
    assert cuda.kept == [(gradients["a"].data_ptr(), side)]     # the allocator keeps it until the copy is done
    side.synchronize()
    assert memory.is_ready(["a"])
    assert {name: tensor.tolist() for name, tensor in memory.lend(gradients, places).items()} == \
        {"a": [1.0, 2.0], "b": [3.0, 4.0]}


def test_a_copy_follows_the_stream_that_computed_its_gradient(cuda):
    memory, places = staged("a", "b")
    with cuda.on(lazy_cuda.Stream()):
        gradients = {"a": computed(cuda, [1.0, 2.0])}
        memory.follow(places["a"])
    gradients["b"] = computed(cuda, [3.0, 4.0])
    memory.begin(gradients, places)             # the hook of the bucket's last parameter runs on another stream
    assert memory.lend(gradients, places)["a"].tolist() == [1.0, 2.0]


def test_weights_are_not_overwritten_before_they_are_copied(cuda):
    memory, places = staged("a")
    memory.weights(places.values())["a"].fill_(1.0)
    memory.land(places.values())
    seen = []
    cuda.kernel(lambda: seen.append(lazy_cuda.plain(places["a"].param).tolist()))
    memory.weights(places.values())["a"].fill_(2.0)     # the next step, to which this rank gives no gradient
    memory.land(places.values())
    cuda.kernel(lambda: seen.append(lazy_cuda.plain(places["a"].param).tolist()))
    cuda.current.synchronize()
    assert seen == [[1.0, 1.0], [2.0, 2.0]]


def test_weights_land_in_front_of_later_kernels_without_a_wait(cuda):
    memory, places = staged("a")
    memory.weights(places.values())["a"].fill_(1.0)
    memory.land(places.values())
    assert cuda.current.queue and lazy_cuda.plain(places["a"].param).tolist() == [0.0, 0.0]
    with cuda.on(lazy_cuda.Stream()):
        memory.fill(places.values())            # writes the staging memory on another stream, and waits
    assert lazy_cuda.plain(places["a"].param).tolist() == [1.0, 1.0]


def test_a_copy_that_was_begun_in_a_step_that_failed_is_made_anew(cuda):
    memory, places = staged("a")
    memory.begin({"a": computed(cuda, [1.0, 2.0])}, places)
    memory.forget()
    assert memory.lend({"a": computed(cuda, [3.0, 4.0])}, places)["a"].tolist() == [3.0, 4.0]


class FakeClient:
    """A client whose memory for gradients the test chooses."""

    def __init__(self):
        self.at = bytearray(8)

    def buffer(self, name):
        return memoryview(self.at).cast("f")


def test_gradients_of_a_step_that_failed_stay_where_the_server_may_read_them():
    client, place = FakeClient(), Place("a", torch.nn.Parameter(torch.zeros(2)), 0)
    memory = Staged(client, [place])
    assert memory.lend({"a": torch.ones(2)}, {"a": place})["a"].data_ptr() == torch.frombuffer(
        client.at, dtype=torch.float32).data_ptr()
    first, client.at = client.at, bytearray(8)
    memory.renew()
    memory.lend({"a": torch.full((2,), 2.0)}, {"a": place})
    assert torch.frombuffer(first, dtype=torch.float32).tolist() == [1.0, 1.0]
    assert torch.frombuffer(client.at, dtype=torch.float32).tolist() == [2.0, 2.0]


def test_gradients_whose_push_is_under_way_are_not_copied_anew(daemon, job):
    model = mlp()
    opt = optimizer(model, daemon, job, delay=1)
    opt.join()
    names = [name for name, _ in model.named_parameters()]
    gradients_of(model, 0)
    opt._run._pushed.add(names[0])              # a step that was refused in part waits for this parameter
    opt._run.copy(names[:2])
    assert set(opt._run.memory._begun) == {names[1]}


def gradients_of(model, step):
    model.zero_grad()
    row_loss(model, rows(step)).backward()
    return [param.grad.tolist() for param in model.parameters()]


@pytest.mark.parametrize("delay", [0, 1])
def test_a_model_on_a_late_device_trains_like_one_on_the_cpu(daemon, job, cuda, delay):
    model = mlp()
    plain = optimizer(model, daemon, job + "-cpu", lr=0.1, delay=delay)
    names = [name for name, _ in model.named_parameters()]
    pairs = [(name, torch.nn.Parameter(lazy_cuda.tensor(param.detach()))) for name, param in model.named_parameters()]
    late = optimizer(pairs, daemon, job, lr=0.1, delay=delay)
    plain.join()
    late.join()
    for step in range(6):
        for values, (_, param) in zip(gradients_of(model, step), pairs):
            shape = lazy_cuda.plain(param).shape
            param.grad = computed(cuda, torch.tensor(values).flatten().tolist()).reshape(shape)
        if step % 3 == 2:                       # a step in which two parameters have no gradient: its copy is void
            late._run.copy(names[:1])
            for param in (*list(model.parameters())[:2], *[param for _, param in pairs[:2]]):
                param.grad = None
        plain.step()
        late.step()
    for opt in (plain, late):
        opt.synchronize()
    cuda.current.synchronize()
    assert all(torch.equal(a, lazy_cuda.plain(param)) for a, (_, param) in zip(weights(model), pairs))


def test_a_mean_of_a_number_on_the_device_does_not_wait_for_it(cuda, daemon, job):
    opt = optimizer(mlp(), daemon, job)
    opt.join()
    mean = opt.mean("loss", computed(cuda, [3.0]))
    assert cuda.current.queue                   # the kernels that compute it did not run
    opt.step()
    assert float(mean) == 3.0


class FakeRun:
    """Notes what Overlap does. ready: names of the parameters whose copies are done."""

    carrier = ""

    def __init__(self, places):
        self.places = {place.name: place for place in places}
        self.memory = types.SimpleNamespace(
            follow=lambda place: self.calls.append(f"follow {place.name}"),
            is_ready=lambda names: set(names) <= self.ready)
        self.by_hand = types.SimpleNamespace(begin=lambda: None, moved=list)
        self.calls, self.ready = [], set()

    def is_untouched(self):
        return True

    def refuse_changes(self, changed, why):
        assert not changed

    def copy(self, names):
        self.calls.append(f"copy {' '.join(names)}")

    def push(self, names, terms):
        self.calls.append(f"push {' '.join(names)}")


def test_hooks_push_a_bucket_when_its_copy_is_done_and_never_wait(monkeypatch):
    monkeypatch.setattr("paramd.torch.overlap._BUCKET_BYTES", 1)        # a bucket for each parameter
    params = {name: torch.nn.Parameter(torch.ones(2)) for name in "abc"}
    run = FakeRun([Place(name, param, 0) for name, param in params.items()])
    overlap = Overlap(run, list(run.places.values()), lambda: "terms")
    params["c"].sum().backward()
    params["b"].sum().backward()
    assert run.calls == ["follow c", "copy c", "follow b", "copy b"]
    run.ready = {"b", "c"}
    params["a"].sum().backward()                # pushes in the order of the copies
    assert run.calls[4:] == ["follow a", "copy a", "push c", "push b"]
    overlap.reset()
    run.ready = {"a", "b", "c"}
    params["a"].grad = None
    params["a"].sum().backward()                # what step() has pushed is not pushed again
    assert run.calls[8:] == ["follow a", "copy a", "push a"]


def test_a_gradient_that_changes_while_it_is_copied_is_refused():
    param = torch.nn.Parameter(torch.ones(2))
    run = FakeRun([Place("a", param, 0)])
    overlap = Overlap(run, list(run.places.values()), lambda: "terms")
    param.sum().backward()
    with torch.no_grad():
        param.grad.mul_(0.5)
    with pytest.raises(paramd.FailedPrecondition, match="was changed after the backward pass"):
        overlap.check("terms")
