"""The examples for Slurm and Kubernetes agree with what tfrun writes and with the documentation.

tests/hosts/test_host_examples.py runs both.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from docs_blocks import ROOT, blocks
from tfrun.cli.render import render

MANIFEST = (ROOT / "examples/kubernetes.yaml").read_text(encoding="utf-8")
BATCH = (ROOT / "examples/slurm.sh").read_text(encoding="utf-8")
DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all(MANIFEST))
KUBERNETES = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")


def test_the_manifest_is_what_its_command_writes() -> None:
    comment = re.sub(r"^#", "", MANIFEST.partition("\napiVersion")[0], flags=re.MULTILINE)
    (command,) = re.findall(r"^ +tfrun render kubernetes ((?:.*\\\n)*.*)$", comment, re.MULTILINE)
    words = shlex.split(command.replace("\\\n", " "))
    done = CliRunner().invoke(render, ["kubernetes", *words])
    assert done.exit_code == 0, done.output
    assert list(yaml.safe_load_all(done.output)) == DOCUMENTS


@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
def test_kubernetes_takes_the_manifest(version: str) -> None:
    for document in DOCUMENTS:
        kubernetes_validate.validate(document, version, strict=True)


def test_the_manifest_is_as_the_documentation_says() -> None:
    found = {document["kind"]: document for document in DOCUMENTS}
    job = found["Job"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    said = " ".join(KUBERNETES.split())
    for text in (
        f"mounted at `{container['volumeMounts'][0]['mountPath']}`",
        f"a `/dev/shm` of {pod['volumes'][1]['emptyDir']['sizeLimit'].replace('Gi', ' GiB')}",
        f"has `--grace` seconds ({pod['terminationGracePeriodSeconds']}) to end",
        f"at `{container['livenessProbe']['httpGet']['path']}` on port "
        f"{container['ports'][0]['containerPort']}",
        f"end with code {job['podFailurePolicy']['rules'][0]['onExitCodes']['values'][0]} and",
        f"end with code {job['podFailurePolicy']['rules'][2]['onExitCodes']['values'][0]} and",
        found["PersistentVolumeClaim"]["spec"]["accessModes"][0],
    ):
        assert text in said, text
    # "Kubernetes ends it after a minute without an answer"
    probe = container["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 60
    # The option may use all but 20 of these seconds.
    grace = int(container["args"][container["args"].index("--grace") + 1])
    assert grace == pod["terminationGracePeriodSeconds"] - 20
    assert container["args"][:2] == ["--run-dir", f"/tfrun/{found['Job']['metadata']['name']}"]
    # No secret stands in a file that many read: the comment says how to make it.
    assert "Secret" not in found
    assert f"secret generic {pod['volumes'][2]['secret']['secretName']} " in MANIFEST


def test_the_batch_script_has_what_the_documentation_says_about_preemption() -> None:
    wanted = [
        line
        for block in blocks(ROOT / "docs/slurm.md")
        for line in block.text.splitlines()
        if line.startswith("#SBATCH") and block.language == "sh"
    ]
    assert len(wanted) == 3 and set(wanted) <= set(BATCH.splitlines())
    seconds, saving = re.findall(r"TERM@(\d+)|--grace (\d+)", BATCH)
    assert int(seconds[0]) - int(saving[1]) == 20
    assert re.search(r"^exec tfrun ", BATCH, re.MULTILINE)
    # Slurm reads its options before the first command only.
    assert "#SBATCH" not in re.split(r"^exec ", BATCH, flags=re.MULTILINE)[1]
