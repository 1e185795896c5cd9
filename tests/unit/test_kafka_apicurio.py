"""Apicurio's own frames and registry: ids of eight bytes, ids in headers, schemas by global or content id."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import attrs
import pyarrow as pa
import pytest

from connector.errors import FatalError, RetriableError
from connector.kafka.registry.apicurio import ApicurioRegistry
from connector.settings import EventSettings
from connector.settings.converters.apicurio import ApicurioSettings
from connector.sink.convert.decoder import decode
from connector.sink.convert.header_ids import find_wanted_headers
from serde.wire_format import UnknownSchema
from tests.harness.http_server import serve_http
from tests.model import avro
from tests.unit import sink_plans

INNER = {"type": "record", "name": "Inner", "namespace": "t", "fields": [{"name": "x", "type": "int"}]}
ROW: dict[str, Any] = {
    "type": "record",
    "name": "Value",
    "namespace": "t",
    "fields": [{"name": "id", "type": "long"}, {"name": "inner", "type": ["null", "t.Inner"]}],
}
REFERENCE = [{"groupId": "g", "artifactId": "t Inner", "version": "1", "name": "t.Inner"}]
ID = 2**33 + 5
API = "/apis/registry/v2"
PAGES = {
    f"{API}/ids/globalIds/{ID}": json.dumps(ROW),
    f"{API}/ids/globalIds/{ID}/references": json.dumps(REFERENCE),
    f"{API}/groups/g/artifacts/t%20Inner/versions/1": json.dumps(INNER),
    f"{API}/groups/g/artifacts/t%20Inner/versions/1/references": "[]",
    f"{API}/system/info": "{}",
    f"{API}/ids/contentIds/7": json.dumps(INNER),
    f"{API}/ids/contentIds/8": json.dumps(ROW),
    f"{API}/ids/contentIds/8/references": json.dumps([{**REFERENCE[0], "groupId": None, "artifactId": "i"}]),
    f"{API}/groups/default/artifacts/i/versions/1": json.dumps(INNER),
}
STATUS = {f"{API}/ids/globalIds/1": 503, f"{API}/ids/globalIds/2": 401, f"{API}/ids/globalIds/3": 403}
REFUSALS = {
    f"{API}/ids/globalIds/1": {"error_code": 1503, "name": "no name: s3cret", "message": "s3cret"},
    f"{API}/ids/globalIds/3": {"error_code": 403, "name": "ForbiddenException", "message": "s3cret may not"},
}
CUT = f"{API}/ids/globalIds/4"
"""Is answered with less than was promised."""


class _Pages(BaseHTTPRequestHandler):
    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        """Answer with the page, or its status."""
        self.asked.append(self.path)
        text = "{" if self.path == CUT else PAGES.get(self.path)
        self.send_response(STATUS.get(self.path, 404) if text is None else 200)
        if self.path == CUT:
            self.send_header("Content-Length", "10")
        self.end_headers()
        self.wfile.write((text or json.dumps(REFUSALS.get(self.path))).encode())


@pytest.fixture
def registry() -> Iterator[str]:
    """The URL of a registry that has the pages."""
    _Pages.asked.clear()
    with serve_http(_Pages) as url:
        yield f"{url}{API}"


def settings(url: str, **more: Any) -> ApicurioSettings:
    return ApicurioSettings(**{"url": url, "use_id": "globalId", "id_bytes": 8, "header": None, **more})


def test_schemas_come_with_their_references_and_once(registry: str) -> None:
    """What a schema refers to stands before it; an id is asked for once, a missing one not again at once."""
    one = ApicurioRegistry(settings(registry))
    assert [json.loads(text)["name"] for text in one.fetch_schema(ID, "AVRO")] == ["Inner", "Value"]
    _Pages.asked.clear()
    one.fetch_schema(ID, "AVRO")
    for _ in range(2):
        with pytest.raises(UnknownSchema):
            one.fetch_schema(404, "AVRO")
    missing = f"{API}/ids/globalIds/404"
    assert _Pages.asked == [missing, f"{API}/system/info", missing]
    assert json.loads(*ApicurioRegistry(settings(registry, use_id="contentId")).fetch_schema(7, "AVRO")) == INNER


def test_what_stands_before_a_registry_tells_nothing_of_its_schemas(registry: str) -> None:
    """Below a URL that has no registry, as of a proxy while its registry starts, no schema is missing."""
    for elsewhere in (f"{registry}/elsewhere", registry.replace("v2", "v7")):
        with pytest.raises(RetriableError, match="nothing is there; check its URL"):
            ApicurioRegistry(settings(elsewhere)).fetch_schema(404, "AVRO")


def test_a_reference_without_a_group_is_of_the_default_one(registry: str) -> None:
    """Schemas that were registered in no group refer to one another by a group that is null."""
    texts = ApicurioRegistry(settings(registry, use_id="contentId")).fetch_schema(8, "AVRO")
    assert [json.loads(text)["name"] for text in texts] == ["Inner", "Value"]


def test_a_registry_that_is_away_or_closed_is_told_apart(registry: str) -> None:
    """Busy and away are tried again, refusals are not; no password is shown."""
    one = ApicurioRegistry(settings(registry, user="u", password="s3cret"))
    with pytest.raises(RetriableError):
        one.fetch_schema(1, "AVRO")
    with pytest.raises(FatalError) as refused:
        one.fetch_schema(2, "AVRO")
    assert "s3cret" not in str(refused.value) + repr(settings(registry, password="s3cret"))
    assert str(refused.value).endswith("status 401; check its apicurio.auth settings, and this user's rights")
    with pytest.raises(RetriableError, match=r"IncompleteRead"):
        one.fetch_schema(4, "AVRO")
    with pytest.raises(RetriableError):
        ApicurioRegistry(settings("http://127.0.0.1:9/apis/registry/v2")).fetch_schema(1, "AVRO")


class _Provider(BaseHTTPRequestHandler):
    asked: list[str] = []  # noqa: RUF012

    def do_POST(self) -> None:
        """Give a token for the right client."""
        self.asked.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        is_known = self.headers["Authorization"] == "Basic " + base64.b64encode(b"me:s3cret").decode()
        self.send_response(200 if is_known else 401)
        self.end_headers()
        self.wfile.write(
            b'{"access_token": "t0ken", "expires_in": 300}' if is_known else b'{"error": "invalid_client"}'
        )


class _Guarded(_Pages):
    taken = "Bearer t0ken"

    def do_GET(self) -> None:
        """Let in who has the token."""
        if self.headers["Authorization"] == self.taken:
            super().do_GET()
        else:
            self.send_response(401)
            self.end_headers()


def test_a_token_of_openid_connect_lets_in() -> None:
    """It is asked for once, with the client's name and secret; a wrong secret is told, and not shown."""
    with serve_http(_Provider) as provider, serve_http(_Guarded) as url:
        login = {"token_endpoint": f"{provider}/token", "client_id": "me", "client_secret": "s3cret", "scope": "sr"}
        one = ApicurioRegistry(settings(url + API, **login))
        assert [json.loads(text)["name"] for text in one.fetch_schema(ID, "AVRO")] == ["Inner", "Value"]
        assert _Provider.asked == ["grant_type=client_credentials&scope=sr"]
        with pytest.raises(FatalError, match="refuses the client me: 401") as refused:
            ApicurioRegistry(settings(url + API, **login | {"client_secret": "wr0ng"})).fetch_schema(ID, "AVRO")
        assert "wr0ng" not in str(refused.value) + repr(settings(url, **login | {"client_secret": "wr0ng"}))


