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
        InputRequiredResult,
        InputResponseFixture,
        build_retry_params,
        collect_responses,
        recognize_input_required,
        run_chain,
        run_chain_async,
    )
    from antiphon.testing.client import McpClient, PromptOutcome, ReadOutcome, SyncMcpClient, ToolOutcome
    from antiphon.testing.issuer import Issuer
    from antiphon.testing.replay_safety import Finding, SafetyReport, check_replay_safety
    from antiphon.testing.servers import NoFreshInstance, ServerUnderTest, serving
    from antiphon.testing.transcript import Recorded

__all__ = [
    "DEFAULT_MAX_ROUNDS",
    "AnswerMissing",
    "AnswerUnfit",
    "AnswerUnscripted",
    "AnswersUnused",
    "Asked",
    "Finding",
    "HalfShaped",
    "InputRequest",
    "InputRequiredResult",
    "InputResponseFixture",
    "Issuer",
    "McpClient",
    "NoFreshInstance",
    "PromptOutcome",
    "ReadOutcome",
    "Recorded",
    "SafetyReport",
    "Script",
    "ServerUnderTest",
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

# A name is loaded when it is first used, from the first of these modules that has it. Each imports those before it, so
# that nothing is loaded in vain: the functions over JSON need no client.
_HOMES = ("chain", "answers", "transcript", "servers", "replay_safety", "client", "issuer")


def __getattr__(name: str) -> object:
    for home in _HOMES if name in __all__ else ():
        module = import_module(f"{__name__}.{home}")
        if hasattr(module, name):
            value = globals()[name] = getattr(module, name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
