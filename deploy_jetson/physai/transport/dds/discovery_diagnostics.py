"""Diagnoses missing topics from what is discovered in the DDS domain."""

import time
from collections.abc import Iterable, Sequence

from physai.transport.dds.codec.field_layout import MessageWriter
from physai.transport.dds.codec.messages import dds_topic, dds_type
from physai.transport.dds.feed import Subscription
from physai.transport.dds.wire import COMMANDERS, ByteWriter, Endpoint, Middleware, wrong_hash

MAX_NAMED = 8
# Time for discovery and for a first message before a missing topic is reported [s].
DISCOVERY_S = 1.0


def describe(
    node: Middleware,
    feeds: Sequence[Subscription],
    outlets: Sequence[tuple[MessageWriter, ByteWriter]],
    *,
    settled: bool,
) -> tuple[str, ...]:
    """Describe topics without a matching publisher or subscriber: what is expected and what was discovered.

    Args:
        node: the node.
        feeds: its subscriptions.
        outlets: its publishers.
        settled: whether it is older than `DISCOVERY_S`; missing topics are reported only then.
    """
    # Queried once for all topics.
    publishers, subscribers = node.publishers(), node.subscribers()
    written = {writer.full_name for _, writer in outlets}
    read = {feed.reader.full_name for feed in feeds}
    unreached = [(outlet, writer) for outlet, writer in outlets if not writer.reached()]
    faults = [_unheard(feed, publishers, written, node.domain, settled=settled) for feed in feeds if not feed.stamp_ns]
    faults += [_doubled(topic, publishers) for topic in (*sorted(read), *sorted(written))]
    faults += [_unreached(*one, subscribers, read, node.domain, settled=settled) for one in unreached]
    return tuple(text for text in faults if text)


def _unheard(
    feed: Subscription, publishers: Sequence[Endpoint], own: Iterable[str], domain: int, *, settled: bool
) -> str:
    binding, topic = feed.inlet.layout.binding, feed.reader.full_name
    here = [endpoint for endpoint in publishers if endpoint.topic == dds_topic(topic)]
    if not here:
        text = f"{topic}: no publisher in domain {domain}; published topics: "
        return text + _named(publishers, own) if settled else ""
    problem = _misfit(here, binding.type, "published")
    if problem:
        return f"{topic}: {problem}"
    # A best-effort publisher never matches a reliable reader.
    if binding.qos == "default" and not any(endpoint.reliable for endpoint in here):
        return f"{topic}: published best effort, read as reliable; bind it with `qos: sensor_data`"
    mismatch = feed.reader.mismatch()
    if mismatch:
        return f"{topic}: its publisher's QoS does not fit: {mismatch}"
    # Right after discovery the first message may still be on its way.
    return f"{topic}: published, but nothing has been received from it" if _known_long(here) else ""


def _unreached(
    outlet: MessageWriter,
    writer: ByteWriter,
    subscribers: Sequence[Endpoint],
    own: Iterable[str],
    domain: int,
    *,
    settled: bool,
) -> str:
    topic = writer.full_name
    here = [endpoint for endpoint in subscribers if endpoint.topic == dds_topic(topic)]
    if not here:
        text = f"{topic}: no subscriber in domain {domain}; subscribed topics: "
        return text + _named(subscribers, own) if settled else ""
    problem = _misfit(here, outlet.layout.binding.type, "subscribed to")
    if problem:
        return f"{topic}: {problem}"
    # A subscriber that asks for transient local refuses a volatile publisher.
    if all(endpoint.lasting for endpoint in here):
        return f"{topic}: subscribed to as transient local, published volatile; let it take volatile"
    mismatch = writer.mismatch()
    if mismatch:
        return f"{topic}: its subscriber's QoS does not fit: {mismatch}"
    return f"{topic}: subscribed to, but not found by its subscriber" if _known_long(here) else ""


def _misfit(endpoints: Sequence[Endpoint], kind: str, done: str) -> str:
    """Describe why none of a topic's endpoints has the expected type; empty if one has."""
    kinds = {endpoint.kind for endpoint in endpoints}
    if dds_type(kind) not in kinds:
        return f"{done} as {', '.join(sorted(kinds))}, expected {dds_type(kind)}"
    # One publisher that fits is enough.
    reasons = [wrong_hash(kind, endpoint) for endpoint in endpoints if endpoint.kind == dds_type(kind)]
    return "" if "" in reasons else f"refused: {reasons[0]}"


def _named(endpoints: Sequence[Endpoint], own: Iterable[str]) -> str:
    """List ROS topics of other nodes."""
    names = sorted(
        {one.topic.removeprefix("rt") for one in endpoints if one.topic.startswith("rt/")} - {*own, COMMANDERS}
    )
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return (", ".join(names[:MAX_NAMED]) or "nothing") + more


def _known_long(endpoints: Sequence[Endpoint]) -> bool:
    return time.monotonic() - min(endpoint.seen_s for endpoint in endpoints) > DISCOVERY_S


def _doubled(topic: str, publishers: Sequence[Endpoint]) -> str:
    # A watchdog and its runtime count as one; publishers of unknown owner count each.
    here = [endpoint for endpoint in publishers if endpoint.topic == dds_topic(topic)]
    count = len({endpoint.speaker or str(number) for number, endpoint in enumerate(here)})
    return f"{topic}: {count} publishers, expected 1" if count > 1 else ""
