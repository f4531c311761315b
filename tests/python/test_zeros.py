"""A value of 0 is a value: it is not taken for an argument that was left out."""
from __future__ import annotations

import numpy as np
import pytest

import paramd
from paramd import rows
from paramd.schedules import Hypers


def test_the_step_0_is_durable_on_any_server(daemon, job):
    with paramd.Client(daemon.url, job) as client:
        client.declare({"w": np.zeros(2, np.float32)})
        client.sync(0)
        with pytest.raises(paramd.FailedPrecondition, match="checkpoint"):
            client.sync(1)


@pytest.mark.parametrize(("settings", "words"), [
    ({"rank": 0, "world_size": 0}, "rank 0 of 0: expected 0 <= rank < world_size"),
    ({"rank": 1, "world_size": 1}, "rank 1 of 1"),
    ({"deadline": 0}, "deadline: expected more than 0 seconds, got 0"),
    ({"job": ""}, "job: expected a text that is not empty"),
    ({"url": ""}, "url: expected a text that is not empty"),
])
def test_zeros_and_empty_texts_that_mean_nothing_are_refused(daemon, job, settings, words, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(paramd.InvalidArgument, match=words):
        paramd.Client(**{"url": daemon.url, "job": job, **settings})


def test_a_weight_a_rate_and_a_step_of_0_count(daemon, job):
    weights = {"w": np.ones(2, np.float32)}
    with paramd.Client(daemon.url, job, rules="* sgd lr=1", options={"aggregate": "weighted_mean", "seed": 0,
                                                                      "start_step": 0}) as client:
        client.declare(weights)
        client.init(weights)
        assert client.welcome.seed == 0 and client.step_of("w") == 0
        gradient = {"w": np.ones(2, np.float32)}
        assert client.push_pull(gradient, weights, weight=0).wait()["w"].outcome == paramd.SKIPPED
        assert client.push_pull(gradient, weights, hypers={"lr": 0}).wait()["w"].outcome == paramd.STEPPED
        assert (weights["w"] == 1).all()
        ticket = client.push_pull(gradient, weights, scalars={"loss": 0.0})
        ticket.wait()
        assert ticket.scalars == {"loss": (0.0, 1.0)}


def test_rules_have_the_zeros_that_were_given():
    assert rows.rule("*", "adamw", {"lr": 0, "betas": (0, 0.9), "weight_decay": 0.0}) == \
        "* adamw lr=0 betas=0,0.9 weight_decay=0.0"
    assert Hypers("adamw", {"learning_rate": 0.0, "b1": 0, "weight_decay": 0}).rule("*") == \
        "* adamw lr=0.0 betas[0]=0 weight_decay=0"
