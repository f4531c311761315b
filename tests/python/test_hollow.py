"""Parameters without elements (an unused head of width 0) stay with the process, and do not disturb the others."""
from __future__ import annotations

import numpy as np
import pytest

import paramd

SHAPES = {"a": (3, 2), "empty": (0, 3), "b": (4,), "none": (5, 0, 2)}


def arrays(value=0.0):
    return {name: np.full(shape, value, np.float32) for name, shape in SHAPES.items()}


def test_a_client_trains_the_others(daemon, job):
    weights = arrays()
    with paramd.Client(daemon.url, job, rules="* sgd lr=1") as client:
        client.declare(weights)
        client.init(weights)
        assert client.names == ("a", "b") and client.buffer("empty").nbytes == 0
        for step in range(2):
            results = client.push_pull(arrays(1.0), weights).wait()
            assert set(results) == {"a", "b"} and client.step_of("empty") == step + 1
        client.pull(weights).wait()
        assert (weights["a"] == -2).all() and (weights["b"] == -2).all() and weights["none"].shape == (5, 0, 2)
        assert client.push_pull({"empty": arrays()["empty"]}, {"empty": weights["empty"]}).wait() == {}
        assert client.pull({"none": weights["none"]}).wait() == {}


def test_a_model_of_nothing_else_sends_nothing(daemon, job):
    weights = {"empty": np.zeros((0, 3), np.float32)}
    with paramd.Client(daemon.url, job) as client:
        client.declare(weights)
        client.init(weights)
        assert client.push_pull(weights, weights).wait() == {} and client.step_of("empty") == 0


def test_what_does_not_fit_is_refused_in_words(daemon, job):
    with paramd.Client(daemon.url, job) as client:
        with pytest.raises(paramd.InvalidArgument, match="parameter a: it is declared twice"):
            client.declare([paramd.Param("a", (0,)), paramd.Param("a", (1,))])
        with pytest.raises(paramd.InvalidArgument, match="expected float32, float16 or bfloat16"):
            client.declare({"a": np.zeros((0, 2), np.int64)})
        client.declare(arrays())
        with pytest.raises(paramd.InvalidArgument, match="parameter empty: it has no elements"):
            client.note_of("empty")


# ---- torch ----

def empties(torch):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 0))
    model.extra = torch.nn.Parameter(torch.empty(5, 0, 2))
    return model


def loss_of(model, x):
    return model[:2](x).pow(2).sum() + model(x).sum() + model.extra.sum()


@pytest.mark.parametrize("options", [{}, {"delay": 1}, {"overlap": True}])
def test_torch_trains_the_others_with_every_way_of_stepping(daemon, job, options):
    torch = pytest.importorskip("torch")
    import paramd.torch

    def trained(make, steps=4):
        model = empties(torch)
        opt = make(model)
        for step in range(steps):
            opt.zero_grad()
            x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
            mean = opt.mean("loss", 1.5) if hasattr(opt, "mean") else 1.5
            loss_of(model, x).backward()
            opt.step()
        if hasattr(opt, "synchronize"):
            opt.synchronize()
            full = opt.full_state_dict()
            assert opt.step_count == steps and float(mean) == 1.5 and len(full["param_groups"][0]["params"]) == 5
            torch.optim.AdamW(model.parameters()).load_state_dict(full)
            opt.load_full_state_dict(full)
            opt.close()
        return model

    own = f"hollow-{options}"
    ours = trained(lambda model: paramd.torch.Optimizer(model, "adamw", daemon.url, job=own, **options))
    theirs = trained(lambda model: torch.optim.AdamW(model.parameters()))
    if "delay" not in options:
        for p, q in zip(ours.parameters(), theirs.parameters()):
            torch.testing.assert_close(p, q, rtol=0, atol=1e-6)


def test_torch_steps_where_no_parameter_has_elements(daemon, job):
    torch = pytest.importorskip("torch")
    import paramd.torch

    param = torch.nn.Parameter(torch.empty(0, 3))
    for options in ({}, {"overlap": True}):
        opt = paramd.torch.Optimizer([("w", param)], "adamw", daemon.url, job=f"{job}-{options}", **options)
        for _ in range(2):
            opt.zero_grad()
            param.sum().backward()
            opt.step()
        assert opt.step_count == 2
        opt.mean("loss", 1.0)
        with pytest.raises(paramd.InvalidArgument, match="means need a parameter of which every rank has elements"):
            opt.step()
        opt.close()


# ---- JAX ----

def test_jax_trains_the_other_leaves(daemon, job):
    jax = pytest.importorskip("jax")
    import paramd.jax

    params = {"w": jax.numpy.ones((3, 2)), "head": {"w": jax.numpy.zeros((3, 0)), "b": jax.numpy.zeros((0,))}}
    with paramd.jax.Remote(params, "sgd", daemon.url, job=job, learning_rate=0.5) as remote:
        params = remote.pull()
        for _ in range(2):
            params = remote.step(params, jax.tree_util.tree_map(jax.numpy.ones_like, params))
        assert (params["w"] == 0).all() and params["head"]["w"].shape == (3, 0) and remote.step_count == 2
    with pytest.raises(paramd.InvalidArgument, match="at least one array that has elements"):
        paramd.jax.Remote({"b": jax.numpy.zeros((0,))}, "sgd", daemon.url, job=job + "-none")
