"""Plays the examples of proto/PROTOCOL.md against a live server.

The bytes that the page shows are sent, and each answer is compared byte for byte.
"""
import os
import re
import socket
import struct
import subprocess
import tempfile
import time
import unittest

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "proto", "PROTOCOL.md")
PREFIX = struct.Struct("<4sBBHIIQQQ")
BYTE = re.compile(r'([0-9a-f]{2})(?= |$)|(\.\.\.)(?= |$)|(\.\.)(?= |$)|"([^"]*)"')


# ---- the page ----

class Frame:
    """A block of the page: whether it goes to the server, its title, and the pattern of its bytes."""

    def __init__(self, block):
        lines = block.splitlines()
        self.sent, self.title = lines[0][0] == "→", lines[0][2:]
        self.tokens = []                        # a byte each; None: any byte; "...": any number of them
        self.above, self.repeats = [], False
        for line in lines[1:]:
            self.add(line)
        assert not self.repeats, f"{self.title}: nothing stands behind the last *"

    def add(self, line):
        if line == "*":
            self.repeats = True
            return
        offset, rest = line[:4], line[6:]
        assert line[4:6] == "  ", f"{self.title}: expected an offset and two spaces: {line}"
        if self.repeats:
            self.repeat(int(offset, 16))
        known = "..." not in self.tokens
        assert offset == (f"{len(self.tokens):04x}" if known else "...."), f"{self.title}: wrong offset: {line}"
        self.above = parse_bytes(rest)
        assert self.above, f"{self.title}: no bytes: {line}"
        self.tokens += self.above

    def repeat(self, until):
        while len(self.tokens) < until:
            self.tokens += self.above
        assert len(self.tokens) == until, f"{self.title}: * does not end at {until:04x}"
        self.repeats = False

    def bytes(self):
        return bytes(self.tokens)

    def pattern(self):
        parts = [b".*" if t == "..." else b"." if t is None else re.escape(bytes([t])) for t in self.tokens]
        return re.compile(b"".join(parts), re.DOTALL)


def parse_bytes(text):
    """Bytes one space apart; two spaces end them."""
    tokens, at = [], 0
    while match := BYTE.match(text, at):
        pair, many, one, quoted = match.groups()
        tokens += [int(pair, 16)] if pair else ["..."] if many else [None] if one else list(quoted.encode())
        at = match.end()
        if text[at:at + 2] == "  ":
            break
        at += 1
    return tokens


def read_page():
    with open(PAGE, encoding="utf-8") as file:
        text = file.read()
    return [Frame(block) for block in re.findall(r"^```\n([→←] .*?)\n```$", text, re.DOTALL | re.MULTILINE)]


# ---- the server ----

class Stream:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        self.file = self.socket.makefile("rb")

    def close(self):
        self.file.close()
        self.socket.close()

    def receive(self):
        prefix = self.file.read(PREFIX.size)
        if len(prefix) < PREFIX.size:
            return prefix
        fields = PREFIX.unpack(prefix)
        return prefix + self.file.read(fields[4] + fields[6])


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.frames = read_page()
        cls.scratch = tempfile.TemporaryDirectory()
        port_file = os.path.join(cls.scratch.name, "port")
        cls.daemon = subprocess.Popen([os.path.join(os.environ["PARAMD_BIN"], "paramd"), "--listen=127.0.0.1:0",
                f"--port-file={port_file}"],
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

    def open(self):
        stream = Stream(self.port)
        self.addCleanup(stream.close)
        return stream

    def expect(self, stream, frame):
        came = stream.receive()
        if not frame.pattern().fullmatch(came):
            self.fail(f"the page's answer \"{frame.title}\" and the server's differ; the server sent\n"
                      f"{came.hex(' ')}\n{came}")
        if frame.title.endswith("and the connection ends"):
            self.assertEqual(stream.receive(), b"", f"{frame.title}: the connection goes on")

    def test_every_example_is_what_a_server_answers(self):
        stream = None
        for frame in self.frames:
            with self.subTest(frame.title):
                if frame.sent and frame.title.endswith("on a new connection"):
                    stream = self.open()
                if frame.sent:
                    stream.socket.sendall(frame.bytes())
                else:
                    self.expect(stream, frame)

    def test_every_request_of_the_page_has_an_answer_there(self):
        self.assertGreaterEqual(len(self.frames), 16)
        self.assertEqual([frame.sent for frame in self.frames], [True, False] * (len(self.frames) // 2))

    def test_no_dump_of_the_page_is_left_out(self):
        with open(PAGE, encoding="utf-8") as file:
            dumps = re.findall(r"^0000  50 44 46 31", file.read(), re.MULTILINE)
        self.assertEqual(len(dumps), len(self.frames))

    def test_an_answer_that_differs_in_a_byte_is_noticed(self):
        pong = next(frame for frame in self.frames if frame.title == "Ok")
        spoilt = pong.bytes()[:-1] + b"\x01"
        self.assertTrue(pong.pattern().fullmatch(pong.bytes()))
        self.assertIsNone(pong.pattern().fullmatch(spoilt))

    def test_only_a_hello_reply_has_bytes_left_open(self):
        open_ones = [frame.title for frame in self.frames if None in frame.tokens or "..." in frame.tokens]
        self.assertEqual(open_ones, ["HelloReply"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
