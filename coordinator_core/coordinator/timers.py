"""A clock that the caller moves, and timers that run on the way."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

Action = Callable[[], None]


class Clock:
    """Milliseconds since the epoch. Actions run when :meth:`advance` reaches them, in order of their time.

    ``most_actions`` bounds how many run in all: a sweep comes again each millisecond if a setting says so.
    """

    def __init__(self, now_ms: int = 0, most_actions: float = math.inf) -> None:
        self.now_ms = now_ms
        self.most_actions = most_actions
        self._run = 0
        self._queue: list[tuple[int, int, Action]] = []
        self._sequence = itertools.count()

    def at(self, due_ms: int, action: Action) -> None:
        heapq.heappush(self._queue, (due_ms, next(self._sequence), action))

    def advance(self, now_ms: int) -> None:
        """Move to ``now_ms`` and run every action that falls due.

        Raises ``ValueError`` for a time in the past, and when more actions fall due than may run.
        """
        if now_ms < self.now_ms:
            raise ValueError(f"the clock stands at {self.now_ms} and cannot go back to {now_ms}")
        while self._queue and self._queue[0][0] <= now_ms:
            due_ms, _, action = heapq.heappop(self._queue)
            self.now_ms = max(self.now_ms, due_ms)
            self._run += 1
            if self._run > self.most_actions:
                raise ValueError(f"more than {self.most_actions} timers fall due")
            action()
        self.now_ms = now_ms


class Timers:
    """Timers of one coordinator, by key; a new timer replaces the old one (``CoordinatorTimer``)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._current: dict[tuple[str, ...], object] = {}

    def schedule(self, key: tuple[str, ...], delay_ms: int, action: Action) -> None:
        token = self._current[key] = object()

        def fire() -> None:
            if self._current.get(key) is token:
                del self._current[key]
                action()

        self._clock.at(self._clock.now_ms + delay_ms, fire)

    def schedule_if_absent(self, key: tuple[str, ...], delay_ms: int, action: Action) -> None:
        if key not in self._current:
            self.schedule(key, delay_ms, action)

    def is_scheduled(self, key: tuple[str, ...]) -> bool:
        return key in self._current

    def cancel(self, key: tuple[str, ...]) -> None:
        self._current.pop(key, None)

    def cancel_all(self) -> None:
        self._current.clear()
