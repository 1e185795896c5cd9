"""one table's metadata -> an Iceberg REST catalog that serves it and counts the requests (Iceberg's open API, v1)."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class RestCatalog:
    """Serves `GET /v1/config` and one table between enter and exit; everything else is not found."""

    def __init__(self, namespace: str, table: str, metadata: Path) -> None:
        """Read the table's metadata; nothing is served yet."""
        body = {"metadata-location": str(metadata), "metadata": json.loads(metadata.read_text()), "config": {}}
        self._answers = {
            "/v1/config": json.dumps({"defaults": {}, "overrides": {}}).encode(),
            f"/v1/namespaces/{namespace}/tables/{table}": json.dumps(body).encode(),
        }
        self.requests = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, name="rest-catalog", daemon=True)

    def __enter__(self) -> RestCatalog:
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def spark_settings(self, name: str) -> dict[str, str]:
        """What makes this the Spark catalog `name`."""
        base = f"spark.sql.catalog.{name}"
        return {
            base: "org.apache.iceberg.spark.SparkCatalog",
            f"{base}.type": "rest",
            f"{base}.uri": f"http://127.0.0.1:{self._server.server_port}",
            f"{base}.cache-enabled": "false",
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        catalog = self

        class Handler(BaseHTTPRequestHandler):
            """One connection."""

            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                """Answer a request."""
                catalog.requests += 1
                body = catalog._answers.get(self.path.partition("?")[0])
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def do_HEAD(self) -> None:
                """Whether something is there."""
                catalog.requests += 1
                self.send_response(204 if self.path in catalog._answers else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """Say nothing."""

        return Handler
