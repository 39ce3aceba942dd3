import re
from typing import Any

import kubernetes_validate
import pytest
import yaml

from serving.render import examples, form
from tools.cli.errors import UserError

# An old version of which there are clusters, and the newest that there are schemas for.
VERSIONS = ("1.30", kubernetes_validate.latest_version())
_VARIABLE = re.compile(r"\$\$|\$\(([^)]*)\)")


def objects(*given: str, hosts: form.Hosts = form.ONE) -> list[dict[str, Any]]:
    (text,) = examples.render("kubernetes", *given, hosts=hosts)
    found = list(yaml.safe_load_all(text))
    for one in found:
        for version in VERSIONS:
            kubernetes_validate.validate(one, version, strict=True)
    return found


def expanded(text: str) -> str:
    """Text as the kubelet gives it to the container: $(NAME) replaced, here by nothing, and $$ halved."""
    return _VARIABLE.sub(lambda found: "$" if found[0] == "$$" else "", text)


@pytest.mark.parametrize("given", [examples.PLAIN, examples.HOSTILE])
def test_objects_are_valid_and_say_the_very_launch(given: tuple[str, ...]) -> None:
    launch = examples.launch(*given)
    service, stateful = objects(*given)
    pod = stateful["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert [expanded(word) for word in container["args"]] == list(launch.arguments)
    plain = {one["name"]: expanded(one["value"]) for one in container["env"] if "value" in one}
    assert plain == launch.environment
    paths = {one["name"]: one.get("hostPath", {}).get("path") for one in pod["volumes"]}
    mounted = {one["mountPath"]: paths[one["name"]] for one in container["volumeMounts"]}
    assert {bind.target: bind.source for bind in launch.binds if not bind.is_volume}.items() <= mounted.items()
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 4
    assert service["spec"]["selector"].items() <= stateful["spec"]["template"]["metadata"]["labels"].items()
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]


def test_schema_would_refuse_an_unknown_key() -> None:
    _, stateful = objects(*examples.PLAIN)
    stateful["spec"]["template"]["spec"]["containers"][0]["argz"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(stateful, VERSIONS[0], strict=True)


def test_api_always_needs_the_secret() -> None:
    _, stateful = objects(*examples.PLAIN)
    (variable,) = [
        one for one in stateful["spec"]["template"]["spec"]["containers"][0]["env"] if one["name"] == "VLLM_API_KEY"
    ]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "dsv41-api-key", "key": "VLLM_API_KEY"}


def test_volume_is_a_claim_and_offload_is_in_shared_memory() -> None:
    _, stateful = objects(*examples.PLAIN, "KV_OFFLOAD_GIB=64.5")
    volumes = {one["name"]: one for one in stateful["spec"]["template"]["spec"]["volumes"]}
    assert volumes["shm"]["emptyDir"]["sizeLimit"] == "97Gi"
    assert volumes["volume-1"]["persistentVolumeClaim"] == {"claimName": "dsv41-cache"}


def test_hosts_meet_by_a_name_of_the_first_ones_pod() -> None:
    service, peers, *sets = objects(*examples.PLAIN, "TP=8", hosts=form.Hosts(2))
    assert [one["metadata"]["name"] for one in sets] == ["dsv41-0", "dsv41-1"]
    # A pod of a StatefulSet is called SET-ORDINAL, and is found as POD.SERVICE.
    master = f"{sets[0]['metadata']['name']}-0.{peers['metadata']['name']}"
    for rank, one in enumerate(sets):
        assert one["spec"]["serviceName"] == peers["metadata"]["name"]
        (container,) = one["spec"]["template"]["spec"]["containers"]
        assert {f"--master-addr={master}", f"--node-rank={rank}"} <= set(container["args"])
        assert peers["spec"]["selector"].items() <= one["spec"]["template"]["metadata"]["labels"].items()
    assert service["spec"]["selector"]["moet/rank"] == "0"
    assert "readinessProbe" not in sets[1]["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize("given", ["BIND=0.0.0.0", "GPUS=0,1,2,3", "EXTRA_DOCKER_ARGS=--cpus=4"])
def test_what_a_cluster_decides_is_refused(given: str) -> None:
    with pytest.raises(UserError, match=given.partition("=")[0]):
        objects(*examples.PLAIN, given)
