"""The kit that tests MCP programs: script the answers, assert on the rounds, record and replay."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.testing.answer_values import AnswerUnfit
    from antiphon.testing.answers import AnswersUnused, AnswerUnscripted, Asked, Script
    from antiphon.testing.chain import (
        DEFAULT_MAX_ROUNDS,
        AnswerMissing,
        HalfShaped,
        InputRequest,
        InputRequired,
        InputResponseFixture,
        build_retry_params,
        collect_responses,
        recognize_input_required,
        run_chain,
        run_chain_async,
    )
    from antiphon.testing.client import McpClient, PromptOutcome, ReadOutcome, SyncMcpClient, ToolOutcome
    from antiphon.testing.http_server import serving
    from antiphon.testing.issuer import Issuer
    from antiphon.testing.replay_safety import Finding, SafetyReport, check_replay_safety
    from antiphon.testing.servers import Connection, NoFreshInstance
    from antiphon.testing.transcript import Recorded

__all__ = [
    "DEFAULT_MAX_ROUNDS",
    "AnswerMissing",
    "AnswerUnfit",
    "AnswerUnscripted",
    "AnswersUnused",
    "Asked",
    "Connection",
    "Finding",
    "HalfShaped",
    "InputRequest",
    "InputRequired",
    "InputResponseFixture",
    "Issuer",
    "McpClient",
    "NoFreshInstance",
    "PromptOutcome",
    "ReadOutcome",
    "Recorded",
    "SafetyReport",
    "Script",
    "SyncMcpClient",
    "ToolOutcome",
    "build_retry_params",
    "check_replay_safety",
    "collect_responses",
    "recognize_input_required",
    "run_chain",
    "run_chain_async",
    "serving",
]

# Each name is loaded when it is first used: the functions over JSON need no client.
_HOMES = {
    "antiphon.testing.chain": (
        "DEFAULT_MAX_ROUNDS",
        "AnswerMissing",
        "HalfShaped",
        "InputRequest",
        "InputRequired",
        "InputResponseFixture",
        "build_retry_params",
        "collect_responses",
        "recognize_input_required",
        "run_chain",
        "run_chain_async",
    ),
    "antiphon.testing.client": (
        "McpClient",
        "PromptOutcome",
        "ReadOutcome",
        "SyncMcpClient",
        "ToolOutcome",
    ),
    "antiphon.testing.servers": ("Connection", "NoFreshInstance"),
    "antiphon.testing.answer_values": ("AnswerUnfit",),
    "antiphon.testing.replay_safety": ("Finding", "SafetyReport", "check_replay_safety"),
    "antiphon.testing.answers": ("AnswerUnscripted", "AnswersUnused", "Asked", "Script"),
    "antiphon.testing.issuer": ("Issuer",),
    "antiphon.testing.http_server": ("serving",),
    "antiphon.testing.transcript": ("Recorded",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'antiphon.testing' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
