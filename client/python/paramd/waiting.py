"""Lets coroutines of asyncio wait for tickets, by the descriptor that the library makes readable (pd_client_fd)."""
from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from .errors import DeadlineExceeded
from .ticket import Result, Ticket

if TYPE_CHECKING:
    from .client import Client


class Watcher:
    """Watches a client's descriptor in one event loop, as long as coroutines of that loop wait for tickets."""

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        self.client, self.loop = client, loop
        self.waiting: dict[asyncio.Future[None], Ticket] = {}
        self.fd = client.fileno()

    def add(self, ticket: Ticket) -> asyncio.Future[None]:
        """Returns a future that is done when the ticket is."""
        if not self.waiting:
            self.loop.add_reader(self.fd, self._read)
        future: asyncio.Future[None] = self.loop.create_future()
        self.waiting[future] = ticket
        self._check()
        return future

    def discard(self, future: asyncio.Future[None]) -> None:
        """Ends the wait of one coroutine."""
        self.waiting.pop(future, None)
        if not self.waiting:
            self.loop.remove_reader(self.fd)
            self.client.watchers.pop(self.loop, None)

    def _check(self) -> None:
        for future, ticket in list(self.waiting.items()):
            if not future.done() and ticket.done():
                future.set_result(None)

    def _read(self) -> None:
        """Makes the descriptor unreadable, then looks at the tickets of every loop: another loop may miss the event."""
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            pass
        self._check()
        for watcher in list(self.client.watchers.values()):
            if watcher is not self:
                watcher.loop.call_soon_threadsafe(watcher._check)


async def wait_in_loop(ticket: Ticket) -> dict[str, Result]:
    """Waits for a ticket, at most for the client's deadline, and lets other coroutines run."""
    client, loop = ticket.client, asyncio.get_running_loop()
    if not ticket.done():
        watcher = client.watchers.setdefault(loop, Watcher(client, loop))
        future = watcher.add(ticket)
        try:
            await asyncio.wait_for(future, client.deadline)
        except asyncio.TimeoutError:
            raise DeadlineExceeded(DeadlineExceeded.code,
                                   f"waited {client.deadline:g} s: still under way") from None
        finally:
            watcher.discard(future)
    return ticket.wait()
