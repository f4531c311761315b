"""Arrays of every kind travel, without a copy where they are contiguous."""
from __future__ import annotations

import pytest

import paramd
from conftest import await_that

np = pytest.importorskip("numpy")
RULE = "* sgd lr=1"


def opened(daemon, job, weights, **settings):
    client = paramd.Client(daemon.url, job, rules=RULE, notice=settings.pop("notice", lambda text: None), **settings)
    client.declare(settings.pop("params", weights))
    client.init(weights)
    return client


def test_contiguous_arrays_are_not_copied(daemon, job):
    weights = {"w": np.zeros((64, 64), np.float32)}
    with opened(daemon, job, weights) as client:
        client.push_pull({"w": np.ones((64, 64), np.float32)}, weights).wait()
        assert client.staged == 0
    assert (weights["w"] == -1).all()


def test_arrays_with_strides_are_copied_once_and_written_back(daemon, job):
    whole, notices = np.zeros((64, 128), np.float32), []
    weights = {"w": whole[:, ::2]}
    gradient = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    with opened(daemon, job, weights, notice=notices.append) as client:
        before = client.staged
        client.push_pull({"w": gradient.T}, weights).wait()
        assert client.staged - before == 2 * gradient.nbytes
        client.push_pull({"w": gradient.T}, weights).wait()
    np.testing.assert_array_equal(whole[:, ::2], -2 * gradient.T)
    assert (whole[:, 1::2] == 0).all()
    assert len([text for text in notices if "not contiguous" in text]) == 1


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_gradients_are_only_read(daemon, job, kind):
    weights = {"w": np.zeros((4, 8), np.float32)}
    gradient = np.broadcast_to(np.float32(2), (4, 8))       # one number in memory that cannot be written
    if kind == "torch":
        gradient = pytest.importorskip("torch").full((1, 1), 2.0).expand(4, 8)
    with opened(daemon, job, weights) as client:
        client.push_pull({"w": gradient}, weights).wait()
    assert (weights["w"] == -2).all()


def test_a_range_has_its_part_of_the_tensor(daemon, job):
    mine = np.zeros(60, np.float32)
    clients = [paramd.Client(daemon.url, job, rank=0, world_size=1, rules=RULE)]
    with clients[0] as client:
        client.declare([paramd.Param("w", (10, 6), range=(0, 60)), paramd.Param("none", (4, 4), range=(0, 16))])
        none = np.zeros((4, 4), np.float32)
        client.init({"w": mine, "none": none})
        client.push_pull({"w": np.arange(60, dtype=np.float32), "none": np.ones(16, np.float32)},
                         {"w": mine, "none": none}).wait()
    assert mine.tolist() == [-i for i in range(60)]
    assert (none == -1).all()


def test_float16_gradients_and_weights_travel(daemon, job):
    weights = {"w": np.ones((30, 30), np.float16)}
    with opened(daemon, job, weights) as client:
        client.push_pull({"w": np.full((30, 30), 0.5, np.float16)}, weights).wait()
        assert client.stats.payload_out == 2 * 900 and client.staged == 0
    assert (weights["w"] == 0.5).all()


def test_bfloat16_of_ml_dtypes_travels(daemon, job):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    weights = {"w": np.ones((30, 30), ml_dtypes.bfloat16)}
    with opened(daemon, job, weights) as client:
        client.push_pull({"w": np.full((30, 30), 0.5, ml_dtypes.bfloat16)}, weights).wait()
        assert client.staged == 0
    assert (weights["w"].astype(np.float32) == 0.5).all()


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_torch_tensors_travel(daemon, job, kind):
    torch = pytest.importorskip("torch")
    weights = {"w": torch.nn.Parameter(torch.ones(30, 40, dtype=getattr(torch, kind)))}
    with opened(daemon, job, weights) as client:
        client.push_pull({"w": torch.full((30, 40), 0.5, dtype=getattr(torch, kind))}, weights).wait()
        assert client.staged == 0
        assert (weights["w"] == 0.5).all()
        client.push_pull({"w": torch.full((40, 30), 0.5, dtype=getattr(torch, kind)).t()}, weights).wait()
        assert client.staged == 1200 * weights["w"].element_size()
    assert (weights["w"] == 0).all()


def test_torch_weights_with_strides_are_written_back(daemon, job):
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.zeros(30, 40).t())
    with opened(daemon, job, {"w": parameter}) as client:
        client.push_pull({"w": torch.ones(40, 30)}, {"w": parameter}).wait()
    assert (parameter == -1).all()


def test_tensors_that_cannot_be_borrowed_are_refused_in_words(daemon, job):
    torch = pytest.importorskip("torch")
    weights = {"w": torch.zeros(3, 4)}
    with opened(daemon, job, weights) as client:
        for gradient, words in [(torch.zeros(3, 4, device="meta"), "expected a tensor in the CPU's memory, got one on"),
                                (torch.zeros(3, 4).to_sparse(), "Embedding\\(sparse=False\\)"),
                                (torch.zeros(3, 4, dtype=torch.float64), "expected float32, float16 or bfloat16")]:
            with pytest.raises(paramd.InvalidArgument, match=words) as caught:
                client.push({"w": gradient})
            assert caught.value.parameter == "w"


