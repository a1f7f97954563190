"""Answers as PostgreSQL does, for sessions that are only held: 10,000 backends need more memory
than a small machine has.

    stand_in.py PORT ENGINE_PORT [FOLDER]

It logs in to the engine once, and gives every client what the engine said then: to the startup
packet (the cancel key is made up), and to SELECT 1, whatever is asked. A control connection of the
proxy, known by its application_name, is passed through to the engine. FOLDER is read by
tools/sweep.sh only.
"""

import asyncio
import resource
import struct
import sys

import client

KEY = b"K\0\0\0\x0c"
CONTROL = b"application_name\0fencewire/"
BACKLOG = 4096


class Recorded:
    """What the engine said."""

    def __init__(self, port):
        with client.connected(port) as link:
            link.sendall(client.startup())
            welcome = client.until_ready(link)
            self.answer = client.asked(link, "SELECT 1")
        at = welcome.index(KEY) + len(KEY)
        self.before, self.after = welcome[:at], welcome[at + 8:]
        self.sessions = 0

    def welcome(self):
        """With a cancel key of its own for every session."""
        self.sessions += 1
        return self.before + struct.pack("!II", self.sessions, self.sessions * 7919) + self.after


class Session(asyncio.Protocol):
    """One connection of a relay."""

    def __init__(self, recorded, engine_port):
        self.recorded = recorded
        self.engine_port = engine_port
        self.held = b""
        self.transport = None
        self.welcomed = False
        # The engine's side of a control connection, once it is there.
        self.engine = None
        self.is_control = False

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        if self.engine is not None:
            self.engine.write(data)
            return
        self.held += data
        while not self.is_control and self.one_message():
            pass

    def one_message(self):
        """Answers the first message of `held`; false while it isn't whole."""
        head = 1 if self.welcomed else 0
        if len(self.held) < head + 4:
            return False
        length, = struct.unpack_from("!I", self.held, head)
        if len(self.held) < head + length:
            return False
        one, rest = self.held[:head + length], self.held[head + length:]
        if not self.welcomed:
            if one == client.SSL_REQUEST:
                self.transport.write(b"N")
            elif CONTROL in one:
                self.is_control = True
                asyncio.ensure_future(self.pass_through())
                return False
            else:
                self.welcomed = True
                self.transport.write(self.recorded.welcome())
        elif one[:1] in (b"Q", b"S"):
            self.transport.write(self.recorded.answer)
        elif one[:1] == b"X":
            self.transport.abort()
        self.held = rest
        return True

    async def pass_through(self):
        loop = asyncio.get_running_loop()
        try:
            engine, _ = await loop.create_connection(
                lambda: Back(self.transport), "127.0.0.1", self.engine_port
            )
        except OSError:
            self.transport.abort()
            return
        engine.write(self.held)
        self.engine = engine

    def connection_lost(self, _error):
        if self.engine is not None:
            self.engine.close()


class Back(asyncio.Protocol):
    """What the engine says on a control connection."""

    def __init__(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)

    def connection_lost(self, _error):
        self.transport.close()


async def main():
    port, engine_port = int(sys.argv[1]), int(sys.argv[2])
    recorded = Recorded(engine_port)
    server = await asyncio.get_running_loop().create_server(
        lambda: Session(recorded, engine_port), "127.0.0.1", port, backlog=BACKLOG
    )
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(main())
