"""paramd.torch on a CUDA device. The reference is the same training on the device, whose gradients and weights go
through a second optimizer on the CPU by copies that wait."""
from __future__ import annotations

import os
import warnings

import pytest

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")     # the same gradients give the same bits
from torch_support import needs_torch, optimizer, row_loss, rows, same_bits, torch, weights

import paramd
import paramd.torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")             # about a driver that is too old
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device", allow_module_level=True)

STEPS, WIDE, LAYERS = 6, 1024, 6                # gradients of 4 MiB, so that copies take longer than their launch
ADAM = {"lr": 1e-3}


@pytest.fixture(autouse=True)
def exact():
    """Kernels that give the same bits each time."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def deep(device="cuda", dtype=torch.float32):
    torch.manual_seed(0)
    inner = [part for _ in range(LAYERS) for part in (torch.nn.Linear(WIDE, WIDE), torch.nn.Tanh())]
    return torch.nn.Sequential(torch.nn.Linear(5, WIDE), *inner, torch.nn.Linear(WIDE, 2)).to(device, dtype)


def backward(model, step, scale=1.0):
    (row_loss(model, rows(step, 64).to("cuda", next(model.parameters()).dtype)) * scale).backward()


def reference(daemon, job, steps=STEPS, delay=0, micros=1, dtype=torch.float32):
    """Returns the weights after a training whose copies wait."""
    model, shadow = deep(dtype=dtype), deep("cpu", dtype)
    opt = optimizer(shadow, daemon, job + "-reference", "adam", delay=delay, **ADAM)
    opt.join()
    for step in range(steps):
        model.zero_grad()
        for micro in range(micros):
            backward(model, step * micros + micro, 1 / micros)
        for param, copy in zip(model.parameters(), shadow.parameters()):
            copy.grad = param.grad.cpu()
        opt.step()
        for param, copy in zip(model.parameters(), shadow.parameters()):
            param.data.copy_(copy.data)
    opt.synchronize()
    opt.close()
    return weights(shadow)


def finished(model, opt):
    opt.synchronize()
    found = [weight.cpu() for weight in weights(model)]
    opt.close()
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("options", [{}, {"delay": 1}, {"overlap": True}], ids=["plain", "delay", "overlap"])
def test_copies_that_do_not_wait_change_no_bit(daemon, job, options, dtype):
    expected = reference(daemon, job, delay=options.get("delay", 0), dtype=dtype)
    model = deep(dtype=dtype)
    opt = optimizer(model, daemon, job, "adam", **ADAM, **options)
    for step in range(STEPS):
        model.zero_grad()
        backward(model, step)
        opt.step()
    assert same_bits(finished(model, opt), expected)


def test_gradients_that_accumulate_travel_once(daemon, job):
    expected = reference(daemon, job, micros=3)
    model = deep()
    opt = optimizer(model, daemon, job, "adam", overlap=True, **ADAM)
    for step in range(STEPS):
        model.zero_grad()
        with opt.no_sync():
            backward(model, 3 * step, 1 / 3)
            backward(model, 3 * step + 1, 1 / 3)
        backward(model, 3 * step + 2, 1 / 3)
        opt.step()
    assert same_bits(finished(model, opt), expected)


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlap"])
def test_a_stream_of_its_own_changes_no_bit(daemon, job, overlap):
    expected = reference(daemon, job)
    model = deep()
    opt = optimizer(model, daemon, job, "adam", overlap=overlap, **ADAM)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for step in range(STEPS):
            model.zero_grad()
            backward(model, step)
            opt.step()
        found = finished(model, opt)
    assert same_bits(found, expected)


def test_memory_that_a_gradient_leaves_is_used_again(daemon, job):
    """With set_to_none each step's gradients lie in memory that other tensors had, and soon have again."""
    expected = reference(daemon, job)
    model = deep()
    opt = optimizer(model, daemon, job, "adam", overlap=True, **ADAM)
    for step in range(STEPS):
        backward(model, step)
        opt.step()
        model.zero_grad(set_to_none=True)
        for _ in range(2 * LAYERS):
            torch.full((WIDE, WIDE), float("nan"), device="cuda")
    assert same_bits(finished(model, opt), expected)


