"""The page that the daemon serves on its HTTP listener, drawn by Chromium: its numbers, its states, its console."""
import html.parser
import json
import os
import re
import struct
import subprocess
import tempfile
import time
import unittest
import urllib.request

from stranger import PUSH, Client, init, nested, push, varint
from stranger import INIT

BIN = os.environ["PARAMD_BIN"]
PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../server/net/dashboard.html")
MOST_BYTES = 60 * 1024
# Fields that change from one look to the next.
MOVING = {"steps_per_second", "waits_ms", "checkpoint_age_ms"}
NAME = "<b id=forged>gpt</b> &amp; co"


def scalar(name, value):
    return nested(8, nested(1, name) + varint(2 << 3 | 1) + struct.pack("<d", value))


class Figures(html.parser.HTMLParser):
    """Collects the figures of the page (elements with data-field), and which parts of it are hidden."""

    def __init__(self, page):
        super().__init__()
        self.values, self.hidden, self.ids, self.text = [], set(), set(), []
        self.script = False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.script = tag in ("script", "style", "noscript")
        self.ids.add(named.get("id"))
        if "hidden" in named:
            self.hidden.add(named.get("id"))
        if "data-field" in named:
            self.values.append((named["data-field"], named["data-value"]))

    def handle_endtag(self, tag):
        self.script = False

    def handle_data(self, data):
        if not self.script:
            self.text.append(data)

    def shows(self, part):
        return part in self.ids and part not in self.hidden


class Dashboard(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.daemon = subprocess.Popen([os.path.join(BIN, "paramd"), "--port=0", "--http-listen=127.0.0.1:0"],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end_daemon)
        self.url = "http://" + self.address("listening for HTTP on")
        self.port = int(self.address("listening on").split(":")[1])

    def address(self, words):
        """Returns the address behind these words in the log of the daemon."""
        for line in self.daemon.stderr:
            if (found := re.search(words + r" (127\.0\.0\.1:\d+)", line)) is not None:
                return found[1]
        return self.fail(f"the daemon has not said '{words}'")

    def end_daemon(self):
        self.daemon.kill()
        self.daemon.communicate()

    def chromium(self, *options):
        """Returns what Chromium writes to its standard output, after the console has stayed empty."""
        command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--user-data-dir=" + os.path.join(self.folder.name, "profile"), "--enable-logging=stderr", "--v=0",
                "--virtual-time-budget=4000", "--hide-scrollbars", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
        console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
        self.assertEqual(console, [])
        return done.stdout

    def look(self, job=""):
        return Figures(self.chromium("--dump-dom", self.url + "/" + job))

    def jobs(self):
        out = subprocess.run([os.path.join(BIN, "paramctl"), "--server", f"tcp://127.0.0.1:{self.port}", "-o", "json",
                "jobs"], capture_output=True, text=True, timeout=20, check=True).stdout
        return {job["name"]: job for job in json.loads(out)["jobs"]}

    def train(self, name, world, steps, waits=True):
        """Starts a job and takes steps. Then rank 0 pushes once more, so that the job waits for the others."""
        workers = [Client(self.port) for _ in range(world)]
        for worker in workers:
            self.addCleanup(worker.close)
        for rank, worker in enumerate(workers):
            worker.hello(name, rank, world, 100 + rank, options=[("clip_global_norm", "1")])
            worker.declare(("a", (5, 7)))
        workers[0].call(INIT, *init((0, 0, [0.5] * 35)))
        for step in range(1, steps + 1):
            for rank, worker in enumerate(workers):
                header, payload = push(step, (0, 0, [0.1 * (rank + 1)] * 35))
                worker.send(PUSH, header + scalar("loss", 1 / step) + scalar("<i>x</i>", rank), payload)
            for worker in workers:
                worker.receive()
        if waits:
            header, payload = push(steps + 1, (0, 0, [0.1] * 35))
            workers[0].send(PUSH, header, payload)
        self.await_published(name, world * steps + (waits and world > 1))

    def await_published(self, name, contributions):
        """Waits until the page can have the job as it is now: the daemon publishes figures once a second, and the time
        of the page passes faster than ours."""
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with urllib.request.urlopen(self.url + "/jobs.json", timeout=10) as answer:
                jobs = {job["name"]: job for job in json.load(answer)["jobs"]}
            if name in jobs and jobs[name]["contributions"] >= contributions:
                return
            time.sleep(0.05)
        self.fail(f"/jobs.json does not have the {contributions} contributions to {name}")

    def test_the_page_is_small(self):
        size = os.path.getsize(PAGE)
        print(f"dashboard_kb {size / 1024:.1f}")
        self.assertLessEqual(size, MOST_BYTES)

    def test_a_daemon_without_jobs_says_so(self):
        seen = self.look()
        self.assertTrue(seen.shows("no-jobs"))
        self.assertFalse(seen.shows("frame") or seen.shows("gone") or seen.shows("token"))

    def test_numbers_are_those_of_paramctl(self):
        self.train("other", 1, 3)
        self.train(NAME, 2, 20)
        for job in ("other", NAME):
            seen = self.look("#job=" + "".join(f"%{byte:02x}" for byte in job.encode()))
            told = self.jobs()[job]
            compared = [field for field, value in seen.values if field in told and field not in MOVING and
                    self.assertEqual(value, self.text_of(told[field]), field) is None]
            self.assertGreaterEqual(len(set(compared)), 15, compared)
            self.assertIn("loss", compared)
            self.assertIn("waits_for", compared)

    def text_of(self, value):
        """The value as JavaScript's String() has it, to the last digit."""
        if isinstance(value, float):
            return str(int(value)) if value.is_integer() else re.sub(r"e-0", "e-", repr(value))
        return str(value)

    def test_stragglers_are_those_of_paramctl(self):
        self.train("team", 6, 10)
        out = subprocess.run([os.path.join(BIN, "paramctl"), "--server", f"tcp://127.0.0.1:{self.port}", "-o", "json",
                "workers", "team"], capture_output=True, text=True, timeout=20, check=True).stdout
        told = [str(worker["times_last"]) for worker in json.loads(out)["workers"]]
        seen = self.look()
        self.assertEqual([value for field, value in seen.values if field == "times_last"], told)
        self.assertEqual(sum(map(int, told)), 10)
        self.assertIn("ranks 1–5", seen.text)           # not a list of numbers, which is long in large jobs

    def test_names_of_peers_are_text(self):
        self.train(NAME, 1, 3)
        seen = self.look()
        self.assertNotIn("forged", seen.ids)
        self.assertIn(NAME, seen.text)
        self.assertIn("<i>x</i>", seen.text)

    def test_pictures(self):
        shots = os.environ.get("DASHBOARD_SHOTS")
        if not shots:
            self.skipTest("DASHBOARD_SHOTS is not set")
        self.train("a job of many ranks, and of a long name", 64, 40)
        self.train("gpt", 4, 20)
        self.train("alone", 1, 10, waits=False)
        for scheme in 0, 1:
            for width in 400, 1300:
                name = f"{['dark', 'light'][scheme]}-{width}.png"
                self.chromium(f"--blink-settings=preferredColorScheme={scheme}", f"--window-size={width},1800",
                        "--screenshot=" + os.path.join(shots, name), self.url)


if __name__ == "__main__":
    unittest.main()
