"""A cluster with etcd in network namespaces, and a training on it, for etcd_links.py: three members of etcd, three
shards, a spare, and four workers, each on a machine of its own.
"""
from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

from cluster_net import BIN, JOB, Network, Run

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

SHARDS, WORLD, MEMBERS = 3, 4, 3
NODES = [f"node{number}" for number in range(SHARDS + 1)]
ETCDS = [f"etcd{number}" for number in range(MEMBERS)]
BETWEEN = 10                            # steps between two faults
STOPPED = 75                            # exit status of a daemon whose shard has a newer owner


# ---- etcd ----

class Etcd:
    """Three members of etcd, each on a machine of its own, with disks that can hang."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.network, self.folder = network, folder
        self.members: dict[str, subprocess.Popen[bytes]] = {}
        self.disks_hang = subprocess.run([f"{BIN}/hanging_disk", "/none", "true"], check=False).returncode == 0
        self.engine = ",".join(f"etcd://{network.address[name]}:2379" for name in ETCDS)
        folder.mkdir()
        for name in ETCDS:
            self.start(name)

    def start(self, name: str) -> None:
        """Starts a member, with the data that it had."""
        client, peer = (f"http://{self.network.address[name]}:{port}" for port in (2379, 2380))
        cluster = ",".join(f"{each}=http://{self.network.address[each]}:2380" for each in ETCDS)
        wrapper = [f"{BIN}/hanging_disk", str(self.folder / f"{name}.hangs")] if self.disks_hang else []
        self.members[name] = self.network.start(
            name, self.folder / name, *wrapper, "etcd", "--name", name, "--data-dir", str(self.folder / name),
            "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
            "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster, "--logger", "zap")

    def kill(self, name: str) -> None:
        """Kills a member; its data stay."""
        child = self.members.pop(name)
        child.kill()
        child.wait()

    def end(self) -> None:
        """Kills all members."""
        for name in list(self.members):
            self.kill(name)

    @contextlib.contextmanager
    def hanging_disk(self, name: str) -> Iterator[None]:
        """Lets no call of a member that flushes data to its disk return."""
        file = self.folder / f"{name}.hangs"
        file.touch()
        try:
            yield
        finally:
            file.unlink()

    def ask(self, name: str, path: str, request: object) -> dict[str, Any]:
        """Returns the answer of a member; empty: there is none within a second."""
        connection = http.client.HTTPConnection(self.network.address[name], 2379, timeout=1)
        try:
            connection.request("POST", path, json.dumps(request))
            answer = json.loads(connection.getresponse().read())
            return answer if isinstance(answer, dict) else {}
        except (OSError, ValueError, http.client.HTTPException):
            return {}
        finally:
            connection.close()

    def leader(self) -> str | None:
        """Returns the member that leads, if all members agree on it."""
        answers = {name: self.ask(name, "/v3/maintenance/status", {}) for name in ETCDS}
        leaders = {answer.get("leader") for answer in answers.values()}
        led = [name for name in ETCDS if answers[name].get("header", {}).get("member_id") in leaders]
        return led[0] if len(leaders) == 1 and len(led) == 1 else None

    def keys(self, prefix: str) -> dict[str, tuple[int, dict[str, Any]]]:
        """Returns the keys below a prefix, each with the number of its creation and its value."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        begin, end = (base64.b64encode(each.encode()).decode() for each in (prefix, end))
        answer = next(filter(None, (self.ask(name, "/v3/kv/range", {"key": begin, "range_end": end})
                                    for name in ETCDS)), {})
        return {base64.b64decode(entry["key"]).decode().removeprefix(prefix):
                (int(entry["create_revision"]), json.loads(base64.b64decode(entry["value"])))
                for entry in answer.get("kvs", [])}


# ---- a cluster and its training ----

class Owner(NamedTuple):
    """The owner of a shard, as etcd knows it."""

    node: str
    tenure: int


