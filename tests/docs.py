"""Checks the project's documents: commands, C snippets, links, mentioned files, lengths. tests/docs.sh calls it.

Conventions of code blocks:
  ```sh    every command is run, in a folder that looks like the source tree. With `$ ` prompts the other lines are
           output: headings of tables in it must appear in the real output. ELSEWHERE names commands that are not run.
  ```c     compiled. A fragment is put into a function where PREAMBLE's names exist; members that begin with a dot are
           put into pd_client_options. After a comment `<!-- from FILE -->` the block is not compiled: that file must
           contain it.
  ```python  run by tests/python/test_readme.py and test_jax.py.
  ```text  neither run nor compiled.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.abspath(os.environ["PARAMD_BIN"])
DOCUMENTS = ["README.md", "client/README.md", "server/optim/README.md", "deploy/README.md", "deploy/CLUSTER.md",
             "tests/README.md",
             "tests/bench/README.md", "CONTRIBUTING.md", "SECURITY.md", "server/README.md", "server/COSTS.md",
             "client/python/README.md", "client/python/JAX.md", "client/python/TORCH.md", "client/python/LOCAL.md",
             "client/python/DILOCO.md"]
JOBS = {"fashion": "* sgd lr=0.1 momentum=0.9", "shampoo": "* scalable_shampoo learning_rate=0.05 block_size=128"}
MOST_WORDS, MOST_COLUMNS, MOST_SECONDS = 900, 120, 120

# Commands that are not run here, by their first words: the file that runs the same program, or the reason in brackets.
ELSEWHERE = {
    "deploy/quickstart.sh": "tests/e2e/quickstart.sh",
    "tests/run.sh": "(this test is a part of it)",
    "tests/lint.sh": "tests/CMakeLists.txt",
    "tests/python/run.sh": "tests/CMakeLists.txt",
    "tests/layering.sh": "tests/CMakeLists.txt",
    "PARAMD_URL=tcp://head:7070 torchrun": "(needs several machines: tests/python/test_torch_elastic.py)",
    "tests/bench/": "(builds and measures for minutes)",
    "LOG=": "(draws what tests/bench/curves.sh has measured)",
    "cmake --preset": "tests/run.sh",
    "cmake --build": "tests/run.sh",
    "cmake --install": "tests/e2e/install.sh",
    "ctest": "tests/run.sh",
    "build/release/bin/paramd --listen=unix": "tests/python/conftest.py",
    "export PYTHONPATH": "(tests/python/run.sh sets these variables)",
    "clang-format-14": "tests/lint.sh",
    "cc -o minimal": "tests/e2e/install.sh",
    "deploy/secrets.sh": "tests/python/test_deployments.py",
    "docker-compose": "tests/e2e/compose.sh",
    "docker": "(needs root and a mirror; tests/e2e/compose.sh builds the same image)",
    "systemctl": "(needs root; tests/e2e/unit_file.sh verifies the unit)",
    "systemd-sysusers": "tests/e2e/unit_file.sh",
    "journalctl": "(needs the installed unit)",
    "paramctl mirror fetch": "(needs a mirror: tests/e2e/mirror.sh fetches from one)",
    "paramctl jobs --watch": "(does not end; tests/e2e/test_paramctl_lists.c watches a list)",
    "ssh": "(needs a second machine)",
    "FUZZ_SECONDS=": "(minutes; tests/run.sh all runs the fuzzers)",
}

PREAMBLE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "paramd/diloco.h"
extern pd_client *client;
extern pd_client_param params[];
extern pd_item items[];
extern pd_ticket_id ticket, closed;
extern pd_error err;
extern void *weights[], *model, *batch;
extern float *numbers, *noise, *own[];
extern const char *fqn;
extern pd_shape full_shape;
extern double loss, examples;
extern uint64_t step;
extern int64_t start, end;
extern size_t n, i;
extern int rank, rc;
void backward(void *model, void *batch, pd_item *items);
"""

# In place of paramd: starts it on a free port, sees that it listens, and stops it. Prints and checks what paramd does.
# A test that a document runs starts the daemon itself, on a port that it has reserved.
DAEMON = """#!/bin/bash
case " $* " in
    *" --check-config "* | *" --print-config "* | *" --version "*) exec {bin}/paramd "$@" ;;
    *" --listen 127.0.0.1:0 "* | *" --listen=127.0.0.1:"*) exec {bin}/paramd "$@" ;;
esac
port=$(mktemp -u)
{bin}/paramd "$@" --server-listen=127.0.0.1:0 --server-port-file="$port" &
for ((tries = 100; tries > 0; tries--)); do
    [ ! -s "$port" ] || break
    kill -0 $! || exit 1
    sleep 0.1
done
rm "$port" && kill $! && wait $!
"""

findings, counts = [], {"run": 0, "elsewhere": 0, "compiled": 0, "links": 0, "paths": 0}
used = set()


def complain(document, line, text):
    findings.append(f"{document}:{line}: {text}")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


class Block:
    """A fenced block: its language, its lines, and the number of the first one."""

    def __init__(self, language, line, source):
        self.language, self.line, self.source, self.lines = language, line, source, []


