"""A sign-in, step by step, without a network: every rule of the flow is one call of ``send``."""

import json
from urllib.parse import parse_qsl, urlsplit

import pytest
from msgspec.structs import replace

from antiphon.errors import SignInFailed
from antiphon.oauth.account import Account, Login, Registration, Token
from antiphon.oauth.challenge import challenge_of
from antiphon.oauth.flow import finish, refresh, sign_in
from antiphon.oauth.steps import Assertion, Fetch, Fetched, Goal, Listen, NewKey, Note, Person, Program, Save, Visit

SERVER = "https://mcp.example.com/mcp"
AUTH = "https://auth.example.com"
HERE = "http://127.0.0.1:3000/callback"
ENTROPY = bytes(range(64))
RESOURCE = {"resource": SERVER, "authorization_servers": [AUTH], "scopes_supported": ["read"]}
ABOUT = {
    "issuer": AUTH,
    "authorization_endpoint": f"{AUTH}/authorize",
    "token_endpoint": f"{AUTH}/token",
    "registration_endpoint": f"{AUTH}/register",
    "code_challenge_methods_supported": ["S256"],
}
TOKEN = {"access_token": "t1", "token_type": "bearer", "expires_in": 60, "refresh_token": "r1"}
NOT_THERE = Fetched(404, b"", 0.0)


def ok(body, status=200):
    return Fetched(status, json.dumps(body).encode(), 1000.0)


class World:
    """Answers the steps of a flow, and remembers them."""

    def __init__(self, **answers):
        self.answers = {
            "https://mcp.example.com/.well-known/oauth-protected-resource/mcp": ok(RESOURCE),
            f"{AUTH}/.well-known/oauth-authorization-server": ok(ABOUT),
            f"{AUTH}/register": ok({"client_id": "c1"}, 201),
            f"{AUTH}/token": ok(TOKEN),
            **answers,
        }
        self.asked = []
        self.saved = []
        self.login = None
        self.back = {}

    def drive(self, flow):
        reply = None
        try:
            while True:
                reply = self.take(flow.send(reply))
        except StopIteration as end:
            return end.value

    def take(self, step):
        match step:
            case Fetch():
                self.asked.append(step)
                return self.answers.get(step.url, NOT_THERE)
            case Listen(preferred):
                return preferred or HERE
            case Save(issuer, registration):
                self.saved.append((issuer, registration))
                return None
            case Visit(login):
                self.login = login
                answer = {"code": "code1", "state": login.state, **self.back}
                return f"{login.redirect}?" + "&".join(f"{k}={v}" for k, v in answer.items() if v is not None)

    def forms(self, path):
        return [dict(parse_qsl(step.body.decode())) for step in self.asked if step.url.endswith(path)]


def person(**options):
    goal = {"server": SERVER, "grant": Person(**options.pop("grant", {}))}
    return Goal(**{**goal, **options})


def query(world):
    return dict(parse_qsl(urlsplit(world.login.url).query))


def signed_in(world, goal=None, challenge=None, account=None):
    return world.drive(sign_in(goal or person(), account or Account(), challenge_of(challenge), ENTROPY))


# --- the whole way ------------------------------------------------------------------------------------------------


def test_a_person_signs_in():
    world = World()
    account = signed_in(world)
    assert account.token == Token(access="t1", refresh="r1", expires=1060.0, life=60.0, scopes=("read",))
    assert [step.url for step in world.asked] == [
        "https://mcp.example.com/.well-known/oauth-protected-resource/mcp",
        f"{AUTH}/.well-known/oauth-authorization-server",
        f"{AUTH}/register",
        f"{AUTH}/token",
    ]
    assert query(world)["resource"] == SERVER
    assert query(world)["code_challenge_method"] == "S256"
    form = world.forms("/token")[0]
    assert form["code"] == "code1"
    assert form["resource"] == SERVER
    assert form["redirect_uri"] == HERE
    assert form["client_id"] == "c1"
    assert world.saved == [(AUTH, Registration(client_id="c1", redirect=HERE))]


def test_a_registration_is_used_again_on_its_port():
    kept = Account(registrations={AUTH: Registration(client_id="kept", redirect="http://127.0.0.1:4000/callback")})
    world = World()
    signed_in(world, account=kept)
    assert world.forms("/register") == []
    assert query(world)["client_id"] == "kept"


def test_a_registration_of_another_port_is_made_again():
    kept = Account(registrations={AUTH: Registration(client_id="kept", redirect="http://127.0.0.1:4000/callback")})
    world = World()
    taken = world.take
    world.take = lambda step: HERE if isinstance(step, Listen) else taken(step)
    signed_in(world, account=kept)
    assert query(world)["client_id"] == "c1"


