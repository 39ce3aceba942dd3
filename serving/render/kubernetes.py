"""Launches as Kubernetes objects: a StatefulSet a host, a Service for the API, one by which several hosts meet."""

import math
from typing import Any

from serving.launch.key import VARIABLE
from serving.launch.launch import Bind, Launch
from serving.render import yaml_text
from serving.render.file import File
from tools.cli.errors import UserError

_USER = 1000
# As long as vLLM may take to be ready: VLLM_ENGINE_READY_TIMEOUT_S, and the loading before it.
_START_SECONDS = 7200
_PROBE_SECONDS = 10


def master(name: str) -> str:
    """The DNS name, within a namespace, of the pod that holds rank 0 of several hosts."""
    return f"{name}-0-0.{name}-peers"


def render(launches: list[Launch]) -> list[File]:
    """One file with all objects. Raises UserError for what the form cannot say."""
    first = launches[0]
    if first.docker_options:
        raise UserError("EXTRA_DOCKER_ARGS: options of docker run have no place in Kubernetes objects: leave them out")
    objects = [_service(first), *([_peers(first)] if len(launches) > 1 else [])]
    objects += [_stateful_set(launch) for launch in launches]
    secret = _secret(first)
    head = (
        f"# Made by `moet serve render {first.line} --form kubernetes`. {first.title}.\n"
        f"# The API key, from a file with the line {VARIABLE}=KEY: "
        f"kubectl create secret generic {secret} --from-env-file=FILE\n"
    )
    return [File(f"{first.name}.yaml", yaml_text.dump(objects, head))]


def _secret(launch: Launch) -> str:
    return f"{launch.name}-api-key"


def _labels(launch: Launch) -> dict[str, str]:
    return {"app.kubernetes.io/name": launch.name, "app.kubernetes.io/managed-by": "moet"}


def _service(launch: Launch) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": launch.name, "labels": _labels(launch)},
        "spec": {
            "selector": {"app.kubernetes.io/name": launch.name, "moet/rank": "0"},
            "ports": [{"name": "http", "port": launch.port, "targetPort": "http"}],
        },
    }


def _peers(launch: Launch) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{launch.name}-peers", "labels": _labels(launch)},
        "spec": {
            "clusterIP": "None",
            # They meet before any of them is ready.
            "publishNotReadyAddresses": True,
            "selector": {"app.kubernetes.io/name": launch.name},
            "ports": [{"name": "master", "port": launch.node.master_port}],
        },
    }


def _stateful_set(launch: Launch) -> dict[str, Any]:
    several = launch.node.count > 1
    labels = _labels(launch) | {"moet/rank": str(launch.node.rank)}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": launch.host_name, "labels": labels},
        "spec": {
            "serviceName": f"{launch.name}-peers" if several else launch.name,
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(launch)},
        },
    }


def _pod(launch: Launch) -> dict[str, Any]:
    shm = {"medium": "Memory", "sizeLimit": f"{math.ceil(launch.shared_memory_gib)}Gi"}
    volumes = [{"name": f"volume-{index}", **_volume(bind)} for index, bind in enumerate(launch.binds)]
    return {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": 60,
        "automountServiceAccountToken": False,
        # A Service called vllm would set VLLM_PORT, which vLLM reads.
        "enableServiceLinks": False,
        "containers": [_container(launch)],
        "volumes": [{"name": "shm", "emptyDir": shm}, *volumes],
    }


def _container(launch: Launch) -> dict[str, Any]:
    mounts = [
        {"name": f"volume-{index}", "mountPath": bind.target, "readOnly": not bind.write}
        for index, bind in enumerate(launch.binds)
    ]
    environment: list[dict[str, Any]] = [
        {"name": name, "value": _literal(value)} for name, value in launch.environment.items()
    ]
    container: dict[str, Any] = {
        "name": "server",
        "image": launch.image,
        "args": [_literal(word) for word in launch.arguments],
        "env": environment,
        "resources": {"limits": {"nvidia.com/gpu": len(launch.gpus)}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}, *mounts],
    }
    if launch.api:
        environment.append({
            "name": VARIABLE,
            "valueFrom": {"secretKeyRef": {"name": _secret(launch), "key": VARIABLE}},
        })
        container["ports"] = [{"name": "http", "containerPort": launch.inner_port}]
        health = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": _PROBE_SECONDS}
        container["startupProbe"] = health | {"failureThreshold": _START_SECONDS // _PROBE_SECONDS}
        container["readinessProbe"] = health | {"failureThreshold": 3}
    return container


def _volume(bind: Bind) -> dict[str, Any]:
    if bind.is_volume:
        return {"persistentVolumeClaim": {"claimName": bind.source}}
    return {"hostPath": {"path": bind.source, "type": "Directory"}}


def _literal(value: str) -> str:
    """Text in which Kubernetes replaces no $(VARIABLE)."""
    return value.replace("$", "$$")
