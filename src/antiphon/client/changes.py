"""Changes at the server: what can be listened for, and what the stream says."""

from typing import Literal

import msgspec

from antiphon.types import JsonObject

_LISTS: tuple[Literal["tools", "prompts", "resources"], ...] = ("tools", "prompts", "resources")


class Change(msgspec.Struct, frozen=True):
    """Something changed at the server: a list, or the resource under ``uri``."""

    kind: Literal["tools", "prompts", "resources", "resource"]
    uri: str | None = None


def wanted(*, tools: bool, prompts: bool, resources: bool | list[str]) -> JsonObject:
    """basic/patterns/subscriptions, Notification Filter."""
    made: JsonObject = {}
    if tools:
        made["toolsListChanged"] = True
    if prompts:
        made["promptsListChanged"] = True
    if resources is True:
        made["resourcesListChanged"] = True
    elif resources:
        made["resourceSubscriptions"] = list(resources)
    if not made:
        raise ValueError("subscribe() needs something to listen for: tools=True, prompts=True, resources=True or URIs")
    return made


def everything_in(filter_: JsonObject) -> list[Change]:
    """What may have changed while nobody listened."""
    lists = [Change(kind) for kind in _LISTS if filter_.get(f"{kind}ListChanged")]
    return lists + [Change("resource", uri) for uri in filter_.get("resourceSubscriptions", [])]


def left_out(filter_: JsonObject, acknowledgment: JsonObject) -> list[str]:
    """What was asked for and is not in what the server agreed to."""
    params = acknowledgment.get("params")
    agreed = params.get("notifications") if type(params) is dict else None
    got: JsonObject = agreed if type(agreed) is dict else {}
    return [key for key in filter_ if not got.get(key)]


def change_in(message: JsonObject) -> Change | None:
    method, params = message["method"], message.get("params")
    for kind in _LISTS:
        if method == f"notifications/{kind}/list_changed":
            return Change(kind)
    if method == "notifications/resources/updated" and type(params) is dict and type(params.get("uri")) is str:
        return Change("resource", params["uri"])
    return None