def test_a_registration_of_another_issuer_is_never_used():
    kept = Account(registrations={"https://old.example.com": Registration(client_id="old", redirect=HERE)})
    world = World()
    signed_in(world, account=kept)
    assert query(world)["client_id"] == "c1"


def test_a_registered_client_comes_before_a_document_and_a_document_before_registering():
    document = "https://me.example/client.json"
    about = ok({**ABOUT, "client_id_metadata_document_supported": True})
    world = World(**{f"{AUTH}/.well-known/oauth-authorization-server": about})
    signed_in(world, person(grant={"document": document}))
    assert query(world)["client_id"] == document
    assert world.forms("/register") == []
    signed_in(world, person(grant={"document": document}, client=Registration(client_id="mine"), issuer=AUTH))
    assert query(world)["client_id"] == "mine"
    world = World()
    signed_in(world, person(grant={"document": document}))
    assert query(world)["client_id"] == "c1"


def test_without_any_client_the_error_says_what_to_pass():
    about = {name: value for name, value in ABOUT.items() if name != "registration_endpoint"}
    world = World(**{f"{AUTH}/.well-known/oauth-authorization-server": ok(about)})
    with pytest.raises(SignInFailed, match=r"client_id=.*client_secret=.*issuer='https://auth.example.com'"):
        signed_in(world)


# --- what is believed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "resource", ["https://evil.example.com/mcp", "https://mcp.example.com/mcp2", "https://mcp.example.com/mc"]
)
def test_metadata_of_another_resource_ends_the_sign_in(resource):
    world = World(
        **{"https://mcp.example.com/.well-known/oauth-protected-resource/mcp": ok({**RESOURCE, "resource": resource})}
    )
    with pytest.raises(SignInFailed, match="another resource"):
        signed_in(world)
    assert len(world.asked) == 1


def test_the_resource_is_sent_as_its_metadata_writes_it():
    parent = {**RESOURCE, "resource": "https://mcp.example.com"}
    world = World(
        **{
            "https://mcp.example.com/.well-known/oauth-protected-resource/mcp": NOT_THERE,
            "https://mcp.example.com/.well-known/oauth-protected-resource": ok(parent),
        }
    )
    signed_in(world)
    assert query(world)["resource"] == world.forms("/token")[0]["resource"] == "https://mcp.example.com"


def test_only_the_challenge_is_asked_where_it_points_to_metadata():
    there = "https://mcp.example.com/there.json"
    world = World(**{there: NOT_THERE})
    with pytest.raises(SignInFailed, match="no metadata"):
        signed_in(world, challenge=f'Bearer resource_metadata="{there}"')
    assert [step.url for step in world.asked] == [there]


def test_metadata_of_another_issuer_is_not_used():
    world = World(**{f"{AUTH}/.well-known/oauth-authorization-server": ok({**ABOUT, "issuer": "https://evil.example"})})
    with pytest.raises(SignInFailed, match="another issuer"):
        signed_in(world)
    assert world.login is None


def test_a_server_that_fails_is_not_one_without_metadata():
    world = World(**{"https://mcp.example.com/.well-known/oauth-protected-resource/mcp": Fetched(503, b"", 0.0)})
    with pytest.raises(SignInFailed, match="503"):
        signed_in(world)
    assert len(world.asked) == 1


def test_an_issuer_without_pkce_is_refused_and_the_option_named():
    world = World(
        **{
            f"{AUTH}/.well-known/oauth-authorization-server": ok(
                {**ABOUT, "code_challenge_methods_supported": ["plain"]}
            )
        }
    )
    with pytest.raises(SignInFailed, match="pkce_unadvertised"):
        signed_in(world)
    signed_in(world, person(grant={"pkce_unadvertised": True}))
    assert query(world)["code_challenge_method"] == "S256"


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "registration_endpoint"])
@pytest.mark.parametrize("url", ["http://auth.example.com/x", "javascript:alert(1)", "https://a@auth.example.com/"])
def test_an_endpoint_that_must_not_be_asked_is_not(name, url):
    world = World(**{f"{AUTH}/.well-known/oauth-authorization-server": ok({**ABOUT, name: url})})
    with pytest.raises(SignInFailed):
        signed_in(world)
    assert world.login is None
    assert all(step.url != url for step in world.asked)


# --- credentials stay with their issuer ---------------------------------------------------------------------------


def test_a_secret_goes_to_no_other_issuer_than_its_own():
    goal = Goal(
        SERVER,
        Program(),
        "https://mine.example.com",
        Registration(client_id="svc", secret="hush"),
    )
    world = World()
    with pytest.raises(SignInFailed, match="nothing was sent"):
        signed_in(world, goal)
    assert all(b"hush" not in step.body and "Authorization" not in step.headers for step in world.asked)
    assert [step.verb for step in world.asked] == ["GET"]


