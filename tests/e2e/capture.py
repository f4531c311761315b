"""Looks for names and tensors of a job in what tshark captures on the loopback interface, over TCP and over TLS."""
import collections
import os
import re
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import numpy
import paramd

BIN = os.environ["PARAMD_BIN"]
JOB, EMBEDDING, HEAD, LABEL = "a-job-of-my-own", "decoder.embedding.weight", "decoder.head.bias", "machine-of-alice"
NAMES = [name.encode() for name in (JOB, EMBEDDING, HEAD, LABEL, "momentum=0.875", "perplexity")]
STEPS, WORLD, NEEDLE = 4, 2, 8          # NEEDLE: bytes that are looked for together, two numbers of a tensor
HANDSHAKE, DATA = "22", "23"            # content types of TLS


def await_that(holds, what, seconds=20):
    """Calls `holds` until it returns something true, which it returns."""
    end = time.monotonic() + seconds
    while not (value := holds()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s in vain for {what}")
        time.sleep(0.02)
    return value


def contents(path):
    """Returns the bytes of a file; b"" if it is not there yet."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


class Capture:
    """tshark, which writes what passes a port of the loopback interface to a file."""

    def __init__(self, folder, port):
        self.path, self.port = os.path.join(folder, f"{port}.pcapng"), port
        self.log = os.path.join(folder, f"tshark-{port}")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(["tshark", "-i", "lo", "-f", f"tcp port {port}", "-B", "64", "-w",
                    self.path], stdout=log, stderr=log)
        # tshark says that it captures before it does: it captures when something sent can be found in the file.
        self.mark(b"the capture begins")

    def mark(self, text):
        """Sends a text to the port until the file has it. All that was sent before is in the file then, too."""
        def arrives():
            if self.process.poll() is not None:
                raise AssertionError(f"tshark has ended: {contents(self.log).decode()}")
            with socket.create_connection(("127.0.0.1", self.port), 5) as stranger:
                stranger.sendall(text)
            return text in contents(self.path)
        await_that(arrives, f"'{text.decode()}' in the capture")

    def end(self):
        """Stops tshark, which must not have lost a packet."""
        self.mark(b"the capture ends")
        self.process.terminate()
        self.process.wait(20)
        log = contents(self.log).decode()
        if re.search(r"\b[1-9]\d* packets? dropped", log):
            raise AssertionError(f"tshark has lost packets: {log}")

    def fields(self, *names):
        """Returns these fields of each packet, as tshark's dissectors find them."""
        options = [option for name in names for option in ("-e", name)]
        done = subprocess.run(["tshark", "-r", self.path, "-d", f"tcp.port=={self.port},tls", "-Y",
                "tcp.len > 0 && !tcp.analysis.retransmission", "-T", "fields", *options], capture_output=True,
                text=True, check=True)
        return [line.split("\t") for line in done.stdout.splitlines()]

    def streams(self):
        """Returns the bytes of each direction of each connection."""
        found = collections.defaultdict(bytearray)
        for stream, source, payload in self.fields("tcp.stream", "tcp.srcport", "tcp.payload"):
            found[stream, source] += bytes.fromhex(payload)
        return [bytes(stream) for stream in found.values()]


def needles(tensors):
    """Returns the parts of tensors that are looked for: every two neighbours that are not both 0."""
    parts = set()
    for tensor in tensors:
        data = tensor.tobytes()
        parts.update(data[at:at + NEEDLE] for at in range(0, len(data) - NEEDLE + 1, 4))
    return parts - {bytes(NEEDLE)}


def found_in(streams, parts):
    """Returns how many of the parts are somewhere in the streams, whatever their alignment."""
    return len({part for stream in streams for at in range(len(stream) - NEEDLE + 1)
            if (part := stream[at:at + NEEDLE]) in parts})


class Worker(threading.Thread):
    """Trains, and keeps a copy of each tensor that it has sent or received."""

    def __init__(self, rank, url, token):
        super().__init__()
        self.rank, self.url, self.token = rank, url, token
        self.tensors, self.failure = [], None

    def run(self):
        try:
            self.train()
        except Exception as failure:                    # the test tells it
            self.failure = failure

    def keep(self, tensors):
        self.tensors += [tensor.copy() for tensor in tensors.values()]

    def train(self):
        random = numpy.random.default_rng(self.rank)
        shapes = {EMBEDDING: (60, 50), HEAD: (50,)}
        draw = lambda: {name: random.standard_normal(shape).astype(numpy.float32) for name, shape in shapes.items()}
        weights = draw()
        if self.rank == 0:
            self.keep(weights)
        with paramd.Client(url=self.url, job=JOB, rank=self.rank, world_size=WORLD, token_file=self.token, label=LABEL,
                rules="* sgd lr=0.125 momentum=0.875") as client:
            client.declare(weights)
            client.init(weights)
            for _ in range(STEPS):
                gradients = draw()
                client.push_pull(gradients, weights, scalars={"perplexity": 20.5}).wait()
                self.keep(gradients)
                self.keep(weights)


class OnTheWire(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="paramd-capture.")
        self.addCleanup(folder.cleanup)
        self.folder, self.token = folder.name, os.path.join(folder.name, "token")
        with open(os.open(self.token, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            subprocess.run([BIN + "/paramctl", "token", "new", "alice"], check=True, stdout=file)
        log = os.path.join(self.folder, "log")
        with open(log, "w") as file:
            self.daemon = subprocess.Popen([BIN + "/paramd", "--listen=127.0.0.1:0,tls://127.0.0.1:0",
                    f"--tls-tokens={self.token}"], stdout=file, stderr=file)
        self.addCleanup(self.end_daemon)
        await_that(lambda: b"listening on tls://" in contents(log), f"the daemon to listen, see {log}")
        self.ports = {scheme or "tcp://": int(port) for scheme, port in
                re.findall(r"listening on (tls://)?127\.0\.0\.1:(\d+)", contents(log).decode())}

    def end_daemon(self):
        self.daemon.kill()
        self.daemon.wait()

    def train(self, scheme):
        """Trains while tshark captures. Returns the capture, and what the workers have sent and received."""
        port = self.ports[scheme]
        capture = Capture(self.folder, port)
        self.addCleanup(capture.process.kill)
        workers = [Worker(rank, f"{scheme}127.0.0.1:{port}", self.token) for rank in range(WORLD)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
            self.assertIsNone(worker.failure)
            self.assertFalse(worker.is_alive(), "a worker has not ended within a minute")
        capture.end()
        return capture, [tensor for worker in workers for tensor in worker.tensors]

    def test_over_tcp_all_names_and_tensors_can_be_read(self):
        capture, tensors = self.train("tcp://")
        streams, parts = capture.streams(), needles(tensors)
        self.assertEqual([name for name in NAMES if not any(name in stream for stream in streams)], [])
        self.assertEqual(found_in(streams, parts), len(parts))

    def test_over_tls_no_name_and_no_byte_of_a_tensor_can_be_read(self):
        capture, tensors = self.train("tls://")
        streams, parts = capture.streams(), needles(tensors)
        everything = [*streams, contents(capture.path)]
        self.assertEqual([name for name in NAMES if any(name in data for data in everything)], [])
        self.assertEqual(found_in(streams, parts), 0)
        # It was all there, encrypted: tshark sees handshakes, and as many bytes of data as the tensors have.
        self.assertGreaterEqual(sum(map(len, streams)), sum(tensor.nbytes for tensor in tensors))
        packets = capture.fields("tls.record.content_type", "tls.record.opaque_type")
        types = {kind for packet in packets for kinds in packet for kind in kinds.split(",")}
        self.assertTrue({HANDSHAKE, DATA} <= types, types)
        print(f"{sum(map(len, streams))} bytes of TLS have none of {len(NAMES)} names, none of {len(parts)} pairs of "
                "numbers")


if __name__ == "__main__":
    unittest.main()