def blocks_of(text):
    """Returns the fenced blocks, and the text with their lines emptied."""
    blocks, rest, inside, source = [], [], None, None
    for number, line in enumerate(text.split("\n"), 1):
        fence = re.match(r" *```(\w*)$", line)
        if fence and inside is None:
            inside = Block(fence[1], number + 1, source)
            blocks.append(inside)
        elif fence:
            inside = source = None
        elif inside is not None:
            inside.lines.append(line)
        elif line.strip():
            named = re.match(r"<!-- from (\S+) -->$", line)
            source = named[1] if named else None
        rest.append("" if fence or inside is not None else line)
    return blocks, "\n".join(rest)


# ---- commands ----

def commands_of(block):
    """Yields (line number, command, lines of output that stand under it)."""
    prompts = any(line.startswith("$ ") for line in block.lines)
    found, more = [], False
    for number, line in enumerate(block.lines, block.line):
        if more:
            found[-1][1] += "\n" + line
        elif prompts and not line.startswith("$ "):
            if found:
                found[-1][2].append(line)
            continue
        elif line.strip() and not line.lstrip().startswith("#"):
            found.append([number, line[2:] if prompts else line, []])
        more = line.endswith("\\")
    return found


class Session:
    """A folder that looks like the source tree, with a daemon and JOBS once a command needs them."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="paramd-docs.")
        self.processes, self.jobs = [], []
        for name in os.listdir(ROOT):
            if name not in ("build", ".git"):
                os.symlink(os.path.join(ROOT, name), os.path.join(self.folder, name))
        tools = os.path.join(self.folder, "build/release/bin")
        os.makedirs(tools)
        for name in os.listdir(BIN):
            if name != "paramd":
                os.symlink(os.path.join(BIN, name), os.path.join(tools, name))
        with open(os.path.join(tools, "paramd"), "w", encoding="utf-8") as file:
            file.write(DAEMON.format(bin=BIN))
        os.chmod(os.path.join(tools, "paramd"), 0o755)
        self.environment = dict(os.environ, PATH=tools + ":" + os.environ["PATH"], PARAMD_BIN=BIN,
                                OMP_WAIT_POLICY="passive", OPENBLAS_CORETYPE="auto", TMPDIR=self.folder)

    def start(self, *command):
        with open(os.path.join(self.folder, "log"), "a", encoding="utf-8") as log:
            self.processes.append(subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log,
                                                   env=self.environment))

    def run(self, command):
        return subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=self.folder, env=self.environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=MOST_SECONDS, check=False)

    def wait_until(self, command, text):
        for _ in range(200):
            answer = self.run(command)
            if answer.returncode == 0 and text in answer.stdout:
                return
            time.sleep(0.05)
        raise SystemExit(f"{command}: no \"{text}\" within 10 s:\n{answer.stdout}")

    def serve(self, command):
        """Starts the daemon, and trains the jobs that the command names or lists for seven steps. They stay there
        for job_linger."""
        if not self.processes or self.processes[-1].poll() is not None:    # not yet, or a command has stopped it
            self.jobs = []
            self.run("rm -f port")
            self.start(BIN + "/paramd", "--server-listen=127.0.0.1:0", "--server-port-file=port",
                       f"--state-dir=state-{len(self.processes)}")
            self.wait_until("cat port", "\n")
            with open(os.path.join(self.folder, "port"), encoding="utf-8") as file:
                self.environment["PARAMD_URL"] = "tcp://127.0.0.1:" + file.read().strip()
        for job in JOBS:
            if (job in command or command == "paramctl jobs") and job not in self.jobs:
                self.jobs.append(job)
                answer = self.run(f"fashion --job {job} --out {job}.job --epochs 1 --batch 8192 --rule '{JOBS[job]}'")
                if answer.returncode != 0:
                    raise SystemExit("the example worker failed:\n" + answer.stdout)

    def end(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(timeout=MOST_SECONDS)
        shutil.rmtree(self.folder)


def elsewhere(document, number, command):
    """Tells whether ELSEWHERE names the command; if so, its file must mention the program."""
    for start, where in ELSEWHERE.items():
        if not command.startswith(start):
            continue
        used.add(start)
        program = os.path.basename(start.split()[0].rstrip("/="))
        if not where.startswith("(") and (not os.path.exists(os.path.join(ROOT, where)) or program not in read(where)):
            complain(document, number, f"{command}: {where} does not run {program}")
        return True
    return False


def check_commands(document, blocks):
    session = Session()
    try:
        for number, command, expected in (c for b in blocks if b.language == "sh" for c in commands_of(b)):
            if elsewhere(document, number, command):
                counts["elsewhere"] += 1
                continue
            if "paramctl" in command or "minimal" in command:
                session.serve(command)
            check_command(document, number, command, expected, session)
    finally:
        session.end()


def check_command(document, number, command, expected, session):
    counts["run"] += 1
    try:
        answer = session.run(command)
    except subprocess.TimeoutExpired:
        complain(document, number, f"{command}: did not end within {MOST_SECONDS} s")
        return
    if answer.returncode != 0:
        complain(document, number, f"{command}: ended with {answer.returncode}\n{answer.stdout}")
    lines = [line.split() for line in answer.stdout.split("\n")]
    for line in expected:
        if line.isupper() and len(line.split()) > 1 and line.split() not in lines:
            complain(document, number, f"{command}: the output has no line \"{line}\"\n{answer.stdout}")


# ---- C ----

def check_snippet(document, block):
    text = "\n".join(block.lines) + "\n"
    if block.source is not None:                    # the build compiles that file
        source = read(block.source) if os.path.exists(os.path.join(ROOT, block.source)) else ""
        if textwrap.indent(text, "    ") not in source and text not in source:
            complain(document, block.line, f"{block.source} does not contain this block")
        return
    at = f"#line {block.line} \"{document}\"\n"
    if text.startswith("."):
        text = PREAMBLE + "static const pd_client_options options = {\n" + at + text + "};\n"
    elif "int main(" not in text:
        text = PREAMBLE + "int fragment(void);\nint fragment(void)\n{\n" + at + text + "return 0;\n}\n"
    else:
        text = at + text
    counts["compiled"] += 1
    answer = subprocess.run(["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable",
                             "-Wno-unused-but-set-variable", "-fsyntax-only", "-I", ROOT + "/include", "-x", "c", "-"],
                            input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if answer.returncode != 0:
        complain(document, block.line, "this block does not compile\n" + answer.stdout)


# ---- text ----

def anchors_of(text):
    """Returns the anchors that GitHub gives the headings."""
    titles = re.findall(r"^#+ (.*)$", blocks_of(text)[1], re.M)
    titles = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


def check_links(document, text):
    for link in re.finditer(r"\]\(([^)\s]+)\)", text):
        target, _, anchor = link[1].partition("#")
        line = text.count("\n", 0, link.start()) + 1
        if re.match(r"\w+:", target):
            continue
        counts["links"] += 1
        path = os.path.normpath(os.path.join(os.path.dirname(document), target)) if target else document
        if not os.path.exists(os.path.join(ROOT, path)):
            complain(document, line, f"link to {path}, which is not there")
        elif anchor and anchor not in anchors_of(read(path)):
            complain(document, line, f"{path} has no heading #{anchor}")


def check_paths(document, text):
    """Files that are named in backquotes exist, seen from the tree or from the document's folder."""
    suffixes = "c|h|md|sh|py|txt|svg|proto|service|socket|shapes"
    for name in re.finditer(rf"`([\w.-]+(?:/[\w.-]+)+\.(?:{suffixes}))`", text):
        line = text.count("\n", 0, name.start()) + 1
        folders = [ROOT, os.path.join(ROOT, os.path.dirname(document)), os.path.join(ROOT, "server/store")]
        if re.search(r"(?:^|[/_])[A-Z]+\b", name[1].rsplit(".", 1)[0]) and "README" not in name[1]:
            continue                                # a placeholder: NAME.c, test_X.c
        counts["paths"] += 1
        if not any(os.path.exists(os.path.join(folder, name[1])) for folder in folders):
            complain(document, line, f"{name[1]} is not there")