class Foreign:
    """An array of a library that only has DLPack."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __dlpack__(self, **settings):
        return self.array.__dlpack__(**settings)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_gradients_come_by_dlpack(daemon, job, kind):
    weights = {"w": np.zeros((20, 30), kind)}
    gradient = np.arange(600, dtype=kind).reshape(20, 30)
    with opened(daemon, job, weights) as client:
        client.push_pull({"w": Foreign(gradient)}, weights).wait()
        assert client.staged == 0
        np.testing.assert_array_equal(weights["w"], -gradient)
        turned = Foreign(np.ascontiguousarray(gradient.T).T)
        client.push_pull({"w": turned}, weights).wait()
        assert client.staged == gradient.nbytes
        np.testing.assert_array_equal(weights["w"], -2 * gradient)
        with pytest.raises(paramd.InvalidArgument, match="weights are written in place"):
            client.pull({"w": Foreign(weights["w"])})


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_gradients_of_jax_travel(daemon, job, kind):
    jnp = pytest.importorskip("jax.numpy")
    gradient = jnp.full((20, 30), 0.5, dtype=kind)
    weights = {"w": np.ones((20, 30), np.asarray(gradient).dtype)}
    with opened(daemon, job, weights) as client:
        client.push_pull({"w": gradient}, weights).wait()
        assert client.staged == 0
    assert (weights["w"].astype(np.float32) == 0.5).all()


def test_tensors_lie_in_shared_memory_on_the_server_s_machine(daemon, job):
    weights = {"w": np.zeros((256, 256), np.float32)}
    with opened(daemon, job, weights) as client:
        before = client.stats
        client.push_pull({"w": np.ones((256, 256), np.float32)}, weights).wait()
        client.push_pull({"w": client.buffer("w")}, weights).wait()           # a memoryview, flat
        after = client.stats
        assert after.shared_out - before.shared_out == after.shared_in - before.shared_in == 2 * weights["w"].nbytes
        assert after.bytes_out - before.bytes_out < 1000
    assert (weights["w"] == -1).all()


@pytest.mark.parametrize("in_place", [True, False])
def test_memory_of_the_library_travels_without_a_copy(own_daemon, job, in_place):
    """Changes a gradient after it was sent, to a server that has not read it: the server sees it only in place."""
    weights = {"w": np.zeros(65536, np.float32)}
    with opened(own_daemon, job, weights) as client:
        gradient = np.frombuffer(client.buffer("w"), np.float32) if in_place else np.zeros(65536, np.float32)
        assert (gradient == 0).all()
        own_daemon.freeze()
        gradient[:] = 2
        before = client.stats.bytes_out
        ticket = client.push_pull({"w": gradient}, weights)
        await_that(lambda: client.stats.bytes_out > before)
        gradient[:] = 3
        own_daemon.thaw()
        ticket.wait()
        del gradient
    assert (weights["w"] == (-3 if in_place else -2)).all()


def test_memory_that_the_server_may_still_read_is_not_handed_out(daemon, job):
    """Rank 1 is late, so that the push of rank 0 fails, and the server keeps it."""
    ranks = [opened(daemon, job, {"w": np.zeros(65536, np.float32)}, rank=rank, world_size=2,
                    options=["step_timeout=50ms"]) for rank in range(2)]
    weights = [{"w": np.zeros(65536, np.float32)} for _ in ranks]
    first = np.frombuffer(ranks[0].buffer("w"), np.float32)
    first[:] = 1
    with pytest.raises(paramd.DeadlineExceeded, match="kept"):
        ranks[0].push_pull({"w": first}, weights[0]).wait()
    other = np.frombuffer(ranks[0].buffer("w"), np.float32)
    other[:] = 5
    ranks[1].push_pull({"w": np.full(65536, 3, np.float32)}, weights[1]).wait()
    assert (weights[1]["w"] == -2).all() and (first == 1).all()
    ranks[0].push_pull({"w": first}, weights[0], again=True).wait()
    assert (weights[0]["w"] == -2).all()
    assert np.frombuffer(ranks[0].buffer("w"), np.float32).ctypes.data == first.ctypes.data
    for client in ranks:
        client.close()


def test_shared_memory_can_be_switched_off(daemon, job):
    weights = {"w": np.zeros((256, 256), np.float32)}
    with opened(daemon, job, weights, shared_memory=False) as client:
        client.push_pull({"w": np.ones((256, 256), np.float32)}, weights).wait()
        assert client.stats.shared_out == 0 and client.stats.bytes_out > weights["w"].nbytes


def test_memory_of_the_library_lives_as_long_as_it_is_used(daemon, job):
    client = opened(daemon, job, {"w": np.zeros(5000, np.float32)})
    gradient = np.frombuffer(client.buffer("w"), np.float32)
    client.close()
    gradient[:] = 3
    assert gradient.sum() == 15000
    del client
    assert gradient.sum() == 15000


@pytest.mark.parametrize(("array", "words"), [
    (lambda: np.zeros((3, 4), np.float64), "expected float32, float16 or bfloat16, got float64"),
    (lambda: np.zeros((4, 3), np.float32), r"expected shape \(3, 4\), got shape \(4, 3\)"),
    (lambda: np.zeros((3, 4), np.float16), "declared as float32, got an array of float16"),
    (lambda: np.zeros((3, 4), ">f4"), "expected the machine's byte order"),
    (lambda: [[0.0] * 4] * 3, "expected a NumPy array, a PyTorch tensor, a memoryview or an object"),
])
def test_arrays_that_do_not_fit_are_refused_in_words(daemon, job, array, words):
    with opened(daemon, job, {"w": np.zeros((3, 4), np.float32)}) as client:
        with pytest.raises(paramd.InvalidArgument, match=words) as caught:
            client.push({"w": array()})
        assert caught.value.parameter == "w" and isinstance(caught.value, ValueError)


def test_weights_must_be_writable(daemon, job):
    weights = np.zeros((3, 4), np.float32)
    with opened(daemon, job, {"w": weights}) as client:
        weights.flags.writeable = False
        with pytest.raises(paramd.InvalidArgument, match="weights are written in place"):
            client.pull({"w": weights})
        with pytest.raises(paramd.InvalidArgument, match="expected an array for its weights, got None"):
            client.pull({"w": None})
