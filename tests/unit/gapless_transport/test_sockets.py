from __future__ import annotations

import errno
import socket

import pytest

from gapless.errors import ConfigurationError
from gapless_transport.sockets import bind, peer_of, prepare, shut_down


def pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()
    return near, far


def test_a_link_is_prompt_kept_alive_and_short_in_the_kernel() -> None:
    near, far = pair()
    prepare(near)

    assert near.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    assert near.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        assert near.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 64 << 10
    near.close()
    far.close()


def test_what_a_socket_refuses_is_done_without() -> None:
    class Refusing:
        calls = 0

        def setsockopt(self, level: int, option: int, value: int, /) -> None:
            self.calls += 1
            raise OSError(errno.EINVAL, "gone")

    refusing = Refusing()
    prepare(refusing)

    assert refusing.calls > 1


async def test_a_port_of_our_own_is_bound_once() -> None:
    sockets = await bind("localhost:0", "localhost", 0, backlog=5)

    assert len(sockets) == 1
    assert not sockets[0].getblocking()
    sockets[0].close()


async def test_every_address_of_a_name_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that this machine does not have is left out, as ::1 is in many containers."""
    free = (await bind("127.0.0.1:0", "127.0.0.1", 0, backlog=5))[0]
    port = free.getsockname()[1]
    free.close()

    def resolve(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))
            for host in ("192.0.2.1", "127.0.0.1", "127.0.0.2")
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    sockets = await bind("broker:1", "broker", port, backlog=5)

    assert [sock.getsockname() for sock in sockets] == [("127.0.0.1", port), ("127.0.0.2", port)]
    for sock in sockets:
        sock.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"], ids=["taken", "not here"])
async def test_what_cannot_be_bound_is_a_configuration_error(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(ConfigurationError, match=f"cannot listen on {host}:{port}: "):
            await bind(f"{host}:{port}", host, port, backlog=5)


def test_a_peer_has_an_address_until_it_has_vanished() -> None:
    near, far = pair()
    assert peer_of(near) == f"127.0.0.1:{far.getsockname()[1]}"
    near.close()
    far.close()

    assert peer_of(near) == "a vanished peer"


def test_shutting_down_ends_a_connection_and_may_be_repeated() -> None:
    near, far = pair()
    shut_down(near)

    assert far.recv(1) == b""
    shut_down(near)
    near.close()
    shut_down(near)
    far.close()