def check_width(document, text):
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MOST_COLUMNS and not line.lstrip().startswith("|") and "](" not in line:
            complain(document, number, f"{len(line)} columns: expected at most {MOST_COLUMNS}")


def check_commits(document, text):
    for name in re.finditer(r"`([0-9a-f]{7})`", text):
        if subprocess.run(["git", "cat-file", "-e", name[1] + "^{commit}"], cwd=ROOT, stderr=subprocess.DEVNULL,
                          check=False).returncode != 0:
            complain(document, text.count("\n", 0, name.start()) + 1, f"{name[1]} is no commit of this history")


def history_is_whole():
    answer = subprocess.run(["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, text=True,
                            check=False)
    return answer.stdout.strip() == "false"


def check_document(document):
    text = read(document)
    blocks, prose = blocks_of(text)
    check_width(document, text)
    check_paths(document, prose)
    if history_is_whole():
        check_commits(document, prose)
    for block in blocks:
        if block.language not in ("sh", "c", "python", "text"):
            complain(document, block.line, f"a block of \"{block.language}\": expected sh, c, python or text")
        if block.language == "c":
            check_snippet(document, block)
    check_commands(document, blocks)


def main():
    for document in DOCUMENTS:
        check_document(document)
    every = subprocess.run(["find", ".", "-name", "*.md", "-not", "-path", "./build/*", "-not", "-path", "./.git/*"],
                           cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for document in every:
        check_links(document[2:], blocks_of(read(document))[1])
    for start in set(ELSEWHERE) - used:
        findings.append(f"tests/docs.py: ELSEWHERE names `{start}`, which no document has any more")
    words = len(read("README.md").split())
    if words > MOST_WORDS:
        findings.append(f"README.md: {words} words: expected at most {MOST_WORDS}")
    print("\n".join(findings + [", ".join(f"{count} {name}" for name, count in counts.items()),
                                f"README.md: {words} words; {len(findings)} findings"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