class _Renewed(BaseHTTPRequestHandler):
    given = 0

    def do_POST(self) -> None:
        """Give another token each time."""
        _Renewed.given += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"access_token": f"t{self.given}", "expires_in": 300}).encode())


class _Newest(_Guarded):
    taken = "Bearer t2"


def test_a_token_that_was_revoked_is_asked_for_again() -> None:
    """Once: a client that is not let in with a new one either has no right to be."""
    with serve_http(_Renewed) as provider, serve_http(_Newest) as url:
        login = {"token_endpoint": f"{provider}/renewed", "client_id": "me", "client_secret": "s3cret"}
        one = ApicurioRegistry(settings(url + API, **login))
        assert [json.loads(text)["name"] for text in one.fetch_schema(ID, "AVRO")] == ["Inner", "Value"]
        _Newest.taken = "none"
        with pytest.raises(FatalError, match="status 401"):
            one.ping()
        assert _Renewed.given == 3


def test_a_refusal_is_told_by_its_name_and_code(registry: str) -> None:
    """What the registry calls the error is told, as far as it is a name; its texts, which may quote, are not."""
    one = ApicurioRegistry(settings(registry))
    said = r"status 403 \(ForbiddenException\); check its apicurio\.auth settings"
    with pytest.raises(FatalError, match=said) as told:
        one.fetch_schema(3, "AVRO")
    with pytest.raises(RetriableError, match=r"status 503 \(error 1503\)$") as busy:
        one.fetch_schema(1, "AVRO")
    assert "s3cret" not in str(told.value) + str(busy.value)


def _plan(made: ApicurioSettings) -> Any:
    table = sink_plans.append(0, {"id": pa.int64(), "inner": pa.struct([("x", pa.int32())])})
    return sink_plans.plan(table, events=EventSettings("string", "avro", (), "__", value_registry=made))


_WHOLE = {**ROW, "fields": [ROW["fields"][0], {"name": "inner", "type": ["null", INNER]}]}
DATUM = avro.written(_WHOLE, {"id": 5, "inner": {"x": 6}})


def test_frames_of_eight_bytes_are_read(registry: str) -> None:
    """A frame is a zero byte, eight bytes of id and the datum; another frame is a dead letter that says so."""
    good, short = b"\0" + ID.to_bytes(8, "big") + DATUM, b"\0\0\0\0\x05"
    outcome = decode(sink_plans.run(good, short, b"{}"), _plan(settings(registry)))
    assert sink_plans.rows(outcome) == [{"id": 5, "inner": {"x": 6}}]
    assert "nine bytes" in sink_plans.dead(outcome)[1] and 2 in sink_plans.dead(outcome)


def test_ids_may_be_in_headers(registry: str) -> None:
    """Then the value is the datum alone; a record without the header is a dead letter."""
    made = settings(registry, header="apicurio.value.globalId")
    plan = _plan(made)
    assert find_wanted_headers("t", plan.events) == ("apicurio.value.globalId",)
    ids = pa.array([ID.to_bytes(8, "big"), None], pa.binary())
    run = attrs.evolve(sink_plans.run(DATUM, DATUM), headers={"apicurio.value.globalId": ids})
    outcome = decode(run, plan)
    assert sink_plans.rows(outcome) == [{"id": 5, "inner": {"x": 6}}] and list(sink_plans.dead(outcome)) == [1]
