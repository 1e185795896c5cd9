"""schemas by id -> Confluent's answers to `GET /schemas/ids/<id>` on loopback, for recordings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from tests.harness.http_server import serve_http


@contextmanager
def serve_schemas(schemas: Mapping[int, str]) -> Iterator[str]:
    """Answer while the block runs; gives the address."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = schemas.get(int(self.path.partition("?")[0].rsplit("/", 1)[-1]))
            body = json.dumps({"error_code": 40403} if known is None else {"schema": known}).encode()
            self.send_response(404 if known is None else 200)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serve_http(Answers) as url:
        yield url
