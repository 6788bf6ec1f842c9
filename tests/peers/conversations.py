"""What an official client's user says to each tool of examples/asking, and what must come of it.

On the way to a client a conversation is an object with `name`, `site`, `tool`, `arguments` and `answers`: what is
answered to each question, by the question's text, as it travels.
"""

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

STYLES = {"await": "", "return": "_returning", "declare": "_declaring"}
DECLINE: Json = {"action": "decline"}
CANCEL: Json = {"action": "cancel"}
CONSENT: Json = {"action": "accept"}
SUMMARY: Json = {"role": "assistant", "content": {"type": "text", "text": "Two files changed."}, "model": "parrot"}
ROOTS: Json = {"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]}
DECLINED = "The user declined the request."
CANCELLED = "The user cancelled the request."


def accept(**content: Any) -> Json:
    return {"action": "accept", "content": content}


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    name: str
    site: str
    tool: str
    text: str
    """What the result says in the end."""
    arguments: Json = field(default_factory=dict)
    answers: Json = field(default_factory=dict)
    asked: tuple[tuple[str, str], ...] = ()
    """The questions that reach the user, each with its kind, in alphabetical order."""
    is_error: bool = False

    @property
    def script(self) -> Json:
        about: Json = {"name": self.name, "site": self.site, "tool": self.tool}
        return {**about, "arguments": self.arguments, "answers": self.answers}

    @property
    def outcome(self) -> Json:
        asked = [list(question) for question in self.asked]
        return {"revision": "2026-07-28", "text": self.text, "is_error": self.is_error, "asked": asked}

    @property
    def older_outcome(self) -> Json:
        """The same with a client of 2025, except that its call never meets another instance than it began on."""
        older = {**self.outcome, "revision": "2025-11-25"}
        if self.site != "upgraded":
            return older
        asked = [["form", "Your GitHub login?"], ["form", "Your Google login?"]]
        return {**older, "text": "Connected ada and g", "is_error": False, "asked": asked}


def refused(style: str, key: str, action: str = "declined") -> str:
    """How a refusal ends a call that needs an answer; the return style names the question that it asked."""
    if style == "return":
        return f"The user {action} the question {key!r}, so the call ends here."
    return DECLINED if action == "declined" else CANCELLED


def conversations() -> list[Conversation]:
    found = [*_region_low_level(), *_load_shedding()]
    for style in STYLES:
        for example in (_deploy, _tag_release, _provision, _wipe_cache, _four_kinds, _region, _delete_record):
            found += example(style)
        found += [*_work_item(style), *_rolling_upgrade(style)]
    return sorted(found, key=lambda conversation: (conversation.site, conversation.name))


def _deploy(style: str) -> list[Conversation]:
    field_ = "value" if style == "declare" else "confirm"
    no = "Not deployed"
    cases = {
        "ticked": (accept(**{field_: True}), "Deployed to prod", False),
        "unticked": (accept(**{field_: False}), no, False),
        "declined": (DECLINE, no if style == "await" else refused(style, "confirm"), style != "await"),
        "cancelled": (CANCEL, no if style == "await" else refused(style, "confirm", "cancelled"), style != "await"),
    }
    return _single(style, "deploy", "deploy", {"env": "prod"}, "Deploy to prod?", cases)


def _tag_release(style: str) -> list[Conversation]:
    field_ = "value" if style == "declare" else "confirm"
    cases = {
        "ticked": (accept(**{field_: True}), "Tagged v1", False),
        "unticked": (accept(**{field_: False}), "Left untagged", False),
        "declined": (DECLINE, "Tagging cancelled by the operator", True),
        "cancelled": (CANCEL, "Tagging cancelled by the operator", True),
    }
    return _single(style, "tag_release", "tag_release", {"tag": "v1"}, "Tag v1?", cases)


def _delete_record(style: str) -> list[Conversation]:
    cases = {
        "unticked": (accept(confirmed=False), "Deletion cancelled", False),
        "declined": (DECLINE, "Deletion cancelled", False),
        "cancelled": (CANCEL, "Deletion cancelled", False),
        "ticked": (accept(confirmed=True), "Record deleted", False),
    }
    arguments = {"record_id": "u1", "table_name": "users"}
    return _single(style, "delete_record", "delete_record", arguments, 'Delete record "u1" from "users"?', cases)


def _region(style: str) -> list[Conversation]:
    cases = {
        "answered": (accept(region="eu-west-1"), "Provisioned 'orders' in eu-west-1.", False),
        "declined": (DECLINE, refused(style, "region"), True),
    }
    question = "Which region should the database live in?"
    return _single(style, "region", "provision", {"name": "orders"}, question, cases)


def _region_low_level() -> list[Conversation]:
    question = "Which region should the database live in?"
    cases = {
        "answered": (accept(region="us-east-1"), "Provisioned 'orders' in us-east-1.", False),
        "declined": (DECLINE, refused("return", "region"), True),
    }
    return [
        Conversation(
            name=f"region_low_level {case}",
            site="region_low_level",
            tool="provision",
            arguments={"name": "orders"},
            answers={question: answer},
            asked=(("form", question),),
            text=text,
            is_error=is_error,
        )
        for case, (answer, text, is_error) in cases.items()
    ]


def _provision(style: str) -> list[Conversation]:
    name, region = "Database name?", "Which region?"
    asked = (("form", name), ("form", region))
    told = _telling("provision", f"provision{STYLES[style]}", style)
    given = {name: accept(value="orders"), region: accept(value="eu")}
    return [
        told("answered", answers=given, asked=asked, text="Provisioned orders in eu"),
        told("declined", answers={**given, region: DECLINE}, asked=asked, text=refused(style, "region"), is_error=True),
    ]


def _wipe_cache(style: str) -> list[Conversation]:
    sure, scope = "Really wipe the cache?", "Which scope?"
    field_ = "confirm" if style == "await" else "value"
    yes, no = accept(**{field_: True}), accept(**{field_: False})
    told = _telling("wipe_cache", f"wipe_cache{STYLES[style]}", style)
    once, twice = (("form", sure),), (("form", sure), ("form", scope))
    left = "Left alone" if style == "await" else refused(style, "confirm")
    return [
        told("answered", answers={sure: yes, scope: accept(value="all")}, asked=twice, text="Wiped all"),
        told("unticked", answers={sure: no}, asked=once, text="Left alone"),
        told("declined", answers={sure: DECLINE}, asked=once, text=left, is_error=style != "await"),
        told(
            "declined late",
            answers={sure: yes, scope: DECLINE},
            asked=twice,
            text=refused(style, "scope"),
            is_error=True,
        ),
    ]


def _four_kinds(style: str) -> list[Conversation]:
    field_ = "confirm" if style == "await" else "value"
    go, page, diff = "Continue?", "Sign in to continue", "Summarize the diff"
    told = _telling("four_kinds", f"review{STYLES[style]}", style)
    given = {go: accept(**{field_: True}), page: CONSENT, diff: SUMMARY, "roots": ROOTS}
    asked = (("form", go), ("roots", "roots"), ("sample", diff), ("url", page))
    end = "Two files changed. (2 roots)"
    return [
        told("answered", answers=given, asked=asked, text=f"Going on, signed in: {end}"),
        told("unopened", answers={**given, page: DECLINE}, asked=asked, text=f"Going on, not signed in: {end}"),
    ]


def _work_item(style: str) -> list[Conversation]:
    how = "Resolving Bug #4522 requires a resolution."
    which = "Since this is a duplicate, which work item is the original?"
    told = _telling("work_item", f"resolve{STYLES[style]}", style, item=4522)
    once, twice = (("form", how),), (("form", how), ("form", which))
    duplicate = accept(value="Duplicate")
    return [
        told("fixed", answers={how: accept(value="Fixed")}, asked=once, text="Bug #4522 resolved as Fixed."),
        told(
            "duplicate",
            answers={how: duplicate, which: accept(value=4301)},
            asked=twice,
            text="Bug #4522 resolved as Duplicate of Bug #4301.",
        ),
        told("declined", answers={how: DECLINE}, asked=once, text=refused(style, "resolution"), is_error=True),
        told(
            "cancelled late",
            answers={how: duplicate, which: CANCEL},
            asked=twice,
            text=refused(style, "duplicate_of", "cancelled"),
            is_error=True,
        ),
    ]


def _rolling_upgrade(style: str) -> list[Conversation]:
    """With no upgrade under way, and with one between the first leg and the second."""
    github, google, microsoft = (f"Your {site} login?" for site in ("GitHub", "Google", "Microsoft"))
    given = {github: accept(value="ada"), google: accept(value="g"), microsoft: accept(value="m")}
    settled = _telling("rolling_upgrade", f"connect{STYLES[style]}", style)
    upgraded = _telling("upgraded", f"connect{STYLES[style]}", style)
    two = (("form", github), ("form", microsoft))
    three = (("form", github), ("form", google), ("form", microsoft))
    no = refused(style, "microsoft_login")
    return [
        settled("answered", answers=given, asked=two, text="Connected ada and m"),
        settled("declined", answers={**given, microsoft: DECLINE}, asked=two, text=no, is_error=True),
        upgraded("answered", answers=given, asked=three, text="Connected ada and m"),
        upgraded("declined", answers={**given, microsoft: DECLINE}, asked=three, text=no, is_error=True),
    ]


def _load_shedding() -> list[Conversation]:
    told = _telling("load_shedding", "sum_of_squares", "return", count=2500)
    return [told("shed", text=str(sum(number * number for number in range(2500))))]


def _telling(site: str, tool: str, style: str, /, **arguments: Any) -> Any:
    def told(case: str, **about: Any) -> Conversation:
        return Conversation(name=f"{site} {style} {case}", site=site, tool=tool, arguments=arguments, **about)

    return told


def _single(
    style: str, site: str, tool: str, arguments: Json, question: str, cases: dict[str, tuple[Json, str, bool]]
) -> list[Conversation]:
    """The ways in which an example with one question can go."""
    told = _telling(site, f"{tool}{STYLES[style]}", style, **arguments)
    return [
        told(case, answers={question: answer}, asked=(("form", question),), text=text, is_error=is_error)
        for case, (answer, text, is_error) in cases.items()
    ]