class Cluster(Run):
    """The daemons of a cluster, and the workers of one training on them.

    `kind` is shared: all machines have one state directory for each shard; mirror: each has its own, and a mirror of
    all shards; list: there is no etcd, and workers have a list of the daemons.
    """

    def __init__(self, network: Network, folder: Path, kind: str, port: int, etcd: Etcd,
                 given: argparse.Namespace) -> None:
        super().__init__(network, folder, WORLD)
        self.kind, self.port, self.etcd, self.given = kind, port, etcd, given
        self.strict = kind == "shared"                  # no rank may go back
        self.has_engine = kind != "list"
        self.may_end = [0] if self.strict else [0, STOPPED]
        self.weights: dict[tuple[str, str], str] = {}   # hashes of the weights of checkpoints, by shard and step
        for name in ("state", "mirror", *NODES):
            (folder / name).mkdir()
        for shard in range(SHARDS):
            self.start_daemon(NODES[shard], shard)
        text = "this daemon owns shard" if self.has_engine else "listening"
        self.await_(60, "all daemons to have their shards",
                    lambda: all(text in self.read(node, "errors") for node in NODES[:SHARDS]))
        if self.has_engine:
            self.start_daemon(NODES[SHARDS])
        for rank in range(WORLD):
            self.launch(rank)
        self.heal()

    def launch(self, rank: int) -> None:
        """Starts the process of a rank."""
        addresses = [f"tcp://{self.network.address[node]}:{self.port}" for node in NODES]
        urls = ",".join(addresses) if self.has_engine else " ".join(addresses[:SHARDS])
        more = [] if self.strict else ["--loses-disks"]
        self.start_worker(rank, urls, self.given.seed, self.given.delay, "--tenures", *more)

    def start_daemon(self, node: str, shard: int | None = None) -> None:
        """Starts a daemon: as the owner of a shard, or as a spare."""
        beat = self.given.heartbeat_timeout
        state = {"shared": "state/{shard}", "mirror": f"{node}/{{shard}}", "list": f"state/{shard}"}[self.kind]
        flags = ["--insecure", "--listen", f"{self.network.address[node]}:{self.port}",
                 "--state-dir", f"{self.folder}/{state}",
                 f"--heartbeat-timeout={1000 * beat:g}ms", f"--heartbeat-interval={200 * beat:g}ms"]
        if self.kind == "mirror":
            flags += ["--server-mirror", f"{self.folder}/mirror/{{shard}}"]
        if self.has_engine:
            flags += ["--cluster-engine", self.etcd.engine, "--cluster-name", self.kind,
                      f"--cluster-shards={SHARDS}", f"--cluster-ttl={self.given.ttl}s",
                      "--cluster-spare" if shard is None else f"--cluster-shard={shard}"]
        self.start(node, f"{BIN}/paramd", *flags)

    def explain(self) -> None:
        """Prints what daemons say of the job, after the last lines of all processes."""
        for command in (["shards"], ["workers", JOB]):
            urls = ",".join(f"{self.network.address[node]}:{self.port}" for node in NODES)
            done = subprocess.run([f"{BIN}/paramctl", "-s", urls, *command], check=False, capture_output=True,
                                  text=True)
            print(done.stdout, done.stderr, sep="")

    def look_at_owners(self) -> dict[int, Owner]:
        """Returns the owners of the shards that have one, if etcd answers."""
        if not self.has_engine:
            return {shard: Owner(NODES[shard], 0) for shard in range(SHARDS)}
        nodes = {f"tcp://{self.network.address[node]}:{self.port}": node for node in NODES}
        return {int(key.removeprefix("shard/")): Owner(nodes[value["url"]], tenure)
                for key, (tenure, value) in self.etcd.keys(f"/paramd/{self.kind}/").items()
                if key.startswith("shard/")}

    def owners(self) -> dict[int, Owner]:
        """Waits until all shards have owners, and returns them."""
        found: dict[int, Owner] = {}

        def look() -> bool:
            found.clear()
            found.update(self.look_at_owners())
            return len(found) == SHARDS

        self.await_(60, "all shards to have owners", look)
        return found

    def spare(self) -> str:
        """Returns the machine without a shard."""
        (spare,) = set(NODES) - {owner.node for owner in self.owners().values()}
        return spare

    def is_whole(self) -> bool:
        """Returns whether all shards have owners, and a spare waits."""
        keys = self.etcd.keys(f"/paramd/{self.kind}/")
        spares = [key for key in keys if key.startswith("spare/")]
        return len(spares) == 1 and len({owner.node for owner in self.look_at_owners().values()}) == SHARDS

    def heal(self) -> None:
        """Starts what has ended, waits until the cluster is whole and trains, and looks at its checkpoints."""
        for node in NODES if self.has_engine else NODES[:SHARDS]:
            if node in self.children and self.children[node].poll() is not None:
                self.kill(node)
            if node not in self.children:
                self.start_daemon(node, None if self.has_engine else NODES.index(node))
        if self.has_engine:
            self.await_(60, "a leader of etcd", lambda: self.etcd.leader() is not None)
            self.await_(60, "all shards to have owners, and a spare", self.is_whole)
        self.take(BETWEEN, 60)
        if self.kind == "mirror":
            self.await_(60, "a mirror of all shards", lambda: all(
                any((self.folder / "mirror").glob(f"{shard}/*/step-*/manifest.json")) for shard in range(SHARDS)))
        self.look_at_checkpoints()

    def look_at_checkpoints(self) -> None:
        """Checks that all checkpoints of a shard and a step have the same weights."""
        for manifest in self.folder.glob("*/*/*/step-*/manifest.json"):
            with contextlib.suppress(FileNotFoundError):                # it is being removed
                content = (manifest.parent / "weights.safetensors").read_bytes()
                tensors = content[8 + int.from_bytes(content[:8], "little"):]
                digest, key = hashlib.sha256(tensors).hexdigest(), (manifest.parts[-4], manifest.parts[-2])
                if self.weights.setdefault(key, digest) != digest:
                    self.fail(f"{manifest.parent}: other weights than another checkpoint of this step")

    def await_end(self, node: str) -> None:
        """Waits until a daemon ends because its shard has a newer owner."""
        self.await_(10 + self.given.slack, f"{node} to end with exit status {STOPPED}",
                    lambda: self.children[node].poll() == STOPPED)
        del self.children[node]

    def machines(self, role: str) -> list[str]:
        """Returns the machines that a role names: shard0 is the owner of shard 0; spare; others name a machine."""
        if role == "spare":
            return [self.spare()]
        return [self.owners()[int(role[-1])].node] if role.startswith("shard") else [role]


class Quiet(Run):
    """A run on one daemon that nobody disturbs."""

    def __init__(self, network: Network, folder: Path, given: argparse.Namespace) -> None:
        super().__init__(network, folder, WORLD)
        node = NODES[0]
        self.start(node, f"{BIN}/paramd", "--insecure", "--listen", f"{network.address[node]}:7073",
                   "--state-dir", str(folder / "state"))
        self.await_(20, "the daemon to listen", lambda: "listening" in self.read(node, "errors"))
        for rank in range(WORLD):
            self.start_worker(rank, f"tcp://{network.address[node]}:7073", given.seed, 0)
