"""Tests deploy/kubernetes and deploy/docker-compose.yml: they fit the daemon, and each other. Needs PyYAML; the schemas
of Kubernetes are checked where kubernetes-validate is installed. No cluster and no container engine is needed."""
from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

yaml = pytest.importorskip("yaml")

BIN = os.environ["PARAMD_BIN"]
DEPLOY = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir, "deploy")
SECRETS = ("tokens", "http-token", "worker-token", "roles")
CLUSTER = "cluster/daemons.yaml"


def documents(name):
    with open(os.path.join(DEPLOY, "kubernetes", name), encoding="utf-8") as file:
        return [document for document in yaml.safe_load_all(file) if document]


def find(kind, name="daemon.yaml"):
    [found] = [document for document in documents(name) if document["kind"] == kind]
    return found


def compose(name="docker-compose.yml"):
    with open(os.path.join(DEPLOY, name), encoding="utf-8") as file:
        return yaml.safe_load(file)


def pod_of(kind, name="daemon.yaml"):
    """Returns the pod of a StatefulSet or Job, and its one container."""
    spec = find(kind, name)["spec"]["template"]["spec"]
    [container] = spec["containers"]
    return spec, container


def mounted(spec, container):
    """Returns where each secret of a pod is mounted: name of the secret to folder."""
    secrets = {volume["name"]: volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume}
    return {secrets[mount["name"]]: mount["mountPath"] for mount in container["volumeMounts"]
            if mount["name"] in secrets}


@pytest.fixture
def secrets(tmp_path):
    """A folder with secrets as deploy/secrets.sh makes them, for this user."""
    folder = tmp_path / "secrets"
    environment = dict(os.environ, PARAMCTL=BIN + "/paramctl", PARAMD_USER=f"{os.getuid()}:{os.getgid()}")
    subprocess.run([os.path.join(DEPLOY, "secrets.sh"), folder], check=True, env=environment, stdout=subprocess.DEVNULL)
    return folder


def here(text, secrets, tmp_path):
    """Returns a text in which paths of a container are paths of this test."""
    text = re.sub(r"/run/secrets(/paramd)?/", f"{secrets}/", text)
    return text.replace("/var/lib/paramd", str(tmp_path)).replace("/config/", f"{tmp_path}/")


