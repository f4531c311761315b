"""GradScaler where a step's verdict comes late (delay=1), and where gradients travel before step() (overlap=True)."""
from __future__ import annotations

import pytest
from torch_support import farthest, mlp, needs_torch, optimizer, ranks, row_loss, rows, same_bits, torch, weights

import paramd

pytestmark = needs_torch(2, 3)


def made(**options):
    return paramd.torch.GradScaler("cpu", init_scale=1024.0, **options)


def scales_of(opt, model, scaler, infinite, steps, rank=0, number_of=1):
    """Trains; gradients of the steps in `infinite` overflow on the last rank. Returns the scale after each step."""
    found = []
    for step in range(steps):
        opt.zero_grad()
        loss = row_loss(model, rows(number_of * step + rank))
        (scaler.scale(loss) if scaler is not None else loss).backward()
        if step in infinite and rank == number_of - 1:
            model[0].weight.grad[0, 0] = float("inf")
        if scaler is None:
            opt.step()
            continue
        scaler.step(opt)
        scaler.update()
        found.append(scaler.get_scale())
    opt.synchronize()
    return found


# ---- delay=1 ----

def test_with_delay_all_ranks_take_the_steps_without_a_scale_and_learn_verdicts_one_step_later(daemon, job):
    def work(rank, scaled):
        model, scaler = mlp(), made() if scaled else None
        opt = optimizer(model, daemon, f"{job}-{scaled}"[-60:], "adam", rank=rank, world_size=2, delay=1, lr=0.01)
        found = scales_of(opt, model, scaler, {2}, 5, rank, 2)
        return found, weights(model), opt.step_count

    first, second = ranks(2, lambda rank: work(rank, True))
    plain, _ = ranks(2, lambda rank: work(rank, False))
    assert first[0] == second[0] == [1024.0, 1024.0, 1024.0, 512.0, 512.0]
    assert same_bits(first[1], second[1]) and same_bits(first[1], plain[1]) and first[2] == 5


@pytest.mark.parametrize(("infinite", "expected"), [
    ({1, 2}, [1024.0, 1024.0, 512.0, 512.0, 512.0, 1024.0]),        # both were made with 1024: it is halved once
    ({1, 3}, [1024.0, 1024.0, 512.0, 512.0, 256.0, 256.0]),         # the other one was made with 512
    ({2}, [1024.0, 1024.0, 2048.0, 512.0, 512.0, 512.0]),           # 1024, from which it has grown, was too large
    (set(), [1024.0, 1024.0, 2048.0, 2048.0, 2048.0, 4096.0]),      # steps made with 1024 say nothing of 2048
])
def test_a_late_verdict_counts_for_the_scale_of_its_own_step(daemon, job, infinite, expected):
    model, scaler = mlp(), made(growth_interval=2)
    opt = optimizer(model, daemon, f"{job}"[:40] + str(len(infinite)) + str(sum(infinite)), delay=1)
    assert scales_of(opt, model, scaler, infinite, 6) == expected
    opt.close()


def test_with_delay_another_optimizers_verdict_counts_at_once(daemon, job):
    model, other, scaler = mlp(), mlp(), made()
    opt, plain = optimizer(model, daemon, job, delay=1), torch.optim.SGD(other.parameters(), lr=0.1)
    found = []
    for step in range(3):
        for one in (opt, plain):
            one.zero_grad()
        scaler.scale(row_loss(model, rows(step)) + row_loss(other, rows(step))).backward()
        if step == 0:
            other[0].weight.grad[0, 0] = float("nan")
        for one in (opt, plain):
            scaler.step(one)
        scaler.update()
        found.append(scaler.get_scale())
    assert found == [512.0, 512.0, 512.0]
    opt.close()


def test_a_step_that_the_server_has_lost_has_no_verdict(own_daemon, job):
    model, scaler = mlp(), made()
    opt = optimizer(model, own_daemon, job, delay=1)
    assert scales_of(opt, model, scaler, {1}, 2) == [1024.0, 1024.0]
    own_daemon.restart()
    scaler.scale(row_loss(model, rows(0))).backward()
    with pytest.raises(paramd.DataLoss):
        scaler.step(opt)
        opt.synchronize()
    opt.restart()
    scaler.update(1024.0)
    assert scales_of(opt, model, scaler, set(), 2) == [1024.0, 1024.0]
    opt.close()


