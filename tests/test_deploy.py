"""deploy/: units, compose file and Containerfile name what exists, and take ports and options from the scripts."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
HOME = "/opt/tff-re"
ROLES = ("coordinator", "site", "node")
SECTIONS = {"Unit", "Service", "Install"}
HARDENING = {
    "NoNewPrivileges": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectControlGroups": "yes",
    "RestrictNamespaces": "yes",
    "RestrictSUIDSGID": "yes",
    "CapabilityBoundingSet": "",
    "UMask": "0077",
    "Restart": "always",
    "User": "tff-re",
}


def unit(role):
    """The lines of a unit, by key; a key may come several times."""
    keys, section = {}, None
    for line in (DEPLOY / f"systemd/tff-re-{role}.service").read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if header := re.fullmatch(r"\[(\w+)\]", line):
            section = header[1]
            assert section in SECTIONS
            continue
        key, equals, value = line.partition("=")
        assert section and equals and key.isalpha(), line
        keys.setdefault(key, []).append(value)
    return keys


def services():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]


def default_port(script, variable):
    """The port that a script takes if the variable is not set."""
    (port,) = set(re.findall(rf"\$\{{{variable}:-(\d+)\}}", (ROOT / "scripts" / script).read_text("utf-8")))
    return port


def commands_of(script):
    """The commands that a script's usage names, with their arguments."""
    usage = re.findall(
        rf"^#   scripts/{script} FOLDER (\w+)((?: [A-Z:]+)*)  ", (ROOT / "scripts" / script).read_text("utf-8"), re.M
    )
    return {name: arguments.split() for name, arguments in usage}


def check_command(words):
    """A command line of a role: its script exists and knows the command with this number of arguments."""
    program, _folder, name, *arguments = words
    assert (ROOT / program).is_file() and (ROOT / program).stat().st_mode & 0o111, program
    assert len(commands_of(Path(program).name)[name]) == len(arguments), words


@pytest.mark.parametrize("role", ROLES)
def test_a_unit_starts_a_role_by_a_command_that_its_script_has(role):
    keys = unit(role)
    (command,) = keys["ExecStart"]
    check_command(command.removeprefix(f"{HOME}/").split())
    assert command.startswith(f"{HOME}/scripts/") and keys["WorkingDirectory"] == [HOME]
    (folder,) = keys["StateDirectory"]
    assert command.split()[1] == f"/var/lib/{folder}"
    (manual,) = keys["Documentation"]
    assert (ROOT / manual.removeprefix(f"file:{HOME}/")).is_file()
    settings = (DEPLOY / "systemd/tff-re.env").read_text("utf-8")
    for variable in re.findall(r"\$\{(\w+)\}", command):
        assert re.search(rf"^{variable}=\S+$", settings, re.MULTILINE), variable


@pytest.mark.parametrize("role", ROLES)
def test_a_unit_is_hardened(role):
    keys = unit(role)
    assert {key: keys.get(key) for key in HARDENING} == {key: [value] for key, value in HARDENING.items()}


def test_a_site_has_no_network_and_reads_its_data_only_and_a_node_sees_no_data():
    site, node, folder = unit("site"), unit("node"), "-/var/lib/tff-re/hospital/"
    assert site["PrivateNetwork"] == ["yes"] and "PrivateNetwork" not in node
    assert set(site["ReadOnlyPaths"]) == {folder + name for name in ("data", "site.toml")}
    hidden = {folder + name for name in ("data", "state", "site.key", "vocabulary.key")}
    assert set(node["InaccessiblePaths"]) == hidden


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize("role", ROLES)
def test_systemd_accepts_a_unit(role, tmp_path):
    name = f"tff-re-{role}.service"
    text = (DEPLOY / "systemd" / name).read_text("utf-8").replace(HOME, str(ROOT))
    (tmp_path / name).write_text(text, "utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", tmp_path / name],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_compose_services_are_the_roles_with_the_scripts_ports():
    port = default_port("coordinator", "PORT")
    known = services()
    sites = re.search(r"sites=\((.+)\)", (ROOT / "scripts/three-hospitals").read_text("utf-8"))[1].split()
    assert set(known) == {"coordinator", *(f"{site}-{role}" for site in sites for role in ("site", "node"))}
    assert known["coordinator"]["ports"] == [f"{port}:{port}"]
    for name, service in known.items():
        role = name.rpartition("-")[2]
        check_command(service["command"])
        assert service["command"][2] == {"coordinator": "serve"}.get(role, role)
        if role == "node":
            assert service["command"][3].endswith(f":{port}")
        assert ("ports" in service) == (role == "coordinator")
        assert service["healthcheck"]["test"] == [
            "CMD",
            ".venv/bin/python",
            "deploy/health",
            role,
            service["command"][1],
        ]


def test_compose_services_are_hardened():
    for name, service in services().items():
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["restart"] == "always", name
        assert service["security_opt"] == ["no-new-privileges:true"] and service["init"], name
        if name.endswith("-site"):
            assert service["network_mode"] == "none" and service["volumes"][1].endswith("/data:/hospital/data:ro")
        if name.endswith("-node"):  # not by a tmpfs, which Podman fills with the folder's files
            hidden = {f"empty:/hospital/{folder}:ro" for folder in ("data", "state")}
            hidden |= {f"/dev/null:/hospital/{key}:ro" for key in ("site.key", "vocabulary.key")}
            assert hidden <= set(service["volumes"]) and service["tmpfs"] == ["/tmp"]


