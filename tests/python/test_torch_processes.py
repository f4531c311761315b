"""Ranks of a process group: FSDP2 and other DTensors, and DistributedDataParallel."""
from __future__ import annotations

import pytest
from torch_support import farthest, mlp, needs_torch, optimizer, row_loss, rows, same_bits, torch, weights

import paramd


def replay(daemon, job, row, hypers, history):
    """Takes the same steps with one rank, from whole gradients. Returns the weights that are trained, and those to
    evaluate with."""
    model = mlp()
    opt = optimizer(model, daemon, job, row, **hypers)
    opt.join()
    for gradients in history:
        for p, gradient in zip(model.parameters(), gradients):
            p.grad = gradient
        opt.step()
    trained = weights(model)
    opt.eval()
    evaluated = weights(model)
    opt.close()
    return trained, evaluated


@needs_torch(2, 6)
@pytest.mark.parametrize(("n", "mesh", "row", "hypers"), [
    (2, (2,), "shampoo", {"lr": 0.01, "precondition_frequency": 2}),
    (3, (3,), "adamw", {"lr": 0.01}),
    (4, (2, 2), "adamw", {"lr": 0.01}),
    (3, (3,), "schedule_free", {"lr": 0.01}),
    (2, (2,), "gpa", {"lr": 0.01, "eval_interp_coeff": 0.9}),
    (2, (2,), "soap", {"lr": 0.01, "precondition_frequency": 2, "hyperball": True}),
])
def test_shards_take_the_steps_of_one_rank_bit_for_bit(daemon, tmp_path, n, mesh, row, hypers):
    import torch_ranks

    results = torch_ranks.start(n, torch_ranks.sharded, tmp_path, daemon.url, f"shards-{n}-{row}", row, hypers, mesh)
    trained, evaluated = replay(daemon, f"whole-{n}-{row}", row, hypers, results[0][0])
    for _, forms, _ in results:
        assert all(same_bits(form, one) for form, one in zip(forms, (trained, evaluated, trained)))
    assert same_bits(trained, evaluated) == (row not in ("schedule_free", "gpa"))
    assert n != 3 or any(empty for _, _, empty in results)      # 2 rows for 3 ranks


@needs_torch(2, 6)
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


@needs_torch(2, 6)
def test_fsdp1_is_refused_in_words():
    flat = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(paramd.InvalidArgument, match="use fully_shard"):
        paramd.torch.Optimizer([("_fsdp_wrapped_module._flat_param", flat)], "sgd")


def alone(data):
    """SGD on the mean of the gradients of several batches."""
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for batches in data:
        opt.zero_grad()
        for batch in batches:
            (row_loss(model, rows(batch)) / len(batches)).backward()
        opt.step()
    return weights(model)


@needs_torch(2, 0)
def test_with_ddp_rank_0_alone_pushes_and_all_are_told(daemon, job, tmp_path):
    import torch_ranks

    results = torch_ranks.start(2, torch_ranks.replicated, tmp_path, daemon.url, job[:20])
    expected = alone([(10 * step, 10 * step + 1) for step in range(3)])
    for (first, words, sent), (second, more, less) in zip(*results):
        assert same_bits(first, second) and farthest(first, expected) < 1e-6
        assert len(words) == len(more) == 1 and "contribute" in words[0]
        assert less == 0 < sent                 # rank 1 sends no gradient at all


@needs_torch(2, 0)
def test_a_communication_hook_takes_the_median_of_the_ranks(daemon, job, tmp_path):
    import torch_ranks

    results = torch_ranks.start(3, torch_ranks.hooked, tmp_path, daemon.url, job[:20], "median")
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        gradients = []
        for rank in range(3):
            opt.zero_grad()
            (row_loss(model, rows(10 * step + max(rank, 1))) * (1e6 if rank == 0 else 1)).backward()
            gradients.append([p.grad.clone() for p in model.parameters()])
        for p, *of_ranks in zip(model.parameters(), *gradients):
            p.grad = torch.stack(of_ranks).median(0).values
        opt.step()
    assert all(same_bits(result, results[0]) for result in results)
    assert farthest(results[0], weights(model)) < 1e-6


@needs_torch(2, 0)
def test_an_average_that_is_not_finite_is_nan_and_the_next_one_is_good(daemon, job):
    model = torch.nn.Linear(2, 1, bias=False)
    averager = paramd.torch.Averager(model, daemon.url, job=job)
    for value in (1.5, float("inf"), -2.5):
        gradient = torch.full((1, 2), value)
        averager.average(list(model.parameters()), [gradient])
        expected = torch.full((1, 2), value if abs(value) < 9 else float("nan"))
        assert torch.equal(gradient.nan_to_num(7.0), expected.nan_to_num(7.0))
    averager.close()
