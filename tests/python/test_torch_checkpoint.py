"""torch.distributed.checkpoint: it takes a step with zero gradients if an optimizer has no state."""
from __future__ import annotations

import pytest
from torch_support import farthest, mlp, needs_torch, optimizer, row_loss, rows, same_bits, torch, weights

pytestmark = needs_torch(2, 4)


def train(model, opt, steps):
    for step in steps:
        opt.zero_grad()
        row_loss(model, rows(step)).backward()
        opt.step()


# Both together fail in torch itself, with its own optimizers, too.
@pytest.mark.parametrize(("full", "flat"), [(False, False), (True, False), (False, True)])
def test_state_goes_through_a_checkpoint_and_nothing_travels(daemon, tmp_path, full, flat):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict

    options = StateDictOptions(full_state_dict=full, flatten_optimizer_state_dict=flat)
    model = mlp()
    opt = optimizer(model, daemon, f"dcp-{flat}-{full}", "adamw", lr=0.01)
    get_state_dict(model, opt, options=options)
    assert opt._run is None                         # no step was taken, and nothing has travelled
    train(model, opt, range(3))
    opt.param_groups[0]["lr"] = 0.25
    before = opt.client.stats.payload_out
    model_state, optim_state = get_state_dict(model, opt, options=options)
    dcp.save({"model": model_state, "optim": optim_state}, checkpoint_id=tmp_path)
    opt.param_groups[0]["lr"] = 0.5
    saved = weights(model)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    model_state, optim_state = get_state_dict(model, opt, options=options)
    dcp.load({"model": model_state, "optim": optim_state}, checkpoint_id=tmp_path)
    set_state_dict(model, opt, model_state_dict=model_state, optim_state_dict=optim_state, options=options)
    assert opt.param_groups[0]["lr"] == 0.25 and opt.step_count == 3 and same_bits(saved, weights(model))
    assert opt.client.stats.payload_out == before
    train(model, opt, range(3, 5))
    other = mlp()
    ref = torch.optim.AdamW(other.parameters(), lr=0.01)
    train(other, ref, range(3))
    ref.param_groups[0]["lr"] = 0.25
    train(other, ref, range(3, 5))
    assert farthest(weights(model), weights(other)) < 1e-4
    opt.close()