def expect_accepted(*arguments):
    done = subprocess.run([BIN + "/paramd", *arguments, "--check-config"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def settings(text):
    """Returns the settings of a configuration file: section.key to value."""
    found, section = {}, ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif "=" in line:
            key, value = line.split("=", 1)
            found[f"{section}.{key.strip()}"] = value.strip()
    return found


def test_the_secrets_are_made_once_and_for_their_owner_alone(secrets):
    before = {name: (secrets / name).read_text() for name in SECRETS}
    assert before["tokens"].splitlines()[1] == before["worker-token"].strip()
    assert before["tokens"].startswith("operator:")
    for name in SECRETS:
        assert os.stat(secrets / name).st_mode & 0o777 == 0o400
    environment = dict(os.environ, PARAMCTL=BIN + "/paramctl", PARAMD_USER=f"{os.getuid()}:{os.getgid()}")
    subprocess.run([os.path.join(DEPLOY, "secrets.sh"), secrets], check=True, env=environment)
    assert {name: (secrets / name).read_text() for name in SECRETS} == before


def test_manifests_follow_the_schemas_of_kubernetes():
    validate = pytest.importorskip("kubernetes_validate")
    for name in ("daemon.yaml", "worker.yaml", CLUSTER):
        for document in documents(name):
            validate.validate(document, "1.37", strict=True)


def test_the_daemon_accepts_the_configuration_in_the_manifest(secrets, tmp_path):
    for name, text in find("ConfigMap")["data"].items():
        (tmp_path / name).write_text(here(text, secrets, tmp_path))
        (tmp_path / name).chmod(0o644)
    expect_accepted(f"--config={tmp_path}/paramd.conf")


@pytest.mark.parametrize(("token", "role"), [("operator", "admin"), ("worker", "push")])
def test_operators_command_and_workers_train(secrets, tmp_path, token, role):
    (tmp_path / "roles").write_text(find("ConfigMap")["data"]["roles"])
    for file in (secrets / "roles", tmp_path / "roles"):
        file.chmod(0o400)
        said = subprocess.run([BIN + "/paramctl", "roles", "check", file, f"token:{token}", "fashion", "-o", "json"],
                              capture_output=True, text=True, check=True).stdout
        assert f'"role": "{role}"' in said


def test_the_daemon_accepts_the_flags_in_the_compose_file(secrets, tmp_path):
    expect_accepted(*[here(flag, secrets, tmp_path) for flag in compose()["services"]["paramd"]["command"]])


def test_ports_agree_from_the_configuration_to_the_network_policy():
    conf = settings(find("ConfigMap")["data"]["paramd.conf"])
    ports = {"tls": conf["server.listen"], "http": conf["http.listen"]}
    ports = {name: int(address.rsplit(":", 1)[1]) for name, address in ports.items()}
    _, container = pod_of("StatefulSet")
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == ports
    assert {port["targetPort"]: port["port"] for port in find("Service")["spec"]["ports"]} == ports
    allowed = [port["port"] for rule in find("NetworkPolicy")["spec"]["ingress"] for port in rule["ports"]]
    assert sorted(allowed) == sorted(ports.values())
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == "http"
    flags = dict(flag[2:].split("=", 1) for flag in compose()["services"]["paramd"]["command"])
    assert flags["listen"].rsplit(":", 1)[1] == str(ports["tls"])
    assert flags["http-listen"].rsplit(":", 1)[1] == str(ports["http"])


def test_names_and_selectors_lead_to_the_daemon():
    stateful = find("StatefulSet")
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    assert stateful["spec"]["serviceName"] == find("Service")["metadata"]["name"]
    assert find("Service")["spec"]["clusterIP"] == "None"
    assert find("Service")["spec"]["selector"].items() <= labels.items()
    for kind, selector in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        assert find(kind)["spec"][selector]["matchLabels"].items() <= labels.items()
    [workers] = [rule["from"] for rule in find("NetworkPolicy")["spec"]["ingress"] if rule["ports"][0]["port"] == 7070]
    worker = find("Job", "worker.yaml")["spec"]["template"]["metadata"]["labels"]
    assert workers[0]["podSelector"]["matchLabels"].items() <= worker.items()


@pytest.mark.parametrize(("kind", "name"), [("StatefulSet", "daemon.yaml"), ("Job", "worker.yaml")])
def test_secrets_are_mounted_where_they_are_read(kind, name):
    spec, container = pod_of(kind, name)
    folders = mounted(spec, container)
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    read = [environment["PARAMD_TOKEN_FILE"]]
    if kind == "StatefulSet":
        conf = settings(find("ConfigMap")["data"]["paramd.conf"])
        read += [conf["tls.tokens"], conf["http.token"]]
    for path in read:
        assert os.path.dirname(path) in folders.values(), path
        assert os.path.basename(path) in SECRETS, path
    modes = [volume["secret"]["defaultMode"] for volume in spec["volumes"] if "secret" in volume]
    assert modes == [0o440]                                     # the daemon refuses what others can read
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]


def test_workers_know_the_daemon_and_their_number():
    job = find("Job", "worker.yaml")["spec"]
    environment = {variable["name"]: variable["value"] for variable in pod_of("Job", "worker.yaml")[1]["env"]}
    listen = settings(find("ConfigMap")["data"]["paramd.conf"])["server.listen"]
    assert environment["PARAMD_URL"] == listen.replace("*", find("Service")["metadata"]["name"])
    assert environment["WORLD_SIZE"] == str(job["completions"]) == str(job["parallelism"])
    services = compose()["services"]
    workers = [service["environment"] for name, service in services.items() if name.startswith("worker")]
    assert sorted(worker["RANK"] for worker in workers) == list(range(workers[0]["WORLD_SIZE"]))
    assert {worker["PARAMD_URL"] for worker in workers} == {"tls://paramd:7070"}


def test_commands_of_paramctl_in_the_manifests_are_commands():
    command = pod_of("StatefulSet")[1]["lifecycle"]["preStop"]["exec"]["command"]
    environment = dict(os.environ, PARAMD_URL="unix:///nobody/listens/here")
    done = subprocess.run([f"{BIN}/{command[0]}", "--timeout=0.2", *command[1:]], env=environment, capture_output=True,
                          check=False)
    assert done.returncode == 3, done.stderr                    # understood, but there is no daemon


def test_stopping_leaves_as_much_time_as_the_unit_does():
    with open(os.path.join(DEPLOY, "paramd.service"), encoding="utf-8") as file:
        unit = int(re.search(r"^TimeoutStopSec=(\d+)$", file.read(), re.MULTILINE).group(1))
    assert pod_of("StatefulSet")[0]["terminationGracePeriodSeconds"] == unit
    assert compose()["services"]["paramd"]["stop_grace_period"] == f"{unit // 60}m"


def test_the_health_check_of_the_compose_file_asks_whether_the_daemon_is_ready():
    check = compose()["services"]["paramd"]["healthcheck"]["test"]
    _, container = pod_of("StatefulSet")
    assert check[:3] == ["CMD", "bash", "-c"]
    assert f"GET {container['readinessProbe']['httpGet']['path']} HTTP/1.1" in check[3]
    assert subprocess.run(["bash", "-n", "-c", check[3].replace("$$", "$")], check=False).returncode == 0


def test_prometheus_reads_its_configuration(secrets, tmp_path):
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian's package prometheus)")
    for volume in compose()["services"]["prometheus"]["volumes"]:
        source, target, mode = volume.split(":")
        assert mode == "ro"
        with open(os.path.join(DEPLOY, source), encoding="utf-8") as file:
            (tmp_path / os.path.basename(target)).write_text(here(file.read(), secrets, tmp_path))
    done = subprocess.run(["promtool", "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    targets = compose()["services"]["paramd"]["command"]
    port = dict(flag[2:].split("=", 1) for flag in targets)["http-listen"].rsplit(":", 1)[1]
    assert f'"paramd:{port}"' in (tmp_path / "prometheus.yml").read_text()


def test_the_cluster_of_kubernetes_differs_from_the_daemon_in_its_pods_alone():
    one, many = find("StatefulSet"), find("StatefulSet", CLUSTER)
    assert many["spec"].pop("podManagementPolicy") == "Parallel"      # one pod that cannot start keeps no other away
    assert many["spec"].pop("updateStrategy") == {"type": "RollingUpdate"}
    assert many["spec"]["template"]["spec"].pop("topologySpreadConstraints")
    assert (one["spec"].pop("replicas"), many["spec"].pop("replicas")) == (1, 3)
    assert one == many
    for kind in ("ConfigMap", "Service", "PodDisruptionBudget", "NetworkPolicy"):
        assert find(kind) == find(kind, CLUSTER), kind


def test_lists_of_daemons_name_every_pod_and_every_service():
    with open(os.path.join(DEPLOY, "kubernetes", CLUSTER), encoding="utf-8") as file:
        [urls] = set(re.findall(r"PARAMD_URL=(tls://paramd-{0\.\.(?:\d+)}\.paramd:7070)", file.read()))
    assert urls.endswith(f"{{0..{find('StatefulSet', CLUSTER)['spec']['replicas'] - 1}}}.paramd:7070")
    services = compose("docker-compose.cluster.yml")["services"]
    daemons = sorted(name for name in services if name.startswith("paramd"))
    [urls] = {service["environment"]["PARAMD_URL"] for service in services.values() if "environment" in service}
    assert urls == f"tls://paramd{{0..{len(daemons) - 1}}}:7070"
    assert daemons == [f"paramd{i}" for i in range(len(daemons))]
    for name, service in services.items():
        if name.startswith("worker"):
            assert sorted(service["depends_on"]) == daemons


def test_with_an_engine_the_daemons_have_a_shard_each_and_the_spare_has_the_state_of_all(secrets, tmp_path):
    services = compose("docker-compose.cluster.yml")["services"]
    daemons = sorted(name for name in services if name.startswith("paramd"))
    for i, name in enumerate([*daemons, "spare"]):
        flags = [re.sub(r"\$\{\w+:-\}", "", flag) for flag in services[name]["command"]]
        flags[flags.index("--cluster-engine=")] += "etcd://etcd:2379"
        assert f"--cluster-advertise=tls://{name}:7070" in flags
        assert name == "spare" or f"--cluster-shards={len(daemons)}" in flags
        assert (f"--cluster-shard={i}" if name != "spare" else "--cluster-spare") in flags
        expect_accepted(*[here(flag, secrets, tmp_path) for flag in flags])
    assert services["spare"]["profiles"] == services["etcd"]["profiles"] == ["etcd"]
    own = [services[name]["volumes"][0].split(":")[0] for name in daemons]
    assert services["spare"]["volumes"] == [f"{volume}:/var/lib/paramd/{i}" for i, volume in enumerate(own)]


def test_the_daemons_of_the_compose_file_share_all_but_their_state(secrets, tmp_path):
    one = compose()["services"]["paramd"]
    services = compose("docker-compose.cluster.yml")["services"]
    daemons = [service for name, service in services.items() if name.startswith("paramd")]
    assert len({service["volumes"][0] for service in daemons}) == len({service["ports"][0] for service in daemons}) == 3
    for service in daemons:
        flags = [re.sub(r"\$\{(SLICE\d|ENGINE):-\}", "", flag) for flag in service["command"]]
        assert [flag for flag in flags if not flag.startswith("--cluster-")] == one["command"] + ["--slice="]
        expect_accepted(*[here(flag, secrets, tmp_path) for flag in flags])
        for key in set(one) - {"command", "environment", "ports", "volumes"}:
            assert service[key] == one[key], key
