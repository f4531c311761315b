"""A client speaks TLS with the daemon, beside Python's own ssl in the same process."""
from __future__ import annotations

import os
import re
import socket
import ssl
import subprocess
import threading

import pytest

import paramd
from conftest import BIN, Daemon, await_that

np = pytest.importorskip("numpy")


@pytest.fixture
def token(tmp_path):
    """The path of a file with a new token."""
    path = tmp_path / "token"
    line = subprocess.run([BIN + "/paramctl", "token", "new", "alice"], check=True, stdout=subprocess.PIPE).stdout
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(line)
    return path


@pytest.fixture
def secure_daemon(token):
    """A daemon that listens on TLS, too: `secure` is that address."""
    daemon = Daemon(f"--tls-tokens={token}", also="tls://127.0.0.1:0")

    def find():
        with open(daemon.folder + "/log", encoding="utf-8") as file:
            return re.search(r"listening on (tls://127\.0\.0\.1:\d+)\n", file.read())
    daemon.secure = await_that(find)[1]
    yield daemon
    daemon.end()


def train(client):
    """Takes three steps, and returns the weights."""
    weights = {"w": np.ones(100000, np.float32)}
    client.declare(weights)
    client.init(weights)
    for _ in range(3):
        client.push_pull({"w": np.ones(100000, np.float32)}, weights).wait()
    return weights["w"]


def anonymous(side):
    """Python's own TLS without certificates, in a version that paramd refuses."""
    context = ssl.SSLContext(side)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.set_ciphers("aNULL:@SECLEVEL=0")
    except ssl.SSLError as error:
        pytest.skip(f"this ssl module has no anonymous ciphers: {error}")
    return context


def echo(server):
    """Sends back what comes over one connection of Python's TLS."""
    with server.accept()[0] as plain, anonymous(ssl.PROTOCOL_TLS_SERVER).wrap_socket(plain, server_side=True) as peer:
        while data := peer.recv(65536):
            peer.sendall(data)


def test_pythons_ssl_and_paramd_speak_tls_in_one_process(secure_daemon, token, job):
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=echo, args=(server,))
        thread.start()
        with socket.create_connection(server.getsockname()) as plain, \
                anonymous(ssl.PROTOCOL_TLS_CLIENT).wrap_socket(plain) as peer:
            def both(text):
                peer.sendall(text)
                assert peer.recv(100) == text
            both(b"before")
            with paramd.Client(secure_daemon.secure, job, token_file=token, rules="* sgd lr=1") as client:
                both(b"meanwhile")
                weights = train(client)
                both(b"and after")
        thread.join()
    assert (weights == -2).all()
    # A context of Python's still has Python's settings.
    assert ssl.create_default_context().minimum_version != ssl.TLSVersion.TLSv1_3


def test_the_environment_names_the_files_too(secure_daemon, token, job, monkeypatch):
    monkeypatch.setenv("PARAMD_TOKEN_FILE", str(token))
    with paramd.Client(secure_daemon.secure, job, rules="* sgd lr=1") as client:
        assert (train(client) == -2).all()


def test_state_is_saved_and_loaded_with_the_files_of_the_client(secure_daemon, token, job, tmp_path):
    path = tmp_path / "state.safetensors"
    with paramd.Client(secure_daemon.secure, job, token_file=token, rules="* sgd lr=1 momentum=0.5") as client:
        train(client)
        assert client.export_state(path) == 3
        client.import_state(path)


def test_a_client_without_token_is_refused_with_the_reason(secure_daemon, job):
    with pytest.raises(paramd.Unavailable, match="PARAMD_TOKEN_FILE"):
        paramd.Client(secure_daemon.secure, job, impatient=True)


def test_a_file_that_others_can_read_is_refused(secure_daemon, token, job):
    token.chmod(0o644)
    with pytest.raises(paramd.PermissionDenied, match="chmod 600"):
        paramd.Client(secure_daemon.secure, job, token_file=token)
