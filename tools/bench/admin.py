"""The proxy's admin API as the benchmarks need it, and servers whose proxy has it.

The proxy gives ZF001 and ZF002 standard codes (`[compat.sqlstate]`), so that pgbench takes a
refusal for a serialization failure: it counts it and goes on with its next transaction.
"""

import http.client
import json
import os
import time
import uuid

import servers

# How long one answer may take; a drain's own deadline is shorter.
PATIENCE_S = 150
DEADLINE_MS = 120_000
KEY = "a-key-that-guards-nothing-but-a-benchmark"

ACQUIRE = "acquire-write-fence"
RELEASE = "release-write-fence"

SETTINGS = """[proxy]
state_dir = "{state}"
max_sessions = 20000
[admin]
http = "127.0.0.1:{admin}"
key_file = "{key}"
[[engine]]
name = "old"
url = "{url}"
[[listen]]
protocol = "{protocol}"
address = "127.0.0.1:{port}"
default_engine = "old"
{more}"""

RETRIED = """[compat.sqlstate]
ZF001 = "40001"
ZF002 = "40001"
"""


class Refused(SystemExit):
    """The proxy's answer wasn't 200. Ends the benchmark where nobody makes do without it."""

    def __init__(self, method, path, status, words):
        super().__init__(f"make bench: {method} {path}: {status}: {words}")
        self.path, self.status = path, status


class Admin:
    """The admin listener at a port; a connection for each question, as `ctl` has it."""

    def __init__(self, port):
        self.port = port

    def ask(self, method, path, body=None):
        """The answer's bytes; anything but 200 ends what asks with the proxy's words."""
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            link.request(method, path, body and json.dumps(body), headers)
            answer = link.getresponse()
            text = answer.read()
        finally:
            link.close()
        if answer.status != 200:
            words = text[-2000:].decode("utf-8", "replace")
            raise Refused(method, path, answer.status, words)
        return text

    def inspect(self, namespace):
        return json.loads(self.ask("GET", f"/v1/namespaces/{namespace}/fence"))["fence"]

    def command(self, namespace, route, operation):
        """A command ready to be sent: (path, body)."""
        fence = self.inspect(namespace)
        body = {
            "operation_id": operation,
            "command_id": str(uuid.uuid4()),
            "expected_state": fence["state"],
            "expected_revision": fence["revision"],
        }
        if route == ACQUIRE:
            named = fence["incarnation"]
            body["expected_namespace_identity"] = {
                "engine_id": named["engine_id"], "database_id": named["database_id"],
            }
            body["drain_policy"] = {"deadline_ms": DEADLINE_MS, "on_deadline": "fail"}
        return f"/v1/namespaces/{namespace}/fence/source/{route}", body

    def acquire(self, namespace):
        """Raises a write fence: (operation, seconds to the answer, when sent by time.time())."""
        operation = str(uuid.uuid4())
        path, body = self.command(namespace, ACQUIRE, operation)
        sent, begun = time.time(), time.perf_counter()
        answer = json.loads(self.ask("POST", path, body))
        seconds = time.perf_counter() - begun
        if answer["fence"]["state"] != "SOURCE_WRITE_FENCED":
            raise SystemExit(f"make bench: {namespace} isn't fenced: {json.dumps(answer)[:2000]}")
        return operation, seconds, sent

    def release(self, namespace, operation):
        """Takes it down again; seconds to the answer."""
        path, body = self.command(namespace, RELEASE, operation)
        begun = time.perf_counter()
        self.ask("POST", path, body)
        return time.perf_counter() - begun


class WithAdmin:
    """For a kind of Servers: its proxy has a settings file, and an admin listener to be asked."""

    # Goes behind the settings.
    settings_more = RETRIED

    def start_fencewire(self):
        self.proxy_port, self.admin_port = servers.free_port(), servers.free_port()
        os.mkdir(self.path("state"))
        with open(self.path("admin.key"), "w", encoding="ascii") as file:
            file.write(KEY)
        os.chmod(self.path("admin.key"), 0o600)
        return self.serve()

    def serve(self):
        """Starts the proxy by a settings file: (port, pid)."""
        with open(self.path("fencewire.toml"), "w", encoding="ascii") as file:
            file.write(SETTINGS.format(
                state=self.path("state"), admin=self.admin_port, key=self.path("admin.key"),
                url=self.engine_url(), protocol=self.scheme, port=self.proxy_port,
                more=self.settings_more,
            ))
        command = [self.fencewire, "serve", "--config", self.path("fencewire.toml")]
        self.proxy = self.spawn("fencewire", command)
        self.wait_port("fencewire", self.proxy, self.proxy_port)
        self.admin = Admin(self.admin_port)
        return self.proxy_port, self.proxy.pid

    def restart(self, settings_more):
        """Stops the proxy and starts it with other settings, over the same state."""
        self.proxy.terminate()
        self.proxy.wait(PATIENCE_S)
        self.running = [one for one in self.running if one[1] is not self.proxy]
        self.settings_more = settings_more
        self.targets["fencewire"] = self.serve()
