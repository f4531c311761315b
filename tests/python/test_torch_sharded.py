"""FSDP2 and other DTensors: shards are ranges, and the server's steps are those of the whole model."""
from __future__ import annotations

import pytest
from torch_support import mlp, needs_torch, optimizer, same_bits, torch, weights

import paramd

pytestmark = needs_torch(2, 6)


def replay(daemon, job, row, hypers, history):
    """Takes the same steps with one rank, from whole gradients."""
    model = mlp()
    opt = optimizer(model, daemon, job, row, **hypers)
    opt.join()
    for gradients in history:
        for p, gradient in zip(model.parameters(), gradients):
            p.grad = gradient
        opt.step()
    opt.close()
    return weights(model)


@pytest.mark.parametrize(("n", "mesh", "row", "hypers"), [
    (2, (2,), "shampoo", {"lr": 0.01, "precondition_frequency": 2}),
    (3, (3,), "adamw", {"lr": 0.01}),
    (4, (2, 2), "adamw", {"lr": 0.01}),
])
def test_shards_take_the_steps_of_one_rank_bit_for_bit(daemon, tmp_path, n, mesh, row, hypers):
    import torch_ranks

    results = torch_ranks.start(n, torch_ranks.sharded, tmp_path, daemon.url, f"shards-{n}", row, hypers, mesh)
    expected = replay(daemon, f"whole-{n}", row, hypers, results[0][0])
    for _, whole, _ in results:
        assert same_bits(whole, expected)
    assert n != 3 or any(empty for _, _, empty in results)      # 2 rows for 3 ranks


def test_other_placements_are_refused_in_words(tmp_path):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "b"))

        def make(*placements):
            tensor = distribute_tensor(torch.ones(4, 6), mesh, [Replicate(), Replicate()])
            if placements != (Replicate(), Replicate()):
                tensor = DTensor.from_local(torch.ones(4, 6), mesh, placements, run_check=False)
            return paramd.torch.Optimizer([("w", torch.nn.Parameter(tensor))], "sgd", "unix:///nowhere")

        assert make(Replicate(), Shard(0))._places()[0].range == (0, 24)
        assert make(Replicate(), Replicate())._places()[0].range is None
        for placements, words in (((Replicate(), Shard(1)), "is no range of its elements"),
                                  ((Replicate(), Partial()), "is no range of its elements"),
                                  ((Shard(0), Shard(0)), "over 2 dimensions")):
            with pytest.raises(paramd.InvalidArgument, match=f"parameter w: .*{words}"):
                make(*placements).join()
    finally:
        dist.destroy_process_group()


def test_fsdp1_is_refused_in_words():
    flat = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(paramd.InvalidArgument, match="use fully_shard"):
        paramd.torch.Optimizer([("_fsdp_wrapped_module._flat_param", flat)], "sgd")
