"""Ranks that are processes: what test_torch_sharded.py and test_torch_ddp.py run in each.

The processes come from a fork server that has imported torch already, which saves seconds for each of them.
"""
from __future__ import annotations

import multiprocessing
import os

import torch
import torch._dynamo  # torch.optim imports it sooner or later, which takes seconds
import torch.distributed as dist
from torch_support import mlp, row_loss, rows

import paramd.torch


def start(n, work, folder, *arguments):
    """Runs work(rank, n, *arguments) in n processes of one process group. Returns what each has returned."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch_ranks"])
    processes = [context.Process(target=_run, args=(work, rank, n, str(folder), arguments)) for rank in range(n)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    alive = [process.kill() for process in processes if process.is_alive()]
    assert not alive and not any(process.exitcode for process in processes), [p.exitcode for p in processes]
    return [torch.load(f"{folder}/result.{rank}") for rank in range(n)]


def _run(work, rank, n, folder, arguments):
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""         # the ranks compute on the CPU, where there are fewer devices, too
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=n)
    try:
        result = work(rank, n, *arguments)
        torch.save(result, f"{folder}/result.{rank}")
        dist.barrier()
    finally:
        dist.destroy_process_group()


def sharded(rank, n, url, job, row, hypers, mesh_shape):
    """Trains with fully_shard, each rank with data of its own. Returns whole gradients of each step, the weights that
    are trained, those to evaluate with and the first again, and how many shards of this rank are empty."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    names = ("replicate", "shard")[-len(mesh_shape):]
    model = fully_shard(mlp(), mesh=init_device_mesh("cpu", mesh_shape, mesh_dim_names=names))
    opt = paramd.torch.Optimizer(model, row, url, job=job, rank=rank, world_size=n, **hypers)
    history = []
    for step in range(4):
        opt.zero_grad()
        row_loss(model, rows(10 * step + rank)).backward()
        history.append([p.grad.full_tensor() for p in model.parameters()])
        mean = opt.mean("rank", rank)
        opt.step()
        assert abs(float(mean) - (n - 1) / 2) < 1e-6
    forms = []
    for switch in (opt.train, opt.eval, opt.train):
        switch()
        forms.append([p.detach().full_tensor().clone() for p in model.parameters()])
    empty = sum(p.to_local().numel() == 0 for p in model.parameters())
    opt.close()
    return history, forms, empty


