"""Token buckets: a rate on average, with a burst on top."""

import threading
import time
from collections import OrderedDict

MAX_KEYS = 10_000


class TokenBucket:
    """Grants `rate` uses per second on average and `burst` at once."""

    def __init__(self, rate: float, *, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = time.monotonic()

    def take(self) -> bool:
        """Takes a token if there is one."""
        now = time.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


class KeyedBuckets:
    """A bucket for each key; may be used from any thread. The key that was used longest ago is forgotten first."""

    def __init__(self, rate: float, *, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, key: str) -> bool:
        """Takes a token of the key if there is one."""
        with self._lock:
            bucket = self._buckets.get(key)
            if bucket is None:
                bucket = self._buckets[key] = TokenBucket(self._rate, burst=self._burst)
                if len(self._buckets) > MAX_KEYS:
                    self._buckets.popitem(last=False)
            self._buckets.move_to_end(key)
            return bucket.take()
