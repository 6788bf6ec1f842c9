"""What authorization must do, and the tests that show it: every criterion has one, and every name is that of a test."""

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FLOW, URLS, CHALLENGE = "oauth/test_flow.py", "oauth/test_urls.py", "oauth/test_challenge.py"
SIGNING_IN, HOSTILE = "client/test_signing_in.py", "client/test_hostile_issuers.py"
VISITS, KEEPS, LOGIN = "client/test_visits.py", "client/test_keeps.py", "cli/test_login.py"
PROTECTION, SESSIONS = "transports/test_authorization.py", "legacy/server/test_protection.py"
PEERS, PROVIDER = "peers/test_protected_servers.py", "peers/test_authorization.py"
IDENTITY, SUITES = "testing/test_identity.py", "testing/suite/test_auth.py"

CLIENT = {
    "C1 the official suite": [("peers/test_conformance_script.py", "test_every_scenario_of_authorization_is_judged")],
    "C2 the flow is pure": [("test_architecture.py", "test_the_core_is_pure"), (FLOW, "test_a_person_signs_in")],
    "C3 a slash, and no other difference": [
        (URLS, "test_issuers_are_the_same_letter_by_letter_but_for_the_slash_of_a_bare_origin"),
        (FLOW, "test_the_resource_is_sent_as_its_metadata_writes_it"),
    ],
    "C4 no PKCE, no login": [(FLOW, "test_an_issuer_without_pkce_is_refused_and_the_option_named")],
    "C5 which client, and whose secret": [
        (FLOW, "test_a_registered_client_comes_before_a_document_and_a_document_before_registering"),
        (FLOW, "test_without_any_client_the_error_says_what_to_pass"),
        (SIGNING_IN, "test_auth_is_for_https_or_this_machine"),
    ],
    "C6 the port of a registration": [
        (FLOW, "test_a_registration_is_used_again_on_its_port"),
        (FLOW, "test_a_registration_of_another_port_is_made_again"),
        (VISITS, "test_the_port_of_an_earlier_registration_is_taken_again_if_it_is_free"),
    ],
    "C7 another authorization server": [(HOSTILE, "test_nothing_of_one_issuer_is_sent_to_the_next")],
    "C8 a scope in the second round": [
        (
            SIGNING_IN,
            "test_a_scope_that_is_missing_in_the_second_round_costs_one_login_and_the_conversation_goes_on",
        ),
    ],
    "C9 a token that ends between two rounds": [
        (SIGNING_IN, "test_a_token_that_ends_between_two_rounds_is_renewed_and_the_conversation_goes_on"),
        (PROVIDER, "test_a_token_that_expires_between_the_rounds_is_refreshed_and_the_tool_runs_once"),
    ],
    "C10 a restart": [(SIGNING_IN, "test_a_client_that_starts_again_refreshes_and_opens_no_browser")],
    "C11 ten processes": [
        (SIGNING_IN, "test_processes_on_one_keep_use_each_refresh_token_once"),
        (SIGNING_IN, "test_a_process_that_is_killed_in_its_refresh_costs_the_others_no_call"),
    ],
    "C12 parallel calls": [
        (SIGNING_IN, "test_parallel_calls_sign_in_once_and_do_not_wait_for_each_other"),
        (SIGNING_IN, "test_a_cancelled_caller_leaves_the_login_to_the_others"),
        (SIGNING_IN, "test_a_call_beside_a_sign_in_ends_as_if_there_were_none"),
    ],
    "C13 keeps": [
        (KEEPS, "test_files_are_for_their_owner_alone_whatever_the_umask"),
        (KEEPS, "test_a_keep_does_what_keeps_do"),
    ],
    "C14 a login is data": [
        (SIGNING_IN, "test_a_login_is_data_that_another_client_finishes"),
        (FLOW, "test_a_login_is_finished_from_its_json"),
        (FLOW, "test_a_code_is_redeemed_only_if_the_answer_is_that_of_this_login"),
    ],
    "C15 the terminal": [
        (PROVIDER, "test_the_terminal_signs_in_at_a_real_server"),
        (LOGIN, "test_a_browser_comes_back_by_itself"),
        (LOGIN, "test_a_call_asks_before_it_signs_in"),
        (LOGIN, "test_a_waiting_call_is_resumed_with_the_kept_login"),
        (SUITES, "test_a_kept_login_is_used"),
        (SUITES, "test_without_a_kept_login_the_command_to_run_is_told"),
        (SIGNING_IN, "test_the_time_at_the_browser_is_the_persons"),
    ],
    "C16 bound tokens, enterprises, programs": [
        (PROVIDER, "test_tokens_are_bound_to_a_key"),
        (PROVIDER, "test_a_bound_token_is_refreshed_with_a_proof_of_its_key"),
        (PROVIDER, "test_a_program_signs_in_by_its_secret"),
        (PROVIDER, "test_a_program_signs_in_by_its_key"),
        (PEERS, "test_an_enterprise_vouches_for_its_user_at_the_official_authorization_server"),
    ],
    "C17 a client that is told what to pass": [
        (SIGNING_IN, "test_a_client_without_auth_is_told_what_to_pass"),
        (SIGNING_IN, "test_auth_is_for_https_or_this_machine"),
    ],
}
SERVER = {
    "S1 few lines, all clients": [
        (HOSTILE, "test_protection_takes_six_lines_of_a_user"),
        (PEERS, "test_a_client_steps_up_when_a_tool_needs_it"),
        (PEERS, "test_fastmcps_client_refreshes_its_token"),
        (PROVIDER, "test_the_official_python_client_signs_in_to_our_server"),
        (PROVIDER, "test_the_official_typescript_client_signs_in_refreshes_and_steps_up"),
    ],
    "S2 metadata wherever it is served": [
        (PEERS, "test_the_metadata_is_found_wherever_the_server_is"),
        (PEERS, "test_behind_a_tls_proxy_the_configured_url_is_named_whatever_the_host"),
        (PROTECTION, "test_metadata_is_that_of_the_configured_url_whatever_the_request_says"),
    ],
    "S3 challenges": [
        (PROTECTION, "test_a_request_without_a_token_is_told_where_to_get_one"),
        (PROTECTION, "test_what_needs_a_scope_says_all_that_it_needs"),
        (CHALLENGE, "test_what_is_written_is_read_again"),
    ],
    "S4 bad tokens": [(PROTECTION, "test_every_bad_token_gets_the_same_answer_and_is_not_logged")],
    "S5 scopes": [
        (PROTECTION, "test_what_needs_a_scope_says_all_that_it_needs"),
        (PROTECTION, "test_a_scope_may_include_others"),
        (SESSIONS, "test_a_batch_asks_for_all_that_its_messages_need_at_once"),
    ],
    "S6 who calls": [
        (IDENTITY, "test_a_handler_sees_who_calls"),
        (SIGNING_IN, "test_a_client_signs_in_when_the_server_asks_and_steps_up_when_a_tool_needs_it"),
    ],
    "S7 keys": [
        (PROTECTION, "test_keys_are_found_cached_and_followed_when_they_change"),
        (PROTECTION, "test_a_flood_of_unknown_keys_asks_the_issuer_once"),
        (PEERS, "test_keys_that_change_and_claims_that_are_wrong"),
    ],
    "S8 other users, the same user": [
        (SESSIONS, "test_another_users_session_and_streams_do_not_exist_at_any_instance"),
        (PROTECTION, "test_a_conversation_goes_on_with_a_new_token_of_the_same_user_only"),
    ],
    "S9 before the body, before the state": [
        (PROTECTION, "test_a_bad_token_is_refused_before_the_body_is_read"),
        (PROTECTION, "test_a_missing_scope_is_told_before_a_single_use_token_is_spent"),
    ],
    "S10 streams end with their token": [
        (PROTECTION, "test_a_subscription_ends_with_its_token"),
        (SIGNING_IN, "test_a_subscription_ends_with_its_token_and_comes_back_with_a_new_one"),
    ],
    "S11 the command line": [
        ("cli/test_serve_protected.py", "test_a_protected_server_says_what_it_protects_and_is_served"),
        ("cli/test_serve_protected.py", "test_a_protected_server_on_standard_streams_says_once_that_it_is_not"),
        ("cli/test_serve_protected.py", "test_a_gateway_says_who_calls_in_a_header"),
    ],
    "S12 lists": [(PROTECTION, "test_the_lists_of_a_server_that_knows_who_asks_are_private")],
    "S13 an issuer for tests": [
        (IDENTITY, "test_a_handler_sees_who_calls"),
        ("docs/test_docs.py", "test_a_page_does_what_it_says"),
    ],
}
ATTACKS = {
    "X1 mix-up": [
        (FLOW, "test_a_code_is_redeemed_only_if_the_answer_is_that_of_this_login"),
        (FLOW, "test_an_error_of_another_issuer_is_not_shown"),
        (FLOW, "test_metadata_of_another_issuer_is_not_used"),
    ],
    "X2 metadata of another resource": [
        (FLOW, "test_metadata_of_another_resource_ends_the_sign_in"),
        (URLS, "test_another_resource_covers_nothing"),
    ],
    "X3 private networks": [
        (HOSTILE, "test_a_public_server_cannot_send_a_client_into_a_private_network"),
        (HOSTILE, "test_a_private_address_is_refused_behind_a_proxy_as_well"),
        (HOSTILE, "test_a_client_asks_https_alone"),
        (HOSTILE, "test_a_redirect_is_not_followed"),
        (URLS, "test_an_address_is_on_one_network"),
    ],
    "X4 secrets for another server": [
        (FLOW, "test_a_secret_goes_to_no_other_issuer_than_its_own"),
        (FLOW, "test_a_refresh_gives_nothing_of_one_issuer_to_another"),
        (SIGNING_IN, "test_a_kept_token_of_another_issuer_is_not_sent"),
    ],
    "X5 PKCE": [(FLOW, "test_an_issuer_without_pkce_is_refused_and_the_option_named")],
    "X6 pages that are none": [
        (URLS, "test_a_url_that_must_not_be_asked_or_opened_is_refused"),
        (FLOW, "test_an_endpoint_that_must_not_be_asked_is_not"),
    ],
    "X7 the listener": [
        (VISITS, "test_what_is_not_the_persons_return_is_ignored_and_the_login_goes_on"),
        (VISITS, "test_a_page_that_floods_the_listener_does_not_keep_the_person_out"),
        (VISITS, "test_the_first_return_counts"),
        (VISITS, "test_a_browser_comes_back_to_this_machine_only"),
    ],
    "X8 another's code": [(VISITS, "test_what_is_not_the_persons_return_is_ignored_and_the_login_goes_on")],
    "X9 bad tokens": [
        (PROTECTION, "test_every_bad_token_gets_the_same_answer_and_is_not_logged"),
        (PROTECTION, "test_two_authorizations_are_refused"),
        (PROTECTION, "test_a_token_is_looked_for_in_the_header_alone"),
        (PEERS, "test_keys_that_change_and_claims_that_are_wrong"),
    ],
    "X10 a flood of keys": [(PROTECTION, "test_a_flood_of_unknown_keys_asks_the_issuer_once")],
    "X11 what is another's": [
        (SESSIONS, "test_another_users_session_and_streams_do_not_exist_at_any_instance"),
        (PROTECTION, "test_a_conversation_goes_on_with_a_new_token_of_the_same_user_only"),
        (IDENTITY, "test_a_conversation_of_another_user_looks_nonexistent"),
    ],
    "X12 the same user": [
        (PROTECTION, "test_the_same_user_is_the_same_principal_whatever_the_token"),
        (SESSIONS, "test_another_users_session_and_streams_do_not_exist_at_any_instance"),
    ],
    "X13 scopes": [
        (PROTECTION, "test_a_missing_scope_is_told_before_a_single_use_token_is_spent"),
        (SIGNING_IN, "test_a_server_that_never_has_enough_ends_in_an_error"),
        (CHALLENGE, "test_a_header_is_read_by_its_grammar"),
    ],
    "X14 secrets that are told": [
        (HOSTILE, "test_no_secret_is_in_logs_errors_traces_or_pending_calls"),
        (FLOW, "test_nothing_shows_a_secret"),
        (VISITS, "test_a_browser_comes_back_with_the_code"),
        (LOGIN, "test_a_login_is_kept_found_by_other_commands_and_forgotten"),
        (SUITES, "test_a_secret_that_is_wrong_is_told_and_not_shown"),
    ],
    "X15 keeps": [
        (KEEPS, "test_a_file_that_others_can_read_is_refused"),
        (KEEPS, "test_a_link_is_not_followed"),
        (KEEPS, "test_half_a_file_is_nothing"),
    ],
    "X16 the token is not passed on": [(HOSTILE, "test_a_handler_does_not_find_the_token")],
    "X17 proofs": [
        (PROTECTION, "test_a_bound_token_counts_with_a_fresh_proof_of_its_key"),
        (PROTECTION, "test_a_server_without_proofs_takes_no_bound_token"),
        (FLOW, "test_a_token_of_another_kind_than_asked_for_is_refused"),
    ],
    "X18 slow, endless, deep, large": [
        (HOSTILE, "test_a_document_that_is_no_document_ends_the_sign_in"),
        (HOSTILE, "test_an_endless_answer_and_a_slow_one_are_cut_off"),
        (HOSTILE, "test_ten_thousand_scopes_are_carried_or_refused_and_nothing_hangs"),
    ],
    "X19 shared caches": [(PROTECTION, "test_the_lists_of_a_server_that_knows_who_asks_are_private")],
    "X20 Host": [(PROTECTION, "test_metadata_is_that_of_the_configured_url_whatever_the_request_says")],
    "X21 cancellation": [(SIGNING_IN, "test_a_cancelled_caller_leaves_the_login_to_the_others")],
}
COST = {
    # Rates and processor time are measured by benchmarks/auth.py.
    "P1 speed": [(PROTECTION, "test_a_token_that_is_known_costs_at_most_one_frame_more")],
    "P2 imports": [
        (HOSTILE, "test_what_is_not_needed_is_not_loaded"),
        ("test_architecture.py", "test_importing_antiphon_loads_nothing_heavy"),
    ],
}
CRITERIA = {**CLIENT, **SERVER, **ATTACKS, **COST}


@cache
def names_in(file):
    tree = ast.parse((TESTS / file).read_text())
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name for node in found if node.name.startswith("test_")}


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_criterion_has_tests_that_exist(criterion):
    assert CRITERIA[criterion]
    assert not [(file, name) for file, name in CRITERIA[criterion] if name not in names_in(file)]


def test_every_criterion_is_there():
    numbers = {name.split()[0] for name in CRITERIA}
    wanted = {"C": 17, "S": 13, "X": 21, "P": 2}
    assert numbers == {f"{kind}{number}" for kind, last in wanted.items() for number in range(1, last + 1)}


def test_every_test_of_a_sign_in_among_hostile_servers_is_named():
    named = {name for tests in CRITERIA.values() for file, name in tests if file == HOSTILE}
    assert named == names_in(HOSTILE)