# ---- overlap=True ----

def test_with_overlap_all_ranks_take_the_steps_without_a_scale(daemon, job):
    def work(rank, scaled):
        model, scaler = mlp(wide=1200), made(growth_interval=2) if scaled else None     # two buckets and more
        options = {"options": {"nonfinite_scope": "job"}} if not scaled else {"scaler": scaler}
        opt = optimizer(model, daemon, f"{job}-{scaled}", "adam", rank=rank, world_size=2, overlap=True, **options)
        for step in range(4):
            opt.zero_grad()
            opt.mean("loss", 1.0)
            loss = row_loss(model, rows(2 * step + rank))
            (scaler.scale(loss) if scaled else loss).backward()
            assert opt._overlap.has_begun
            scaler.step(opt) if scaled else opt.step()
            if scaled:
                scaler.update()
        return weights(model), scaler.get_scale() if scaled else 4096.0

    results = [*ranks(2, lambda rank: work(rank, True)), *ranks(2, lambda rank: work(rank, False))]
    assert all(same_bits(results[0][0], other) and scale == 4096.0 for other, scale in results)


def test_with_overlap_an_infinity_on_one_rank_makes_all_skip_and_all_halve(daemon, job):
    def work(rank):
        model, scaler = mlp(), made()
        opt = optimizer(model, daemon, job, "adam", rank=rank, world_size=2, overlap=True, scaler=scaler)
        history = []
        for step in range(3):
            opt.zero_grad()
            wild = float("inf") if rank == 1 and step == 1 else 1.0
            scaler.scale(row_loss(model, rows(2 * step + rank)) * wild).backward()
            before = weights(model)
            scaler.step(opt)
            scaler.update()
            history.append((same_bits(before, weights(model)), opt.was_skipped, scaler.get_scale()))
        return history, weights(model)

    first, second = ranks(2, work)
    assert first[0] == second[0] == [(False, False, 1024.0), (True, True, 512.0), (False, False, 512.0)]
    assert same_bits(first[1], second[1])


def test_with_overlap_micro_batches_are_unscaled_once(daemon, job):
    model, other, scaler = mlp(), mlp(), made()
    opt = optimizer(model, daemon, job, lr=0.1, overlap=True, scaler=scaler)
    ref = torch.optim.SGD(other.parameters(), lr=0.1)
    for step in range(3):
        for one in (opt, ref):
            one.zero_grad()
        with opt.no_sync():
            scaler.scale(row_loss(model, rows(2 * step))).backward()
        model[0].requires_grad_(step != 1)          # its gradient of the first pass is unscaled by step()
        scaler.scale(row_loss(model, rows(2 * step + 1))).backward()
        model[0].requires_grad_(True)
        scaler.unscale_(opt)
        scaler.step(opt)
        scaler.update()
        row_loss(other, rows(2 * step)).backward()
        other[0].requires_grad_(step != 1)
        row_loss(other, rows(2 * step + 1)).backward()
        other[0].requires_grad_(True)
        ref.step()
    assert farthest(weights(model), weights(other)) < 1e-6
    opt.close()


# ---- refusals ----

def test_what_a_scaler_cannot_do_is_refused_in_words(daemon, job):
    model, scaler = mlp(), made()
    opt = optimizer(model, daemon, job, overlap=True)
    scaler.scale(row_loss(model, rows(0))).backward()
    with pytest.raises(paramd.FailedPrecondition, match="make the optimizer with scaler=scaler"):
        scaler.step(opt)
    with pytest.raises(paramd.InvalidArgument, match="takes no closure"):
        scaler.step(optimizer(mlp(), daemon, job), lambda: None)
    with pytest.raises(paramd.InvalidArgument, match=r"expected a paramd\.torch\.GradScaler, got a GradScaler"):
        optimizer(mlp(), daemon, job, scaler=torch.amp.GradScaler("cpu"))
    half = torch.nn.Linear(2, 1).half()
    opt = optimizer(half, daemon, f"{job}-half", overlap=True, scaler=scaler)
    half(torch.ones(1, 2).half())
    with pytest.raises(ValueError, match="FP16 gradients"):
        scaler.scale(half(torch.ones(1, 2).half()).sum().float()).backward()
