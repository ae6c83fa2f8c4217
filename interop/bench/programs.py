"""Client work for programs: ``ssh``, and ssh2 for Node."""

from __future__ import annotations

import json
import resource
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

from tests.support.openssh import ssh_command, ssh_environment

from .jobs import CHUNK, HOST, Job, Measured, stopwatch

NODE_SCRIPT = Path(__file__).with_name("node_ssh2.js")


def ssh_words(job: Job, command: str) -> list[str]:
    key, known_hosts = job.file("user"), job.file("known_hosts")
    return ssh_command(job.port, command, key=key, known_hosts=known_hosts, username=job.username, ciphers=[job.cipher])


def ssh(work: str, job: Job) -> Measured:
    """The program; for a transfer less what a run of nothing but start and login takes, as the others leave it out."""
    commands = {"download": f"head -c {job.size} /dev/zero", "upload": "wc -c", "connect": "true"}
    words, environment = ssh_words(job, commands[work]), ssh_environment()
    login = Measured() if work == "connect" else ssh("connect", replace(job, count=1))
    passed = stopwatch(resource.RUSAGE_CHILDREN)
    if work == "upload":
        blocks = job.size // CHUNK
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdin and process.stdout
            block = bytes(CHUNK)
            for _ in range(blocks):
                process.stdin.write(block)
            process.stdin.close()
            assert int(process.stdout.read()) == blocks * CHUNK
        assert process.returncode == 0
    else:
        for _ in range(job.count if work == "connect" else 1):
            subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment, check=True)
    whole = passed()
    return Measured(whole.cpu - login.cpu, whole.wall - login.wall)


def node(work: str, job: Job) -> Measured:
    """The script measures itself: what Node needs to start is left out, as our imports are."""
    told = {"host": HOST, "user": job.file("user"), "known_hosts": job.file("known_hosts"), "size": job.size}
    words = ["node", str(NODE_SCRIPT), work, json.dumps(asdict(job) | told)]
    return Measured(**json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout))