@pytest.mark.skipif(not shutil.which("podman-compose"), reason="podman-compose is not installed")
def test_podman_compose_resolves_the_file(tmp_path):
    environment = {**os.environ, "FEDERATION": str(tmp_path), "VERSION": "next", "LINK_HOST": "link.example.org"}
    done = subprocess.run(
        ["podman-compose", "config"], cwd=DEPLOY, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    resolved = yaml.safe_load(done.stdout)["services"]
    assert set(resolved) == set(services())
    assert {service["image"] for service in resolved.values()} == {"tff-re:next"}
    assert resolved["bonn-node"]["command"][-1] == "link.example.org:9092"
    assert f"{tmp_path}/bonn:/hospital" in resolved["bonn-site"]["volumes"]


def test_the_image_copies_what_exists_and_names_no_registry_but_that_of_its_base():
    text = (DEPLOY / "Containerfile").read_text("utf-8")
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    copied = [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]]
    ignore = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert copied and sorted(copied) == sorted(line[1:] for line in ignore if line.startswith("!"))
    for name in copied:
        assert (ROOT / name).exists(), name
    assert len(re.findall(r"^FROM ", text, re.MULTILINE)) == 1 and "FROM ${BASE}" in lines
    hosts = re.findall(r"\b(?:[a-z0-9-]+\.)+(?:io|org|com|net|dev|cn)\b", "\n".join(lines))
    assert hosts == ["docker.io"] and "://" not in text


def test_the_image_has_what_the_scripts_and_the_services_need():
    copied = re.findall(r"^COPY (.+) \S+$", (DEPLOY / "Containerfile").read_text("utf-8"), re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    assert {"scripts", "tff_re", "computations", "datasets", "deploy/health"} <= names
    assert {"requirements.lock", "requirements-language.lock", "setup.cfg", "pyproject.toml"} <= names


def test_try_image_types_the_commands_of_the_page():
    page, script = ((DEPLOY / name).read_text("utf-8") for name in ("README.md", "try-image"))
    typed = re.sub(r"\s+", " ", re.sub(r"\\\n| -T\b", " ", script).replace('"$site-site"', "aachen-site"))
    typed = typed.replace('"$site" "/coordinator/$site.pub"', "aachen /coordinator/aachen.pub")
    lines = [line.removeprefix("podman-") for line in page.splitlines() if line.startswith("podman-compose ")]
    assert len(lines) >= 6
    for line in lines:
        assert line in typed, line
    for folder in re.findall(r"^mkdir -p deploy/federation/(.+)$", page, re.MULTILINE):
        assert f'mkdir -p "$FEDERATION"/{folder}' in typed


def missing_for_try_image():
    """Why deploy/try-image cannot run on this machine; empty if it can."""
    if os.geteuid() != 0:
        return "deploy/try-image needs root"
    programs = ("debootstrap", "podman", "podman-compose", "ip", "unshare")
    return ", ".join(f"{program} is not installed" for program in programs if not shutil.which(program))


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_for_try_image()), reason=missing_for_try_image())
def test_the_image_is_built_and_a_federation_trains_with_it(tmp_path):
    before = set(Path("/var/tmp").glob("tff-re-image.*"))
    done = subprocess.run(
        [DEPLOY / "try-image", tmp_path / "files"],
        capture_output=True,
        text=True,
        timeout=3000,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("passed")
    assert (tmp_path / "files/coordinator/runs/three/model.keras").is_file()
    assert set(Path("/var/tmp").glob("tff-re-image.*")) <= before


def test_try_image_refuses_in_one_line(tmp_path):
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([DEPLOY / "try-image"], capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "tff-re: try-image: run it as root\n")


def health(capsys, *arguments):
    """Exit code and all output of deploy/health."""
    main = runpy.run_path(str(DEPLOY / "health"))["main"]
    code = main(list(map(str, arguments)))
    return code, "".join(capsys.readouterr())


def test_a_site_is_healthy_while_its_socket_takes_connections(tmp_path, capsys):
    path = tmp_path / "site.sock"
    code, line = health(capsys, "site", tmp_path)
    assert code == 1 and line.startswith(f"tff-re: site: {path}: ") and line.count("\n") == 1
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        assert health(capsys, "site", tmp_path) == (0, f"site: {path} takes connections\n")
    assert path.exists()
    assert health(capsys, "site", tmp_path)[0] == 1


def test_a_node_is_healthy_while_its_port_takes_connections(tmp_path, capsys, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        monkeypatch.setenv("NODE_PORT", str(port))
        assert health(capsys, "node", tmp_path) == (0, f"node: port {port} takes connections\n")
    code, line = health(capsys, "node", tmp_path)
    assert code == 1 and line.startswith("tff-re: node: ")


def test_health_takes_the_scripts_default_port_and_refuses_unknown_roles(tmp_path, capsys):
    (port,) = re.findall(r'"NODE_PORT", "(\d+)"', (DEPLOY / "health").read_text("utf-8"))
    assert port == default_port("hospital", "NODE_PORT")
    assert health(capsys, "hospital", tmp_path)[0] == 2
    code, line = health(capsys, "coordinator", tmp_path)
    assert code == 1 and "config.toml" in line


def test_the_page_has_the_ports_of_the_scripts_and_links_that_exist():
    page = (DEPLOY / "README.md").read_text("utf-8")
    for script, variable in (("coordinator", "PORT"), ("hospital", "NODE_PORT")):
        assert f"{default_port(script, variable)}/tcp (`{variable}`)" in page
    for link in re.findall(r"\]\(([^)#]+)", page):
        assert (DEPLOY / link).exists(), link
    for name in re.findall(r"deploy/(?!federation)[\w./-]+\w", page):
        assert (ROOT / name).exists(), name
