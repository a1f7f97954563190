"""A raw PostgreSQL client: as much of the protocol as a measurement needs, and no more.

It has no password, and reads what comes without looking at it, up to the last thing an engine
says: a client in Python is to cost less than what it measures. TLS is asked for (`ASKED`: an
SSLRequest, as libpq has it) or begun with the first byte (`DIRECT`: what a terminating proxy that
doesn't know the protocol needs).
"""

import socket
import ssl
import struct

ASKED, DIRECT = "asked", "direct"
PATIENCE_S = 120
READY = b"Z\0\0\0\x05I"
SSL_REQUEST = struct.pack("!II", 8, 80877103)
PROTOCOL_3 = 196608
# The suite that every program here can be held to: the first choice of all of them.
CIPHER = "TLS_AES_256_GCM_SHA384"


def message(kind, body):
    return kind + struct.pack("!I", len(body) + 4) + body


def startup(user="postgres", database="postgres"):
    names = f"user\0{user}\0database\0{database}\0\0".encode()
    return message(b"", struct.pack("!I", PROTOCOL_3) + names)


def query(sql):
    return message(b"Q", sql.encode() + b"\0")


def context():
    """TLS 1.3 without a look at the certificate: everything is on this machine."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.set_alpn_protocols(["postgresql"])
    return made


def connected(port, tls=None, tls_context=None):
    """A socket, encrypted or not, on which nothing has been said yet."""
    link = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls is None:
        return link
    if tls == ASKED:
        link.sendall(SSL_REQUEST)
        if link.recv(1) != b"S":
            raise OSError("the server has no TLS")
    link = (tls_context or context()).wrap_socket(link)
    if link.cipher()[0] != CIPHER:
        raise OSError(f"the server chose {link.cipher()[0]} instead of {CIPHER}")
    return link


def session(port, tls=None, tls_context=None):
    """A session that has run one query and says nothing more."""
    link = connected(port, tls, tls_context)
    link.sendall(startup())
    until_ready(link)
    asked(link, "SELECT 1")
    return link


def asked(link, sql):
    """The bytes of the whole answer."""
    link.sendall(query(sql))
    return until_ready(link)


def until_ready(link):
    """What an engine says up to its last word. For short answers."""
    held = b""
    while not held.endswith(READY):
        got = link.recv(65536)
        if not got:
            raise OSError("the session was closed: " + held[-200:].decode("ascii", "replace"))
        held += got
    return held


def counted(link):
    """Bytes up to the engine's last word, none of them kept. For long answers."""
    room = bytearray(1 << 20)
    total, tail, first = 0, b"", b""
    while tail != READY:
        got = link.recv_into(room)
        if not got:
            raise OSError(f"the session was closed after {total} bytes")
        first = first or bytes(room[:200])
        total += got
        tail = (tail + bytes(room[max(0, got - len(READY)):got]))[-len(READY):]
    if first.startswith(b"E"):
        raise OSError("the engine refused: " + first.decode("ascii", "replace"))
    return total


def give_value(link, size):
    """Sends a parameter of `size` bytes piece by piece; the engine answers with its length."""
    parse = message(b"P", b"\0SELECT octet_length($1)\0" + struct.pack("!HI", 1, 25))
    # Portal, statement, no formats, one parameter of this length; then no result formats.
    head = b"\0\0" + struct.pack("!HHI", 0, 1, size)
    bind = b"B" + struct.pack("!I", 4 + len(head) + size + 2) + head
    end = struct.pack("!H", 0) + message(b"E", b"\0" + struct.pack("!I", 0)) + message(b"S", b"")
    link.sendall(parse + bind)
    piece = memoryview(b"x" * (1 << 20))
    left = size
    while left:
        link.sendall(piece[:left])
        left -= min(left, len(piece))
    link.sendall(end)
    answer = until_ready(link)
    if str(size).encode() not in answer:
        raise OSError("the engine refused: " + answer[:200].decode("ascii", "replace"))
