"""Transports between the runtime and a robot: DDS and UDP, each found by its entry point.

Nothing here is public; `physai.sdk.transport` has the interfaces that a transport of yours implements.
"""
