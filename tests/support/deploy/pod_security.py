"""The restricted pod security standard as a program, for pods as objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_VOLUMES = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
     "projected", "secret"}
)  # fmt: skip
_SECCOMP = frozenset({"RuntimeDefault", "Localhost"})


def violations(spec: dict[str, Any]) -> list[str]:
    """What the standard forbids in the specification of a pod; empty for one that it admits."""
    return [
        *_of_pod(spec),
        *(each for one in _containers(spec) for each in _of_container(spec, one)),
    ]


def _of_pod(spec: dict[str, Any]) -> Iterator[str]:
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(key):
            yield key
    for volume in spec.get("volumes", ()):
        if kinds := set(volume) - {"name"} - _VOLUMES:
            yield f"volume {volume['name']}: {kinds}"
    if spec.get("securityContext", {}).get("sysctls"):
        yield "sysctls"


def _containers(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for key in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(key, ())


def _of_container(spec: dict[str, Any], container: dict[str, Any]) -> Iterator[str]:
    pod, own = spec.get("securityContext", {}), container.get("securityContext", {})
    effective = {**pod, **own}
    name = container["name"]
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{name}: allowPrivilegeEscalation"
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", ()):
        yield f"{name}: capabilities are not dropped"
    if set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield f"{name}: capabilities are added"
    if effective.get("runAsNonRoot") is not True or effective.get("runAsUser") == 0:
        yield f"{name}: may run as root"
    if effective.get("seccompProfile", {}).get("type") not in _SECCOMP:
        yield f"{name}: seccompProfile"
    yield from _of_the_host(container)


def _of_the_host(container: dict[str, Any]) -> Iterator[str]:
    own, name = container.get("securityContext", {}), container["name"]
    if own.get("privileged"):
        yield f"{name}: privileged"
    if own.get("procMount", "Default") != "Default":
        yield f"{name}: procMount"
    if any("hostPort" in port for port in container.get("ports", ())):
        yield f"{name}: hostPort"
