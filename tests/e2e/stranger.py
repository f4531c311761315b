"""A client written from proto/PROTOCOL.md alone: struct, sockets and a protobuf of twenty lines.

It uses nothing of this project's code."""
import os
import socket
import struct
import subprocess
import tempfile
import time
import unittest

HELLO, DECLARE, INIT, PUSH, PULL, PUSH_PULL, BARRIER, HEARTBEAT, LEAVE = range(9)
STATUS, LIST, OPTIMIZERS, DROP, DRAIN, SET = 9, 10, 11, 12, 13, 15
INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, RESOURCE_EXHAUSTED = 3, 5, 6, 7, 8
FAILED_PRECONDITION, ABORTED, UNIMPLEMENTED, UNAVAILABLE = 9, 10, 12, 14
PREFIX = struct.Struct("<4sBBHIIQQQ")
CHUNK = 1024                            # elements: limits.chunk_bytes of this test's daemon is 4 KiB


# ---- protobuf ----

def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def number(field, n):
    return varint(field << 3) + varint(n)


def nested(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def read_varint(data, at):
    n = shift = 0
    while True:
        n |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return n, at


def fields(data):
    """Field number -> values, in order."""
    out, at = {}, 0
    while at < len(data):
        tag, at = read_varint(data, at)
        if tag & 7 == 0:
            value, at = read_varint(data, at)
        else:
            size, at = read_varint(data, at) if tag & 7 == 2 else ({1: 8, 5: 4}[tag & 7], at)
            value, at = data[at:at + size], at + size
        out.setdefault(tag >> 3, []).append(value)
    return out


# ---- the protocol ----

class Refused(Exception):
    def __init__(self, error):
        super().__init__(error[2][0].decode())
        self.code = error[1][0]


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        self.stream = self.socket.makefile("rb")
        self.last = 0

    def close(self):
        self.stream.close()
        self.socket.close()

    def send(self, method, header=b"", payload=b""):
        self.last += 1
        self.socket.sendall(PREFIX.pack(b"PDF1", 1, 0, method, len(header), 0, len(payload), self.last, 0) + header +
                payload)
        return self.last

    def receive(self):
        """Request id, fields, payload of the next answer; None at the end of the stream."""
        prefix = self.stream.read(PREFIX.size)
        if not prefix:
            return None
        magic, version, flags, _, header_bytes, reserved, payload_bytes, request, _ = PREFIX.unpack(prefix)
        assert (magic, version, flags & 1, reserved) == (b"PDF1", 1, 1, 0)
        header, payload = fields(self.stream.read(header_bytes)), self.stream.read(payload_bytes)
        if flags & 2:
            raise Refused(header)
        return request, header, payload

    def call(self, method, header=b"", payload=b""):
        request = self.send(method, header, payload)
        answered, header, payload = self.receive()
        assert answered == request
        return header, payload

    def hello(self, job, rank=0, world=1, nonce=1, options=(), run="launch", resume=0, joins=False):
        header = number(1, 1) + nested(2, job) + number(3, rank) + number(4, world)
        header += varint(5 << 3 | 1) + struct.pack("<Q", nonce)
        header += b"".join(nested(8, nested(1, name) + nested(2, value)) for name, value in options)
        header += nested(9, "* sgd lr=0.5") + nested(16, run) + number(17, resume) + number(18, joins)
        return self.call(HELLO, header)[0]

    def declare(self, *shapes, last=True):
        header = b"".join(nested(1, nested(1, name) + nested(2, b"".join(map(varint, shape)))) for name, shape in
                shapes)
        return self.call(DECLARE, header + number(2, last))[0]


def lay_out(*pieces):
    """Pieces (handle, first, values, or None where there is no gradient) -> what headers say of them, payload."""
    payload, list_of = b"", []
    for handle, first, values in pieces:
        if values is None:
            list_of.append(number(1, handle) + number(6, 1))
            continue
        payload += bytes(-len(payload) % 64)
        list_of.append(number(1, handle) + number(2, 1) + number(3, first) + number(4, len(values)) +
                number(5, len(payload)))
        payload += struct.pack(f"<{len(values)}f", *values)
    return list_of, payload


def init(*pieces):
    list_of, payload = lay_out(*pieces)
    return b"".join(nested(1, piece) for piece in list_of), payload


def push(step, *pieces):
    list_of, payload = lay_out(*pieces)
    return number(1, step) + b"".join(nested(6, piece) for piece in list_of), payload


def want(step, *chunks):
    return number(1, step) + b"".join(nested(2, number(1, h) + number(2, first) + number(3, n)) for h, first, n in
            chunks)


def outcomes(header):
    """(outcome, step, version) of each piece."""
    return [tuple(fields(o).get(i, [0])[0] for i in (1, 2, 3)) for o in header[1]]


def floats(payload, at, n):
    return list(struct.unpack_from(f"<{n}f", payload, at))


class Stranger(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        port_file = os.path.join(cls.scratch.name, "port")
        cls.daemon = subprocess.Popen([os.path.join(os.environ["PARAMD_BIN"], "paramd"), "--listen=127.0.0.1:0",
                f"--port-file={port_file}", "--chunk-bytes=4KiB"],
                                      stderr=subprocess.DEVNULL)
        until = time.monotonic() + 20
        while not (os.path.exists(port_file) and os.path.getsize(port_file)) and time.monotonic() < until:
            time.sleep(0.02)
        with open(port_file) as file:
            cls.port = int(file.read())

    @classmethod
    def tearDownClass(cls):
        cls.daemon.terminate()
        cls.daemon.wait(30)
        cls.scratch.cleanup()

    def client(self):
        client = Client(self.port)
        self.addCleanup(client.close)
        return client

    def pair(self, options=()):
        """Returns two workers of a new job with the parameters a (2, 3), 0 ... 5, and b (2,), 10 and 20."""
        workers = [self.client(), self.client()]
        for rank, worker in enumerate(workers):
            worker.hello(self.id(), rank, 2, 100 + rank, options)
            declared = worker.declare(("a", (2, 3)), ("b", (2,)))
            self.assertEqual(declared.get(2, [0]), [1 - rank], "rank 0 is asked for weights")
        workers[0].call(INIT, *init((0, 0, range(6)), (1, 0, [10, 20])))
        return workers

    def assertRefused(self, code, says, method, *args, **more):
        with self.assertRaises(Refused) as caught:
            method(*args, **more)
        self.assertEqual(caught.exception.code, code, str(caught.exception))
        self.assertIn(says, str(caught.exception))

    def test_two_workers_take_a_step_together(self):
        one, two = self.pair()
        waiting = one.send(PUSH_PULL, *push(1, (0, 0, [1] * 6), (1, 0, [4, 8])))
        header, payload = two.call(PUSH_PULL, *push(1, (0, 0, [3] * 6), (1, 0, [0, 0])))
        self.assertEqual(outcomes(header), [(1, 1, 1), (1, 1, 1)])
        self.assertEqual(len(payload), 64 + 8)
        self.assertEqual(floats(payload, 0, 6), [-1, 0, 1, 2, 3, 4])             # less 0.5 times the mean, 2
        self.assertEqual(floats(payload, 64, 2), [9, 18])
        self.assertEqual(one.receive(), (waiting, header, payload))

    def test_the_same_push_again_is_answered_and_not_counted(self):
        one, two = self.pair()
        frame = push(1, (0, 0, [2] * 6), (1, 0, [2, 2]))
        one.send(PUSH, *frame)
        one.send(PUSH, *frame)
        two.call(PUSH, *frame)
        again, _ = two.call(PUSH, *frame)
        self.assertEqual(outcomes(again), [(1, 1, 1), (1, 1, 1)])
        _, payload = two.call(PULL, want(1, (0, 0, 6)))
        self.assertEqual(floats(payload, 0, 6), [-1, 0, 1, 2, 3, 4])
        self.assertEqual({one.receive()[0], one.receive()[0]}, {one.last - 1, one.last})

    def test_without_a_gradient_weights_stay(self):
        one, two = self.pair()
        one.send(PUSH_PULL, *push(1, (0, 0, None), (1, 0, [1, 1])))
        header, payload = two.call(PUSH_PULL, *push(1, (0, 0, None), (1, 0, [1, 1])))
        self.assertEqual(outcomes(header), [(3, 1, 0), (1, 1, 1)])
        self.assertEqual(floats(payload, 0, 2), [9.5, 19.5])

    def test_what_is_not_finite_is_skipped(self):
        one, two = self.pair()
        one.send(PUSH, *push(1, (1, 0, [float("nan"), 0])))
        header, _ = two.call(PUSH, *push(1, (1, 0, [1, 1])))
        self.assertEqual(outcomes(header), [(2, 1, 0)])

    def test_large_parameters_travel_in_chunks(self):
        worker, n = self.client(), CHUNK + 500
        self.assertEqual(worker.hello(self.id())[5], [CHUNK])
        worker.declare(("long", (n,)))
        worker.call(INIT, *init((0, CHUNK, [7] * 500)))
        worker.call(INIT, *init((0, 0, [7] * CHUNK)))
        worker.send(PUSH, *push(1, (0, CHUNK, [2] * 500)))
        worker.send(PUSH, *push(1, (0, 0, [4] * CHUNK)))
        self.assertEqual({worker.receive()[0], worker.receive()[0]}, {worker.last - 1, worker.last})
        _, payload = worker.call(PULL, want(1, (0, CHUNK, 500)))
        self.assertEqual(floats(payload, 0, 500), [6] * 500)

    def test_a_connection_that_broke_goes_on_with_its_nonce(self):
        one, two = self.pair()
        frame = push(1, (0, 0, [2] * 6), (1, 0, [2, 2]))
        one.send(PUSH, *frame)
        one.close()
        back = self.client()
        back.hello(self.id(), 0, 2, 100)
        # handles are the connection's
        self.assertEqual([fields(d) for d in back.declare(("b", (2,)), ("a", (2, 3)))[1]], [{2: [1]}, {2: [1]}])
        request = back.send(PUSH, *push(1, (1, 0, [2] * 6), (0, 0, [2, 2])))
        two.call(PUSH, *frame)
        self.assertEqual(outcomes(back.receive()[1]), [(1, 1, 1)] * 2)
        self.assertEqual(request, back.last)

    def test_initial_weights_sent_again_are_answered_and_stand(self):
        one, two = self.pair()
        one.call(INIT, *init((1, 0, [1, 1])))
        one.send(PUSH_PULL, *push(1, (1, 0, [0, 0])))
        self.assertEqual(floats(two.call(PUSH_PULL, *push(1, (1, 0, [0, 0])))[1], 0, 2), [10, 20])

    def test_another_process_takes_the_rank_over(self):
        one, two = self.pair()
        other = self.client()
        other.hello(self.id(), 0, 2, 999)
        self.assertRefused(ABORTED, "taken over", one.receive)
        self.assertIsNone(one.receive())
        other.declare(("a", (2, 3)), ("b", (2,)))
        self.assertRefused(FAILED_PRECONDITION, "weights already", other.call, INIT, *init((1, 0, [1, 1])))
        other.send(BARRIER, number(1, 1))
        two.call(BARRIER, number(1, 1))
        other.receive()

    def test_another_run_gets_no_rank_unless_it_resumes(self):
        one, two = self.pair()
        for run in "another", "":
            self.assertRefused(ALREADY_EXISTS, "in training", self.client().hello, self.id(), 0, 2, 999, run=run)
        two.call(LEAVE)
        self.assertRefused(UNAVAILABLE, "rank 0", self.client().hello, self.id(), 1, 2, 999, run="another")
        self.client().hello(self.id(), 0, 2, 999, run="another", resume=1)
        self.assertRefused(ABORTED, "taken over", one.receive)

    def test_a_hello_with_a_bad_run_or_wish_is_refused(self):
        for run in "a" * 129, "a\n":
            self.assertRefused(INVALID_ARGUMENT, "run", self.client().hello, self.id(), run=run)
        self.assertRefused(INVALID_ARGUMENT, "resume = 3", self.client().hello, self.id(), resume=3)

    def test_a_job_that_is_over_begins_anew(self):
        for worker in self.pair():
            worker.call(LEAVE)
        self.assertRefused(UNAVAILABLE, "waits for rank 0", self.client().hello, self.id(), 1, 2, 999, joins=True)
        self.assertEqual(self.client().hello(self.id(), 1, 2, 999)[4], [1])

    def test_who_needs_a_rank_that_has_left_hears_so_at_once(self):
        one, two = self.pair()
        two.call(LEAVE)
        frame = push(1, (0, 0, [2] * 6), (1, 0, [2, 2]))
        self.assertRefused(FAILED_PRECONDITION, "rank 1", one.call, PUSH, *frame)
        self.assertRefused(FAILED_PRECONDITION, "rank 1", one.call, PULL, want(1, (0, 0, 6)))
        self.assertRefused(FAILED_PRECONDITION, "rank 1", one.call, BARRIER, number(1, 1))
        two = self.client()
        two.hello(self.id(), 1, 2, 999)
        two.declare(("a", (2, 3)), ("b", (2,)))
        one.send(PUSH, *frame)
        two.call(PUSH, *frame)
        one.receive()

    def test_bad_requests_are_refused_and_change_nothing(self):
        one, two = self.pair()
        self.assertRefused(INVALID_ARGUMENT, "piece 0 (b): 1 elements", one.call, PUSH, *push(1, (1, 0, [1])))
        self.assertRefused(INVALID_ARGUMENT, "piece 0: handle 2", one.call, PUSH, *push(1, (2, 0, [1])))
        twice = push(1, (1, 0, [1, 1]), (1, 0, [1, 1]))
        self.assertRefused(INVALID_ARGUMENT, "duplicate chunk", one.call, PUSH, *twice)
        self.assertRefused(INVALID_ARGUMENT, "payload", one.call, PUSH, push(1, (1, 0, [1, 1]))[0], bytes(100))
        self.assertRefused(FAILED_PRECONDITION, "expected step 1", one.call, PUSH, *push(2, (1, 0, [1, 1])))
        self.assertRefused(PERMISSION_DENIED, "operators", one.call, DROP, nested(1, self.id()))
        self.assertRefused(UNIMPLEMENTED, "method 99", one.call, 99)
        one.send(PUSH, *push(1, (1, 0, [0, 0])))
        self.assertEqual(outcomes(two.call(PUSH, *push(1, (1, 0, [0, 0])))[0]), [(1, 1, 1)])

    def test_the_median_of_an_even_number_is_the_mean_of_the_middle_two(self):
        workers = [self.client() for _ in range(4)]
        for rank, worker in enumerate(workers):
            worker.hello(self.id(), rank, 4, 100 + rank, [("aggregate", "median")])
            worker.declare(("b", (2,)))
        workers[0].call(INIT, *init((0, 0, [10, 20])))
        for worker, values in zip(workers, ([1, 5], [2, 6], [4, 7], [100, float("nan")])):
            worker.send(PUSH_PULL, *push(1, (0, 0, values)))
        self.assertEqual(floats(workers[0].receive()[2], 0, 2), [10 - 0.5 * 3, 20 - 0.5 * 6.5])

    def test_a_push_that_is_rejected_is_pushed_again(self):
        one, two = self.pair([("nonfinite", "reject")])
        self.assertRefused(INVALID_ARGUMENT, "Push again for step 1", one.call, PUSH,
                *push(1, (1, 0, [float("nan"), 0])))
        one.send(PUSH, *push(1, (1, 0, [2, 0])))
        self.assertEqual(outcomes(two.call(PUSH, *push(1, (1, 0, [0, 0])))[0]), [(1, 1, 1)])

    def test_hyperparameters_of_a_push_agree(self):
        def with_rate(*rates):
            header, payload = push(1, (1, 0, [4, 4]))
            return header + b"".join(nested(5, nested(1, "lr") + nested(2, rate)) for rate in rates), payload

        one, two = self.pair()
        self.assertRefused(INVALID_ARGUMENT, "twice", one.call, PUSH, *with_rate("0.25", "0.25"))
        one.send(PUSH, *with_rate("0.25"))
        self.assertRefused(INVALID_ARGUMENT, "rank 0 sent lr = 0.25", two.call, PUSH, *with_rate("0.5"))
        header, payload = two.call(PUSH_PULL, *push(1, (1, 0, [4, 4])))
        self.assertEqual(floats(payload, 0, 2), [9, 19])            # the rate of the one that sent a rate

    def test_a_chunk_twice_among_the_wants_is_refused(self):
        one, _ = self.pair()
        twice = want(0, (1, 0, 2), (0, 0, 6), (1, 0, 2))
        self.assertRefused(INVALID_ARGUMENT, "duplicate chunk", one.call, PULL, twice)

    def test_a_hello_that_is_refused_ends_the_connection(self):
        beyond, long, again = self.client(), self.client(), self.client()
        self.assertRefused(INVALID_ARGUMENT, "rank 2", beyond.hello, self.id(), 2, 2)
        self.assertIsNone(beyond.receive())
        self.assertRefused(RESOURCE_EXHAUSTED, "limits.hello_bytes", long.hello, self.id(), 0, 1, 1,
                [("x", "y" * 5000)])
        self.assertIsNone(long.receive())
        again.hello("")
        self.assertRefused(FAILED_PRECONDITION, "second Hello", again.hello, "")
        self.assertIsNone(again.receive())

    def test_methods_that_need_no_job_go_on_after_leave(self):
        one, _ = self.pair()
        one.call(LEAVE)
        for method, header in (HEARTBEAT, b""), (STATUS, b""), (LIST, number(1, 1)), (OPTIMIZERS, nested(2, "sgd")):
            one.call(method, header)
        self.assertRefused(FAILED_PRECONDITION, "", one.call, BARRIER, number(1, 1))

    def test_hyperparameters_have_the_types_of_the_page(self):
        operator, types, start = self.client(), set(), 0
        operator.hello("")
        while True:
            answer = operator.call(OPTIMIZERS, number(1, start))[0]
            for optimizer in map(fields, answer[1]):
                types |= {fields(hyper)[2][0].decode() for hyper in optimizer.get(3, [])}
            start = answer.get(2, [0])[0]
            if not start:
                break
        self.assertEqual(types, {"real", "int", "flag", "choice", "text"})

    def test_another_version_ends_the_stream(self):
        client = self.client()
        client.socket.sendall(PREFIX.pack(b"PDF1", 2, 0, HELLO, 0, 0, 0, 1, 0))
        self.assertRefused(INVALID_ARGUMENT, "version 2", client.receive)
        self.assertIsNone(client.receive())

    def test_another_configuration_is_refused_by_name(self):
        self.pair([("aggregate", "sum")])
        late = self.client()
        self.assertRefused(FAILED_PRECONDITION, "aggregate", late.hello, self.id(), 0, 2, 5, [("aggregate", "mean")])
        self.assertIsNone(late.receive())

    def test_other_parameters_are_refused_by_name(self):
        self.pair()
        late = self.client()
        late.hello(self.id(), 1, 2, 101)
        self.assertRefused(FAILED_PRECONDITION, "parameter a", late.declare, ("a", (3, 2)), ("b", (2,)))

    def test_another_protocol_is_told_and_ends(self):
        client = self.client()
        client.socket.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n")
        self.assertRefused(INVALID_ARGUMENT, "50 44 46 31", client.receive)
        self.assertIsNone(client.receive())

    def test_a_request_before_hello_ends_the_stream(self):
        client = self.client()
        client.send(HEARTBEAT)
        self.assertRefused(FAILED_PRECONDITION, "Hello", client.receive)
        self.assertIsNone(client.receive())

    def test_an_operator_sees_and_drops_a_job(self):
        one, _ = self.pair()
        operator = self.client()
        operator.hello("")
        names = [fields(job)[1][0].decode() for job in operator.call(LIST, number(1, 1))[0][1]]
        self.assertIn(self.id(), names)
        one.send(PUSH, *push(1, (1, 0, [1, 1])))
        operator.call(DROP, nested(1, self.id()))
        self.assertRefused(ABORTED, "dropped", one.receive)
        self.assertRefused(FAILED_PRECONDITION, "reconnect", one.call, PULL, want(0, (0, 0, 6)))
        self.assertRefused(NOT_FOUND, "no job", operator.call, DROP, nested(1, self.id()))

    def test_an_operator_sets_what_holds_from_a_step_on(self):
        one, two = self.pair()
        operator = self.client()
        operator.hello("")
        command = nested(1, self.id()) + nested(2, "b") + nested(3, nested(1, "lr") + nested(2, "0.25"))
        self.assertRefused(PERMISSION_DENIED, "operators", one.call, SET, command)
        answer = operator.call(SET, command + number(4, 2))[0]
        change = fields(answer[2][0])
        self.assertEqual((answer[1], change[2], change[3], change[5], change[7], change[8]),
                ([1], [b"lr"], [b"0.5"], [b"0.25"], [1], [2]))
        for step, expected in (1, [8, 18]), (2, [7, 17]):
            frame = push(step, (1, 0, [4, 4]), (0, 0, [0] * 6))
            one.send(PUSH_PULL, *frame)
            two.call(PUSH_PULL, *frame)
            self.assertEqual(floats(one.receive()[2], 0, 2), expected)
        setting = fields(operator.call(LIST, number(1, 5) + nested(2, self.id()))[0][6][0])
        self.assertEqual((setting[1], setting[2], setting[3], setting[4], setting[5]),
                ([b"b"], [b"lr"], [b"0.25"], [2], [1]))
        self.assertRefused(FAILED_PRECONDITION, "earliest", operator.call, SET, command + number(4, 2))
        self.assertRefused(NOT_FOUND, "no job", operator.call, SET, nested(2, "b") +
                nested(3, nested(1, "lr") + nested(2, "1")))

    def test_zz_a_draining_server_finishes_what_is_open(self):
        one, two = self.pair()
        one.send(PUSH, *push(1, (1, 0, [1, 1])))
        one.send(HEARTBEAT)
        self.assertEqual(one.receive()[0], one.last)                # so the push before it has come, too
        operator = self.client()
        operator.hello("")
        drain = operator.send(DRAIN)
        operator.send(HEARTBEAT)
        self.assertEqual(operator.receive()[0], operator.last)      # so the drain has come, and waits for the round
        two.call(PUSH, *push(1, (1, 0, [1, 1])))
        self.assertEqual(operator.receive()[0], drain)
        one.receive()
        self.assertRefused(UNAVAILABLE, "draining", one.call, PUSH, *push(2, (1, 0, [1, 1])))
        self.assertRefused(UNAVAILABLE, "no new jobs", self.client().hello, "late")


if __name__ == "__main__":
    unittest.main(verbosity=2)
