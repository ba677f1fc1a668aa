"""TensorFlow itself reads the clusters that tfrun accepts, in the same way."""

from __future__ import annotations

import pytest
from test_cluster_tf_config import VALID

from tfrun.cluster.tf_config import parse_tf_config, render

resolvers = pytest.importorskip("tensorflow").distribute.cluster_resolver


@pytest.mark.parametrize("name", VALID)
def test_tensorflow_reads_the_same_cluster(name, monkeypatch):
    from tensorflow.python.distribute import multi_worker_util

    parsed = parse_tf_config(VALID[name][0])
    monkeypatch.setenv("TF_CONFIG", render(parsed.cluster, parsed.task))
    resolver = resolvers.TFConfigClusterResolver()
    assert resolver.cluster_spec().as_dict() == {
        role: [str(address) for address in addresses] for role, addresses in parsed.cluster.roles
    }
    key = None if parsed.task is None else parsed.task.type
    assert resolver.task_type == key
    if parsed.cluster:
        multi_worker_util._validate_cluster_spec(  # raises when TensorFlow would refuse it later
            resolver.cluster_spec(), resolver.task_type, resolver.task_id
        )