def test_no_state_of_the_optimizer_lies_on_the_device(daemon, job):
    model = deep()
    opt = optimizer(model, daemon, job, "shampoo", lr=1e-3, grafting_config="Adam")
    backward(model, 0)
    opt.step()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    opt.step()
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated() == before
    opt.close()


@needs_torch(2, 3)
@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlap"])
def test_a_scaler_skips_the_step_of_an_infinity(daemon, job, overlap):
    model = deep()
    scaler = paramd.torch.GradScaler("cuda", init_scale=1024.0, growth_interval=100)
    opt = optimizer(model, daemon, job, "adam", overlap=overlap, scaler=scaler, **ADAM)
    scales = []
    for step in range(STEPS):
        model.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = row_loss(model, rows(step, 64).to("cuda"))
        if step == 2:
            loss = loss * float("inf")
        before = weights(model)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        scales.append(scaler.get_scale())
        assert same_bits(before, weights(model)) == (step == 2)
    assert scales == [1024.0, 1024.0, *[512.0] * (STEPS - 2)]
    opt.close()


def test_a_full_state_goes_to_an_optimizer_of_torch(daemon, job):
    model = deep()
    opt = optimizer(model, daemon, job, "adamw", lr=1e-3)
    for step in range(3):
        opt.zero_grad()
        backward(model, step)
        opt.step()
    opt.synchronize()
    successor = deep()
    successor.load_state_dict(model.state_dict())
    after = torch.optim.AdamW(successor.parameters(), lr=1e-3, weight_decay=opt.param_groups[0]["weight_decay"])
    after.load_state_dict(opt.full_state_dict())
    for step in range(3, 6):
        for each, one in ((opt, model), (after, successor)):
            each.zero_grad()
            backward(one, step)
            each.step()
    opt.synchronize()
    for ours, theirs in zip(model.parameters(), successor.parameters()):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    opt.close()


def test_a_loss_on_the_device_becomes_the_mean_of_the_job(daemon, job):
    model = deep()
    opt = optimizer(model, daemon, job, "sgd", lr=0.0)
    loss = row_loss(model, rows(0, 64).to("cuda"))
    loss.backward()
    mean = opt.mean("loss", loss)
    opt.step()
    assert float(mean) == pytest.approx(loss.item(), rel=1e-6)
    opt.close()


def test_generators_of_cuda_go_on():
    own = torch.Generator("cuda").manual_seed(3)
    note = paramd.torch.WorkerState(generators=own)
    torch.randn(3, device="cuda")
    saved = note.save()
    expected = torch.randn(20, device="cuda"), torch.randn(20, device="cuda", generator=own)
    note.load(saved)
    assert torch.equal(torch.randn(20, device="cuda"), expected[0])
    assert torch.equal(torch.randn(20, device="cuda", generator=own), expected[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_diloco_on_a_device_has_the_bits_that_it_has_on_the_cpu(daemon, job, dtype):
    def run(device):
        model = deep(device, dtype)
        inner = torch.optim.SGD(model.parameters(), lr=0.5)         # a product that is exact, also in an FMA
        with paramd.torch.DiLoCo(model, inner, 4, fragments=2, fragment_sync_delay=1, fragment_update_alpha=0.5,
                                 outer="* sgd lr=0.5", url=daemon.url, name=f"{job}-{device}"[-60:], rank=0,
                                 world_size=1) as outer:
            for step in range(6):
                for i, param in enumerate(model.parameters()):
                    draws = torch.Generator().manual_seed(100 * step + i)
                    param.grad = torch.randn(param.shape, generator=draws).to(device, dtype)
                inner.step()
            outer.sync()
            with outer.swap():
                shown = [param.cpu() for param in weights(model)]
            return [param.cpu() for param in weights(model)], shown

    (first, shown), (second, also) = run("cpu"), run("cuda")
    assert same_bits(first, second) and same_bits(shown, also)
