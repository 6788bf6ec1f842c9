"""The official TypeScript client against our server, over HTTP and over stdio."""

import re

import pytest

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def seen(converse, official_typescript, target):
    """What the client saw in one conversation."""
    return converse(official_typescript, target)


def test_the_client_settles_on_the_new_revision(seen):
    assert seen["revision"] == "2026-07-28"


def test_the_client_learns_who_the_server_is(seen):
    assert seen["server"] == ["peer", "1.2.3"]
    assert seen["instructions"] == "Ask it anything small."


def test_the_client_lists_the_tools(seen):
    assert seen["tools"] == ["add", "count", "deploy", "hear", "refuse"]
    assert seen["add"]["description"] == "Add two numbers."
    assert seen["add"]["required"] == ["a"]


def test_the_client_calls_a_tool_and_gets_its_structured_result(seen):
    assert seen["add"]["result"] == {"total": 5}


def test_a_wrong_argument_is_an_error_that_names_it(seen):
    is_error, text = seen["wrong"]
    assert is_error
    assert re.search(r"\ba\b.*\bint", text, re.DOTALL)


def test_a_tool_error_reaches_the_client_as_written(seen):
    assert seen["refused"] == [True, "No: because"]


def test_progress_arrives_while_the_call_is_under_way_and_another_call_is_served(seen):
    assert seen["counted"] == ["counted to 3", [[1, 3], [2, 3], [3, 3]]]


def test_a_question_is_answered_by_the_client_and_the_call_completes(seen):
    assert seen["asked"] == ["deployed to prod", "test left alone"]


def test_the_client_lists_resources_and_templates(seen):
    assert seen["resources"] == ["text://greeting"]
    assert seen["templates"] == ["note://{id}"]


def test_the_client_reads_a_static_and_a_templated_resource(seen):
    assert seen["contents"] == [
        ["text://greeting", "text/plain", "good day"],
        ["note://7", "text/markdown", "# Note 7"],
    ]


def test_what_does_not_exist_is_an_invalid_parameter(seen):
    assert seen["missing"] == -32602
    assert seen["unknown"] == -32602


def test_the_client_lists_and_gets_a_prompt(seen):
    assert seen["prompts"] == [["summarise", ["topic"]]]
    assert seen["prompt"] == [["user", "Summarise peace."]]
