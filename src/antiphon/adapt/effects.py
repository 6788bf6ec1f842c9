"""What a handler seems to do above a question, and will do again on every round: found in its source.

Only awaited calls are looked at, and only those that are likely to act: their value is not used, or they are called
something like ``charge`` or ``send_mail``. A call of the context itself, or inside of ``step``, is none.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

_ASKS = frozenset({"elicit", "elicit_form", "elicit_url", "create_message", "list_roots"})
_ACTS = frozenset({
    "add", "book", "cancel", "charge", "commit", "create", "delete", "deploy", "drop", "execute", "insert", "order",
    "patch", "pay", "post", "provision", "publish", "put", "refund", "remove", "reserve", "save", "send", "store",
    "submit", "update", "upload", "write",
})  # fmt: skip
_HARMLESS = frozenset({"step", "sleep", "gather", "wait", "wait_for"})
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class Act(NamedTuple):
    """An awaited call above a question."""

    called: str
    line: int
    file: str = ""


def acts_before_asking(function: Callable[..., Any]) -> list[Act]:
    """Return the calls above a handler's questions that seem to act; empty if its source cannot be read."""
    try:
        function = inspect.unwrap(function)
        lines, start = inspect.getsourcelines(function)
        definition = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError):
        return []
    if not isinstance(definition, ast.AsyncFunctionDef):
        return []
    found = dict.fromkeys(_above(definition.body, []))
    return [Act(act.called, act.line + start - 1, inspect.getsourcefile(function) or "") for act in found]


def _above(body: Sequence[ast.stmt], seen: list[Act]) -> Iterator[Act]:
    """Yield what was seen at each question; afterwards, ``seen`` holds what a statement below comes after."""
    for statement in body:
        blocks = [block for _, block in ast.iter_fields(statement) if _is_block(block)]
        blocks += [handler.body for handler in getattr(statement, "handlers", [])]
        blocks += [case.body for case in getattr(statement, "cases", [])]
        inside = {id(node) for block in blocks for part in block for node in ast.walk(part)}
        for node in ast.walk(statement):
            if isinstance(node, ast.Await) and isinstance(node.value, ast.Call) and id(node) not in inside:
                path = ast.unparse(node.value.func)
                name = path.rpartition(".")[2]
                if name in _ASKS:
                    yield from seen
                elif _seems_to_act(name, path, used=not isinstance(statement, ast.Expr) or statement.value is not node):
                    seen.append(Act(path, node.lineno))
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for block in blocks:
            within = list(seen)
            yield from _above(block, within)
            if not isinstance(block[-1], _LEAVES):
                seen += within[len(seen) :]


def _is_block(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], ast.stmt)


def _seems_to_act(name: str, path: str, *, used: bool) -> bool:
    if name in _HARMLESS or path.partition(".")[0] in {"ctx", "context"}:
        return False
    return not used or re.split(r"[_\W]", name.lstrip("_"))[0] in _ACTS