def test_a_program_signs_in_with_its_secret():
    goal = Goal(SERVER, Program(), AUTH, Registration(client_id="a b", secret="h:ush"))
    world = World()
    assert signed_in(world, goal).token.access == "t1"
    assert world.asked[-1].headers["Authorization"] == "Basic YSUyMGI6aCUzQXVzaA=="
    about = ok({**ABOUT, "token_endpoint_auth_methods_supported": ["client_secret_post"]})
    world = World(**{f"{AUTH}/.well-known/oauth-authorization-server": about})
    signed_in(world, goal)
    assert world.forms("/token")[0]["client_secret"] == "h:ush"
    assert "Authorization" not in world.asked[-1].headers


# --- the answer ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("advertised", "back", "fine"),
    [
        (True, {"iss": AUTH}, True),
        (True, {}, False),
        (True, {"iss": f"{AUTH}/"}, False),
        (True, {"iss": "https://evil.example"}, False),
        (False, {}, True),
        (False, {"iss": AUTH}, True),
        (False, {"iss": "https://evil.example"}, False),
        (False, {"iss": AUTH, "state": "other"}, False),
        (False, {"state": None}, False),
        (False, {"code": None}, False),
    ],
)
def test_a_code_is_redeemed_only_if_the_answer_is_that_of_this_login(advertised, back, fine):
    about = {**ABOUT, "authorization_response_iss_parameter_supported": advertised}
    world = World(**{f"{AUTH}/.well-known/oauth-authorization-server": ok(about)})
    world.back = back
    if fine:
        signed_in(world)
    else:
        with pytest.raises(SignInFailed):
            signed_in(world)
    assert len(world.forms("/token")) == int(fine)


def test_an_error_of_another_issuer_is_not_shown():
    world = World()
    world.back = {"iss": "https://evil.example", "error": "access_denied", "error_description": "call-me"}
    with pytest.raises(SignInFailed) as refused:
        signed_in(world)
    assert "call-me" not in str(refused.value)
    assert refused.value.error is None


def test_a_refusal_of_the_person_is_told():
    world = World()
    world.back = {"code": None, "error": "access_denied"}
    with pytest.raises(SignInFailed, match="access_denied") as refused:
        signed_in(world)
    assert refused.value.error == "access_denied"


# --- scopes -------------------------------------------------------------------------------------------------------


def test_the_scopes_of_the_challenge_come_before_those_of_the_metadata():
    world = World()
    signed_in(world, challenge='Bearer scope="write"')
    assert query(world)["scope"] == "write"
    signed_in(world)
    assert query(world)["scope"] == "read"
    bare = {name: value for name, value in RESOURCE.items() if name != "scopes_supported"}
    world = World(**{"https://mcp.example.com/.well-known/oauth-protected-resource/mcp": ok(bare)})
    signed_in(world)
    assert "scope" not in query(world)


def test_stepping_up_keeps_what_was_granted():
    held = Account(issuer=AUTH, token=Token(access="t0", scopes=("read", "extra")))
    world = World()
    account = signed_in(world, challenge='Bearer error="insufficient_scope", scope="write"', account=held)
    assert query(world)["scope"] == "read extra write"
    assert account.token.scopes == ("read", "extra", "write")


def test_scopes_of_another_issuer_are_not_asked_for():
    held = Account(issuer="https://old.example.com", token=Token(access="t0", scopes=("old",)))
    world = World()
    signed_in(world, challenge='Bearer scope="write"', account=held)
    assert query(world)["scope"] == "write"


