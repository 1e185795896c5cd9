"""Debian's packages -> a Kerberos key distribution centre of our own on loopback, principals and their key tables."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from connector.demo.servers.ports import LOOPBACK, free_ports, is_answering
from connector.demo.servers.process import ChildProcess
from connector.demo.servers.server import Server
from tests.interop.binlog_server import run_checked
from tests.interop.debian import ensure_library, find_program

REALM = "ICEBRIDGE.TEST"
_PACKAGES = ("krb5-kdc", "krb5-admin-server", "krb5-user")
_CLIENT = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
[realms]
  {realm} = {{
    kdc = {host}:{port}
  }}
"""
_SERVER = """\
[kdcdefaults]
  kdc_listen = {host}:{port}
  kdc_tcp_listen = {host}:{port}
[realms]
  {realm} = {{
    database_name = {home}/principals
    key_stash_file = {home}/stash
    max_life = 1h
    max_renewable_life = 2h
  }}
"""


class Kdc(Server):
    """MIT's server with a database of its own; it answers after half a second. Output goes to `kdc.log`."""

    name = "kdc"

    @property
    def config(self) -> Path:
        """What clients read: `KRB5_CONFIG`, or Java's `java.security.krb5.conf`."""
        return self.home / "krb5.conf"

    @property
    def environment(self) -> Mapping[str, str]:
        """What clients in C have in their environment: the realm, and a ticket cache of their own."""
        return {"KRB5_CONFIG": str(self.config), "KRB5CCNAME": f"FILE:{self.home / 'tickets'}"}

    def add_principal(self, principal: str) -> Path:
        """Add a principal with a random key; return its key table."""
        file = self.home / f"{principal.replace('/', '-')}.keytab"
        for query in (f"addprinc -randkey {principal}", f"ktadd -k {file} {principal}"):
            self._run("kadmin.local", "-r", REALM, "-q", query)
        return file

    def _launch(self) -> ChildProcess:
        self._port = free_ports(1)[0]
        values = {"realm": REALM, "host": LOOPBACK, "port": self._port, "home": self.home}
        self.config.write_text(_CLIENT.format(**values), encoding="utf-8")
        (self.home / "kdc.conf").write_text(_SERVER.format(**values), encoding="utf-8")
        # libsasl2 loads the mechanism, librdkafka calls kinit.
        ensure_library("*/sasl2/libgssapiv2.so", "libsasl2-modules-gssapi-mit")
        if not (self.home / "principals").exists():
            self._run("kdb5_util", "create", "-r", REALM, "-s", "-P", secrets.token_hex(16))
        return ChildProcess((find_program("krb5kdc", *_PACKAGES), "-n", "-r", REALM), self.log, self._own_environment())

    def _is_answering(self) -> bool:
        return is_answering(self.port)

    def _own_environment(self) -> dict[str, str]:
        return {**self.environment, "KRB5_KDC_PROFILE": str(self.home / "kdc.conf")}

    def _run(self, program: str, *arguments: str) -> None:
        run_checked((find_program(program, *_PACKAGES), *arguments), environ={**os.environ, **self._own_environment()})