def checkpointed(rank, n, urls, job, row, hypers, folder, flat):
    """Trains with fully_shard, saves by torch.distributed.checkpoint, and goes on from there with another server.
    Returns the whole weights of both ways, and the step."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    found = []
    for seed, url, steps in ((0, urls[0], range(6)), (7, urls[1], range(3, 6))):
        model = fully_shard(mlp(seed).to(torch.bfloat16))
        opt = paramd.torch.Optimizer(model, row, url, job=f"{job}-{seed}", rank=rank, world_size=n, **hypers)
        if seed:
            state = dict(zip(("model", "opt"), get_state_dict(model, opt, options=options)))
            dcp.load(state, checkpoint_id=folder)
            set_state_dict(model, opt, model_state_dict=state["model"], optim_state_dict=state["opt"], options=options)
        for step in steps:
            opt.zero_grad()
            row_loss(model, rows(10 * step + rank).bfloat16()).backward()
            opt.step()
            if step == 2:
                state = dict(zip(("model", "opt"), get_state_dict(model, opt, options=options)))
                dcp.save(state, checkpoint_id=folder)
        found.append([p.detach().full_tensor() for p in model.parameters()])
    return (*found, opt.step_count)


def replicated(rank, n, url, job):
    """Trains a model that DDP wraps, before or behind the optimizer, or before a drop-in that gets bare parameters.
    Returns weights, and what was warned about."""
    import warnings

    from paramd.torch import optim

    results = []
    for order in ("before", "behind", "bare"):
        model = mlp()
        wrapped = model if order == "behind" else torch.nn.parallel.DistributedDataParallel(model)
        given = {"url": url, "job": f"{job}-{order}", "rank": rank, "world_size": n, "lr": 0.1}
        opt = optim.SGD(wrapped.parameters(), **given) if order == "bare" else \
            paramd.torch.Optimizer(wrapped, "sgd", **given)
        if order == "behind":
            wrapped = torch.nn.parallel.DistributedDataParallel(model)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step in range(3):
                opt.zero_grad()
                row_loss(wrapped, rows(10 * step + rank)).backward()
                opt.step()
        words = [str(one.message) for one in caught if "averages the gradients" in str(one.message)]
        results.append(([p.detach().clone() for p in model.parameters()], words, opt.client.stats.payload_out))
        opt.close()
    return results


def hooked(rank, n, url, job, aggregate):
    """Trains with torch's SGD and DDP, whose gradients the server averages. Rank 0's are wild."""
    model = mlp()
    averager = paramd.torch.Averager(model, url, job=job, rank=rank, world_size=n, options={"aggregate": aggregate})
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    wrapped.register_comm_hook(averager, paramd.torch.communication_hook)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        opt.zero_grad()
        (row_loss(wrapped, rows(10 * step + max(rank, 1))) * (1e6 if rank == 0 else 1)).backward()
        opt.step()
    averager.close()
    return [p.detach().clone() for p in model.parameters()]


def _fsdp2_accelerator(rank, n):
    """Returns an Accelerator that shards models with FSDP2. Accelerate itself does so on GPUs and the like alone: on
    CPUs it must be told."""
    import accelerate

    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(n), LOCAL_WORLD_SIZE=str(n),
                      ACCELERATE_USE_CPU="true", OMP_NUM_THREADS="1")
    plugin = accelerate.FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="size_based_wrap",
                                                       min_num_params=10 ** 6, cpu_ram_efficient_loading=False)
    accelerator = accelerate.Accelerator(cpu=True, fsdp_plugin=plugin)
    accelerate.PartialState().distributed_type = accelerate.DistributedType.FSDP
    accelerator.state.distributed_type = accelerate.DistributedType.FSDP
    accelerator.state.fsdp_plugin = plugin
    assert accelerator.is_fsdp2 and accelerator.num_processes == n
    return accelerator


def accelerated(rank, n, url, job, folder, bare):
    """Trains with Accelerate and FSDP2, first with one optimizer, then with another one that goes on with the job, from
    a model of other weights. Returns the whole weights, and what a checkpoint changes: weights, bytes sent, step."""
    from paramd.torch import optim

    accelerator = _fsdp2_accelerator(rank, n)
    for seed, steps in ((0, range(3)), (5, range(3, 5))):
        model = mlp(seed)
        given = {"url": url, "job": job, "rank": rank, "world_size": n, "lr": 0.01}
        raw = optim.AdamW(model.parameters(), **given) if bare else paramd.torch.Optimizer(model, "adamw", **given)
        prepared, opt = accelerator.prepare(model, raw)
        assert raw._run is None and hasattr(next(prepared.parameters()), "placements")
        for step in steps:
            opt.zero_grad()
            accelerator.backward(row_loss(prepared, rows(10 * step + rank)))
            if seed == 0:
                accelerator.clip_grad_norm_(prepared.parameters(), 1e9)
            opt.step()
        if seed == 0:
            raw.client.close()              # the process ends, and the job stays
    whole = [p.detach().full_tensor() for p in prepared.parameters()]
    sent = raw.client.stats.payload_out
    accelerator.save_state(f"{folder}/state")
    accelerator.load_state(f"{folder}/state")
    loaded = [p.detach().full_tensor() for p in prepared.parameters()]
    sent, steps = raw.client.stats.payload_out - sent, raw.step_count
    raw.close()
    return whole, loaded, sent, steps


def diloco(rank, n, url, job):
    """Trains two workers of two shards with DiLoCo. Returns the whole weights, the whole global weights, and the
    worker's group."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from paramd.torch.replicas import group_of

    mesh = init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("worker", "shard"))["shard"]
    model = fully_shard(mlp(seed=0 if rank < n // 2 else 7), mesh=mesh)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with paramd.torch.DiLoCo(model, inner, 4, url=url, name=job, rank=rank, world_size=n, outer="* sgd lr=1") as outer:
        for step in range(4):
            inner.zero_grad()
            row_loss(model, rows(100 * rank + step)).backward()
            inner.step()
        whole = [p.detach().full_tensor() for p in model.parameters()]
        with outer.swap():
            global_weights = [p.detach().full_tensor() for p in model.parameters()]
        return whole, global_weights, group_of(outer._weights.places)


def diloco_of_ddp(rank, n):
    """Returns the text with which DiLoCo refuses a model that DDP wraps."""
    model = torch.nn.parallel.DistributedDataParallel(mlp())
    try:
        paramd.torch.DiLoCo(model, torch.optim.SGD(model.parameters(), lr=0.1), 4)
    except ValueError as error:
        return str(error)
    return ""