@pytest.mark.parametrize(
    ("listed", "offline", "asks"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_offline_access_is_asked_for_where_it_is_offered_and_of_use(listed, offline, asks):
    about = {**ABOUT, "scopes_supported": ["offline_access"] if listed else []}
    world = World(**{f"{AUTH}/.well-known/oauth-authorization-server": ok(about)})
    signed_in(world, person(grant={"offline": offline}))
    assert ("offline_access" in query(world)["scope"].split()) == asks


# --- tokens -------------------------------------------------------------------------------------------------------


def kept(**token):
    return Account(
        issuer=AUTH,
        resource=SERVER,
        token_endpoint=f"{AUTH}/token",
        registrations={AUTH: Registration(client_id="c1", redirect=HERE)},
        token=Token(**{"access": "t0", "refresh": "r0", "scopes": ("read",), **token}),
    )


def test_a_refresh_is_one_request_to_the_issuer_that_gave_the_token():
    world = World()
    account = world.drive(refresh(person(), kept()))
    assert account.token == Token(access="t1", refresh="r1", expires=1060.0, life=60.0, scopes=("read",))
    assert [step.url for step in world.asked] == [f"{AUTH}/token"]
    form = {"grant_type": "refresh_token", "refresh_token": "r0", "resource": SERVER, "client_id": "c1"}
    assert world.forms("/token") == [{**form, "scope": "read"}]


def test_a_refresh_token_stays_if_no_new_one_is_given():
    given = {name: value for name, value in TOKEN.items() if name != "refresh_token"}
    world = World(**{f"{AUTH}/token": ok(given)})
    assert world.drive(refresh(person(), kept())).token.refresh == "r0"


def test_a_refresh_is_noted_before_it_is_sent():
    flow = refresh(person(), kept())
    noted = flow.send(None)
    assert isinstance(noted, Note)
    assert (noted.account.renewal, noted.account.token.refresh) == ("begun", "r0")
    assert isinstance(flow.send(None), Fetch)
    assert World().drive(refresh(person(), noted.account)).renewal == "done"


@pytest.mark.parametrize(("before", "after"), [("done", "done"), ("begun", "lost"), ("lost", "done")])
def test_a_login_is_lost_where_a_refresh_was_begun_and_its_token_is_not_taken_again(before, after):
    world = World(**{f"{AUTH}/token": ok({"error": "invalid_grant"}, 400)})
    account = world.drive(refresh(person(), replace(kept(), renewal=before)))
    assert (account.renewal, account.token.refresh, account.token.access) == (after, None, "t0")
    assert signed_in(World(), account=account).renewal == "done"


def test_a_spent_refresh_token_is_no_error_and_a_failing_issuer_is_one():
    spent = World(**{f"{AUTH}/token": ok({"error": "invalid_grant"}, 400)}).drive(refresh(person(), kept()))
    assert spent.token.refresh is None
    with pytest.raises(SignInFailed, match="503"):
        World(**{f"{AUTH}/token": Fetched(503, b"", 0.0)}).drive(refresh(person(), kept()))
    assert World().drive(refresh(person(), kept(refresh=None))) is None


def test_a_refresh_gives_nothing_of_one_issuer_to_another():
    goal = person(client=Registration(client_id="c1", secret="of-b"), issuer="https://b.example")
    world = World()
    assert world.drive(refresh(goal, kept())) is None
    assert world.asked == []


def test_a_registration_that_is_not_known_any_more_is_forgotten():
    world = World(**{f"{AUTH}/token": ok({"error": "invalid_client"}, 401)})
    assert world.drive(refresh(person(), kept())).registrations == {}
    assert world.saved == [(AUTH, None)]


@pytest.mark.parametrize(("dpop", "type_"), [(True, "Bearer"), (False, "DPoP")])
def test_a_token_of_another_kind_than_asked_for_is_refused(dpop, type_):
    world = World(**{f"{AUTH}/token": ok({**TOKEN, "token_type": type_})})
    taken = world.take
    world.take = lambda step: {"kty": "EC"} if isinstance(step, NewKey) else taken(step)
    with pytest.raises(SignInFailed, match="another was asked"):
        signed_in(world, person(dpop=dpop))


def test_steps_show_no_secret():
    world = World()
    signed_in(world)
    assert "code1" not in repr(world.asked)
    assert "hush" not in repr(Assertion("hush"))


def test_a_login_is_finished_from_its_json():
    world = World()
    signed_in(world)
    login = Login.from_json(world.login.to_json())
    again = World()
    account = again.drive(finish(login, Account(), f"{HERE}?code=code2&state={login.state}"))
    assert account.token.access == "t1"
    assert again.forms("/token")[0]["code_verifier"] == login.verifier


def test_nothing_shows_a_secret():
    world = World()
    account = signed_in(world)
    shown = repr((account, world.login, account.token, kept()))
    for secret in ("t1", "r1", "r0", world.login.verifier, world.login.state):
        assert f"'{secret}'" not in shown
    for cls in (Login, Account):
        with pytest.raises(ValueError, match=f"no {cls.__name__}"):
            cls.from_json("[]")


@pytest.mark.parametrize(
    "given",
    [
        {"access_token": "a", "token_type": "mac"},
        {"access_token": "a\r\nX: y", "token_type": "Bearer"},
        {"access_token": "", "token_type": 5},
        {"token_type": "Bearer"},
        [],
        "x",
    ],
)
def test_a_token_that_cannot_be_used_is_refused(given):
    with pytest.raises(SignInFailed):
        signed_in(World(**{f"{AUTH}/token": ok(given)}))


@pytest.mark.parametrize(
    ("seconds", "expires"),
    [(60, 1060.0), ("60", 1060.0), (None, None), ("soon", None), (-1, None), (1e12, None), ("inf", None)],
)
def test_a_life_is_read_as_servers_write_it(seconds, expires):
    world = World(**{f"{AUTH}/token": ok({**TOKEN, "expires_in": seconds})})
    assert signed_in(world).token.expires == expires
