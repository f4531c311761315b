"""Tests jobs over several daemons: a list of addresses is all that a program needs, and the model is one model."""
from __future__ import annotations

import json
import os
import threading

import numpy as np
import pytest

import paramd

STEPS = 12
SHAPES = {"embed": (512, 256), "dense": (60, 50), "bias": (50,), "scale": ()}
RULES = "* adamw lr=0.01"
OPTIONS = {"split_bytes": "64KiB", "clip_global_norm": "0.5"}


def tensor_bytes_of(path):
    """Returns the tensors of a safetensors file by name: shape, element type, bytes."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: (entry["shape"], entry["dtype"], data[slice(*entry["data_offsets"])])
            for name, entry in header.items()}


def gradients(rank, step):
    rng = np.random.default_rng([rank, step])
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def train(url, job, rank, world, found, errors, path=None):
    """Trains as one rank, and puts its weights into `found`."""
    try:
        with paramd.Client(url, job=job, rank=rank, world_size=world, rules=RULES, options=OPTIONS) as client:
            weights = {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}
            client.declare(weights)
            client.init(weights)
            for step in range(1, STEPS + 1):
                ticket = client.push_pull(gradients(rank, step), weights, scalars={"loss": float(rank)})
                ticket.wait()
                assert ticket.scalars["loss"] == ((world - 1) / 2, world)
            if path is not None:
                assert client.export_state(path) == STEPS
            client.barrier()
            found[rank] = weights
    except BaseException as error:
        errors.append(error)
        raise


def run(url, job, world, path=None):
    found, errors = {}, []
    threads = [threading.Thread(target=train, args=(url, job, rank, world, found, errors, path if rank == 0 else None))
               for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    return found[0]


def test_two_daemons_train_the_weights_of_one(one, two):
    assert " " in two.url and len(two.pids) == len(two.logs) == 2
    alone = run(one.url, "alone", 2)
    shared = run(two.url, "shared", 2)
    for name in SHAPES:
        assert np.array_equal(alone[name], shared[name]), name


def test_the_exported_state_is_that_of_one_model(one, two, tmp_path):
    files = [str(tmp_path / name) for name in ("one", "two")]
    for daemon, path in zip((one, two), files):
        run(daemon.url, "exported", 2, path)
    first, second = (tensor_bytes_of(path) for path in files)
    assert first.keys() == second.keys()
    for name in first:
        assert first[name] == second[name], name


def test_the_address_may_come_from_the_environment(two, monkeypatch):
    monkeypatch.setenv("PARAMD_URL", two.url)
    with paramd.Client(job="environment", rules="* sgd lr=1") as client:
        weights = {"a": np.zeros(3, np.float32), "b": np.zeros((2, 2), np.float32)}
        client.declare(weights)
        client.init(weights)
        client.push_pull({"a": np.ones(3, np.float32), "b": np.ones((2, 2), np.float32)}, weights).wait()
        assert np.array_equal(weights["a"], -np.ones(3)) and np.array_equal(weights["b"], -np.ones((2, 2)))


def test_a_client_tells_where_the_shards_of_its_job_are(one, two):
    for daemon in (one, two):
        with paramd.Client(daemon.url, job="where", rules="* sgd lr=1") as client:
            assert [shard.url for shard in client.shards] == daemon.url.split(" ")
            assert [shard.tenure for shard in client.shards] == [0] * len(daemon.pids)   # they have no engine


def test_too_many_shards_for_a_model_are_refused_in_words(two):
    with paramd.Client(two.url, job="small", rules="* sgd lr=1") as client, \
            pytest.raises(paramd.Error, match="shard"):
        client.declare({"only": np.zeros(3, np.float32)})


def test_daemons_end_together_and_leave_no_files():
    daemons = paramd.local(threads=1, shards=2)
    sockets = [part[len("unix://"):] for part in daemons.url.split(" ")]
    assert all(os.path.exists(path) for path in sockets)
    daemons.close()
    assert not any(os.path.exists(path) for path in sockets)
    daemons.close()


def test_each_daemon_has_a_directory_of_its_own(tmp_path):
    with paramd.local(threads=1, shards=2, state_dir=tmp_path / "state") as daemons:
        assert len(daemons.pids) == 2
        assert sorted(os.listdir(tmp_path / "state")) == ["0", "1"]


def test_a_wrong_number_of_shards_is_refused():
    with pytest.raises(paramd.InvalidArgument, match="shards: expected 1 to 64, got 0"):
        paramd.local(shards=0)
